/*
 * local_sgd.c - a strategy of your own: local SGD. Workers train by themselves and average their
 * parameters every few steps. DDP, which averages gradients in every step, trains beside it.
 *
 *     build/bin/trirun --standalone --nproc-per-node 4 build/bin/local_sgd
 *     build/bin/trirun --standalone --nproc-per-node 4 build/bin/local_sgd --every 1 --warmup 0
 *
 * In the first steps, in which parameters change most, it averages gradients, too (post-local SGD:
 * Lin, Stich, Patel, Jaggi, ICLR 2020). With an average after each step it has DDP's result but for
 * rounding, since an update of plain SGD is linear in the gradient.
 */
#include <math.h>

#include <trireme/trireme.h>

#include "command_line.h"

enum { BATCH = 32, HIDDEN = 64, N_TESTS = 256 };

static const char usage[] =
    "usage: [trirun --nproc-per-node N] local_sgd [options]\n\n"
    "Trains a network by DDP and another one by local SGD, on data that differ from worker to\n"
    "worker, and prints losses, what was sent, and whether all replicas are equal.";

static int64_t steps = 1000, every = 8, warmup = 20;

static void parse(int argc, char **argv)
{
    const option options[] = {
        {.name = "--steps", .help = "updates (1000)", .integer = &steps, .min = 10},
        {.name = "--every", .help = "steps between averages (8)", .integer = &every, .min = 1},
        {.name = "--warmup", .help = "first steps, as in DDP (20)", .integer = &warmup},
    };

    options_parse(argc, argv, usage, options);
}

/* Points between -1 and 1; a surface has a height above each, which is what is to be learned. */
static void draw(tri_tensor *points, uint64_t *seed)
{
    float values[N_TESTS * 2];
    const int64_t n = tri_tensor_numel(points);

    for (int64_t i = 0; i < n; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)(*seed >> 40) / (float)(1 << 23) - 1;
    }
    TRI_TRY(tri_tensor_copy_in(points, values, (size_t)n * sizeof(float)));
}

static tri_module *network_create(void)
{
    tri_manual_seed(0); /* both networks start equal */
    return tri_nn_sequential(tri_nn_linear(2, HIDDEN, NULL), tri_nn_batch_norm1d(HIDDEN, NULL),
                             tri_nn_tanh(), tri_nn_linear(HIDDEN, 1, NULL));
}

static tri_tensor *loss_of(tri_module *model, tri_tensor *points)
{
    tri_tensor *x = tri_narrow(points, 1, 0, 1), *y = tri_narrow(points, 1, 1, 1);
    tri_tensor *height = tri_mul(tri_sin(tri_mul_scalar(x, 3)), y);

    return tri_mse_loss(tri_forward(model, points), height, NULL);
}

/* --- the strategy --------------------------------------------------------- */

/* Gradients are averaged as DDP does it; a state is parameters, and running statistics. */
typedef enum what { GRADIENTS, STATE } what;

/* Copies it into `values` (NULL: counts only), or back. Returns the number of elements. */
static size_t copy(tri_module *net, what of, float *values, bool back)
{
    size_t n = 0;

    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        tri_tensor *tensor = tri_module_state(net, i).tensor;
        size_t count;

        if (of == GRADIENTS)
            tensor = tri_grad(tensor); /* of a statistic: NULL */
        if (tensor == NULL || tri_tensor_dtype(tensor) != TRI_DTYPE_F32)
            continue; /* a counter of batches is equal on all workers */
        count = (size_t)tri_tensor_numel(tensor);
        if (values != NULL)
            TRI_TRY(back ? tri_tensor_copy_in(tensor, values + n, count * sizeof(float))
                         : tri_tensor_copy_out(tensor, values + n, count * sizeof(float)));
        n += count;
    }
    return n;
}

/* Returns the bytes that this worker gave to the call. */
static size_t average(tri_module *net, what of, float *values)
{
    size_t n;

    TRI_TRY(tri_run()); /* from here on gradients are values, which can be written */
    n = copy(net, of, values, false);
    TRI_TRY(tri_all_reduce(NULL, values, values, n, TRI_DTYPE_F32, TRI_REDOP_AVG, NULL));
    copy(net, of, values, true);
    return tri_world_size() > 1 ? n * sizeof(float) : 0;
}

/* --- what comes out ------------------------------------------------------- */

static void evaluate(const char *label, tri_module *model, tri_tensor *tests, size_t sent_bytes)
{
    double loss;

    tri_module_train(model, false); /* batch norm takes the running statistics */
    TRI_TRY(tri_item_status(loss_of(model, tests), &loss));
    tri_step_end();
    tri_module_train(model, true);
    if (tri_rank() == 0)
        printf("%-9s  loss %.6f  bytes sent by each worker %zu\n", label, loss, sent_bytes);
}

static void compare(tri_module *ddp, tri_module *net)
{
    double squares = 0;
    uint64_t hash, first;

    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        const tri_state_entry entry = tri_module_state(net, i);
        tri_tensor *other = tri_module_find(ddp, entry.name);

        if (entry.parameter)
            squares += tri_item(tri_sum(tri_square(tri_sub(entry.tensor, other)), NULL, 0, false));
    }
    tri_step_end();
    if (tri_rank() == 0)
        printf("their parameters are %.3g apart\n", sqrt(squares));
    TRI_TRY(tri_module_hash(net, &hash));
    first = hash;
    TRI_TRY(tri_broadcast(NULL, &first, 1, TRI_DTYPE_I64, 0, NULL));
    printf("worker %d of %d: local SGD's state is %016llx, %s\n", tri_rank(), tri_world_size(),
           (unsigned long long)hash, hash == first ? "equal to worker 0's" : "NOT EQUAL");
}

int main(int argc, char **argv)
{
    tri_module *ddp, *net;
    tri_optimizer *opt_ddp, *opt;
    tri_tensor *points, *tests;
    tri_ddp_pass_stats pass;
    float *values; /* room for what is averaged, in memory that all local workers map */
    size_t sent_bytes = 0;
    uint64_t seed = 1;

    parse(argc, argv);
    TRI_TRY(tri_init(NULL));
    points = tri_tensor_create(TRI_SHAPE(BATCH, 2), TRI_DTYPE_F32);
    tests = tri_tensor_create(TRI_SHAPE(N_TESTS, 2), TRI_DTYPE_F32);
    draw(tests, &seed);
    seed += (uint64_t)tri_rank(); /* from here on each worker has points of its own */
    ddp = tri_ddp(network_create(), NULL);
    net = network_create();
    opt_ddp = tri_sgd(ddp, 0.02, NULL);
    opt = tri_sgd(net, 0.02, NULL);
    values = tri_group_alloc(NULL, copy(net, STATE, NULL, false) * sizeof(float));
    TRI_TRY(values != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    TRI_TRY(tri_ddp_stats(ddp, &pass, NULL, 0)); /* begins to measure */
    evaluate("before", net, tests, 0);

    for (int64_t step = 0; step < steps; step++) {
        draw(points, &seed);
        tri_backward(loss_of(ddp, points));
        TRI_TRY(tri_optimizer_step(opt_ddp)); /* DDP: with the mean of all workers' gradients */
        tri_step_end();

        tri_backward(loss_of(net, points));
        if (step < warmup)
            sent_bytes += average(net, GRADIENTS, values);
        TRI_TRY(tri_optimizer_step(opt)); /* after the warm-up: with this worker's gradients */
        tri_step_end();
        if (step + 1 == steps || (step >= warmup && (step + 1 - warmup) % every == 0))
            sent_bytes += average(net, STATE, values);
    }

    TRI_TRY(tri_ddp_stats(ddp, &pass, NULL, 0)); /* means over passes */
    evaluate("DDP", ddp, tests, (size_t)steps * pass.sent_bytes);
    evaluate("local SGD", net, tests, sent_bytes);
    compare(ddp, net);
    tri_group_free(NULL, values);
    tri_optimizer_destroy(opt_ddp);
    tri_optimizer_destroy(opt);
    tri_module_destroy(ddp);
    tri_module_destroy(net);
    tri_tensor_unref(points);
    tri_tensor_unref(tests);
    tri_finalize();
    return 0;
}
