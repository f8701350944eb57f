/*
 * rpc_pipeline.c - PyTorch's tutorial "Distributed Pipeline Parallelism Using RPC": ResNet-50 in
 * two shards on two workers, and a master that cuts batches into pieces, so that both compute at
 * the same time.
 *
 *     python main.py                     becomes
 *     build/bin/rpc_pipeline
 *
 * It trains three batches with pieces of 1, 2, 4 and 8 images. (The original calls that the "number
 * of splits", and so does the line that is printed.) Launchers start the processes, too:
 *
 *     trirun --nproc_per_node=3 build/bin/rpc_pipeline
 *     torchrun --no-python --nproc_per_node=3 build/bin/rpc_pipeline
 *     mpirun -np 3 build/bin/rpc_pipeline
 *
 * There is no schedule to write: everything is recorded, and whatever does not wait for another
 * worker's result runs. The forwards of a shard run in the order in which they were recorded, and
 * backwards take precedence over them.
 *
 * Other sizes: --batch_size=N --image_size=N --width=N (channels of the first layer) --batches=N
 * --split_size=N (this one alone) --f64. With --one_process the same training runs in this
 * process, without RPC. --verbose prints the seconds and the loss of each batch, and --save=FOLDER
 * leaves the trained shards there.
 */
#include <string.h>
#include <time.h>

#include <trireme/models.h>
#include <trireme/remote.h>
#include <trireme/trireme.h>

#include "../command_line.h"

enum { WORLD_SIZE = 3, SHARDS = 2, CLASSES = 1000, MAX_PIECES = 256 };
static const double learning_rate = 0.05;

static struct settings {
    int64_t batch_size, image_size, width, batches, split_size;
    bool f64, one_process, verbose;
    const char *save;
} args = {.batch_size = 120, .image_size = 128, .width = 64, .batches = 3};

static double now(void)
{
    struct timespec t;

    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- the two shards of ResNet-50 ------------------------------------------ */

/* Bottleneck blocks; the first one has the stride, and brings `in` channels to 4 * planes. */
static tri_module *make_layer(int64_t in, int64_t planes, int blocks, int stride)
{
    tri_module *layer[6];

    for (int i = 0; i < blocks; i++)
        layer[i] =
            tri_model_resnet_block(true, i == 0 ? in : 4 * planes, planes, i == 0 ? stride : 1);
    return tri_nn_sequential_of(blocks, layer);
}

/* Images [N, 3, H, W] -> [N, 8 width, H / 8, W / 8]. */
static tri_module *resnet_shard1(int64_t width)
{
    const tri_nn_conv2d_options conv = {.stride = 2, .padding = 3, .no_bias = true};
    const tri_nn_pool2d_options pool = {.stride = 2, .padding = 1};

    return tri_nn_sequential(tri_nn_conv2d(3, width, 7, &conv), tri_nn_batch_norm2d(width, NULL),
                             tri_nn_relu(), tri_nn_max_pool2d(3, &pool),
                             make_layer(width, width, 3, 1),
                             make_layer(4 * width, 2 * width, 4, 2));
}

/* -> logits [N, CLASSES]. */
static tri_module *resnet_shard2(int64_t width)
{
    return tri_nn_sequential(make_layer(8 * width, 4 * width, 6, 2),
                             make_layer(16 * width, 8 * width, 3, 2),
                             tri_nn_adaptive_avg_pool2d(1, 1), tri_nn_flatten(1),
                             tri_nn_linear(32 * width, CLASSES, NULL));
}

/* Shard 0 or 1, with the same weights wherever it is made. */
static tri_module *shard_create(int i)
{
    tri_module *shard;

    tri_manual_seed((uint64_t)i);
    shard = (i == 0 ? resnet_shard1 : resnet_shard2)(args.width);
    for (int64_t k = 0; k < tri_module_state_count(shard); k++) {
        tri_tensor *weight = tri_module_state(shard, k).tensor;

        if (tri_tensor_ndim(weight) == 4) /* of a convolution */
            TRI_TRY(tri_init_kaiming_normal(weight, 0, TRI_FAN_OUT));
    }
    if (args.verbose)
        printf("shard %d has %lld parameters\n", i + 1,
               (long long)tri_module_parameter_count(shard));
    return shard;
}

static void shard_save(tri_module *shard, int i)
{
    char path[4096];

    if (args.save == NULL)
        return;
    snprintf(path, sizeof(path), "%s/shard%d.safetensors", args.save, i + 1);
    TRI_TRY(tri_save(shard, path));
}

static void run_shard(int i)
{
    tri_module *shard = shard_create(i);
    tri_optimizer *opt = tri_sgd(shard, learning_rate, NULL);

    TRI_TRY(tri_remote_serve(NULL, "shard", shard, opt, NULL)); /* "worker1/shard" */
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));
    shard_save(shard, i);
    TRI_TRY(tri_rpc_fini());
    tri_optimizer_destroy(opt);
    tri_module_destroy(shard);
}

/* --- the master ----------------------------------------------------------- */

/* The model: each piece of the batch through one shard, and then through the other. All of it is
 * only recorded. */
static tri_tensor *dist_resnet50(tri_module *const *shard, tri_tensor *xs, int64_t split_size)
{
    const int64_t size = tri_tensor_size(xs, 0);
    tri_tensor *out[MAX_PIECES];
    int n = 0;

    for (int64_t at = 0; at < size; at += split_size) {
        tri_tensor *x = tri_narrow(xs, 0, at, split_size < size - at ? split_size : size - at);

        out[n++] = tri_forward(shard[1], tri_forward(shard[0], x));
    }
    return tri_concat(out, n, 0);
}

static tri_tensor *random_images(void)
{
    return tri_randn(TRI_SHAPE(args.batch_size, 3, args.image_size, args.image_size),
                     tri_default_dtype());
}

/* Runs what was recorded, and updates both shards. */
typedef tri_status update_fn(void *optimizer);

static void train(tri_module *const *shard, int64_t split_size, update_fn *update, void *optimizer)
{
    const tri_dtype dtype = tri_default_dtype();
    tri_tensor *wanted, *inputs;

    tri_manual_seed(2);
    wanted = tri_tensor_clone(tri_randint(0, CLASSES, TRI_SHAPE(args.batch_size), TRI_DTYPE_I64));
    inputs = tri_tensor_clone(random_images());
    for (int i = 0; i < (int)args.batches; i++) {
        const double begin = now();
        tri_tensor *outputs = dist_resnet50(shard, inputs, split_size);
        /* as a loader would, while the shards compute */
        tri_tensor *next = tri_keep(random_images());
        tri_tensor *labels = tri_cast(tri_one_hot(wanted, CLASSES), dtype), *loss;

        printf("Processing batch %d\n", i);
        loss = tri_mse_loss(outputs, labels, NULL);
        tri_backward(loss);
        TRI_TRY(update(optimizer));
        if (args.verbose)
            printf("split size %lld, %.6f s, loss %.17g\n", (long long)split_size, now() - begin,
                   tri_item(loss));
        tri_tensor_unref(inputs);
        inputs = tri_tensor_clone(next);
        tri_step_end();
    }
    tri_tensor_unref(inputs);
    tri_tensor_unref(wanted);
}

static tri_status update_remote(void *optimizer)
{
    return tri_remote_optimizer_step(optimizer);
}

static void run_master(int64_t split_size)
{
    tri_module *shard[SHARDS] = {tri_remote_module(NULL, "worker1/shard", NULL),
                                 tri_remote_module(NULL, "worker2/shard", NULL)};
    tri_remote_optimizer *opt = tri_remote_optimizer_of(NULL, shard, SHARDS, NULL);

    train(shard, split_size, update_remote, opt);
    tri_remote_optimizer_destroy(opt);
    for (int i = 0; i < SHARDS; i++)
        tri_module_destroy(shard[i]);
}

/* --- the same in one process ---------------------------------------------- */

static tri_status update_both(void *optimizer)
{
    return tri_optimizer_step(optimizer);
}

static void run_one_process(int64_t split_size)
{
    tri_module *shard[SHARDS] = {shard_create(0), shard_create(1)};
    const tri_param_group groups[SHARDS] = {{.model = shard[0]}, {.model = shard[1]}};
    tri_optimizer *opt = tri_sgd_of(groups, SHARDS, learning_rate, NULL);

    train(shard, split_size, update_both, opt);
    tri_optimizer_destroy(opt);
    for (int i = 0; i < SHARDS; i++) {
        shard_save(shard[i], i);
        tri_module_destroy(shard[i]);
    }
}

/* --- processes ------------------------------------------------------------ */

static tri_status run_worker(int rank, void *arg)
{
    static const char *const names[WORLD_SIZE] = {"master", "worker1", "worker2"};
    /* the original's rpc_timeout: the master also waits so long until the shards are made */
    const tri_rpc_options options = {.timeout_ms = 300000};

    TRI_TRY(tri_rpc_init(names[rank], &options));
    if (rank > 0) {
        run_shard(rank - 1);
        return TRI_OK;
    }
    run_master(*(const int64_t *)arg);
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));
    TRI_TRY(tri_rpc_fini());
    return TRI_OK;
}

/* If a launcher has started the workers, this is one of them; else tri_spawn starts them, for each
 * size of pieces. */
static void join_launched(void)
{
    if (args.one_process || strcmp(tri_launcher(), "none") == 0)
        return;
    TRI_TRY(tri_init(NULL));
    if (tri_world_size() != WORLD_SIZE)
        TRI_TRY(tri_status_fail(TRI_ERR_INVALID_ARG, "%d processes; it takes %d", tri_world_size(),
                                WORLD_SIZE));
}

/* Trains with pieces of this size, and prints how long it took. */
static void run_split(int64_t split_size)
{
    const bool alone = !tri_is_initialized();
    const double begin = now();

    if (args.one_process)
        run_one_process(split_size);
    else if (alone)
        TRI_TRY(tri_spawn(run_worker, &split_size, WORLD_SIZE, NULL));
    else
        TRI_TRY(run_worker(tri_rank(), &split_size));
    if (alone || tri_rank() == 0)
        printf("number of splits = %lld, execution time = %g\n", (long long)split_size,
               now() - begin);
}

static void parse(int argc, char **argv)
{
    static const option options[] = {
        {"--batch_size", NULL, "(120)", .integer = &args.batch_size, .min = 1},
        {"--image_size", NULL, "(128)", .integer = &args.image_size, .min = 1},
        {"--width", NULL, "channels of the first layer (64)", .integer = &args.width, .min = 1},
        {"--batches", NULL, "(3)", .integer = &args.batches, .min = 1},
        {"--split_size", NULL, "images of a piece (1, 2, 4, 8)", .integer = &args.split_size,
         .min = 1},
        {"--f64", NULL, "computes in double precision", .flag = &args.f64},
        {"--one_process", NULL, "without RPC", .flag = &args.one_process},
        {"--verbose", NULL, "seconds and loss of each batch", .flag = &args.verbose},
        {"--save", NULL, "folder for the trained shards", .text = &args.save}};

    options_parse(argc, argv, "usage: rpc_pipeline [options]", options);
    if (args.batch_size / (args.split_size > 0 ? args.split_size : 1) > MAX_PIECES)
        options_refuse("--batch_size: at most %d pieces of --split_size", MAX_PIECES);
}

int main(int argc, char **argv)
{
    static const int64_t split_sizes[] = {1, 2, 4, 8};

    parse(argc, argv);
    tri_set_default_dtype(args.f64 ? TRI_DTYPE_F64 : TRI_DTYPE_F32);
    join_launched();
    if (args.split_size > 0)
        run_split(args.split_size);
    else
        for (int i = 0; i < 4; i++)
            run_split(split_sizes[i]);
    if (tri_is_initialized())
        tri_finalize();
    return 0;
}
