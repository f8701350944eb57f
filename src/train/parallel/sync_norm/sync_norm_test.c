/* sync_norm_test.c - batch norm by the batches of all ranks trains as one process does with the
 * whole batch. */
/* ctest: start=first also=TRI_CHECK=order */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "testing/guarded.h"
#include "testing/ranks.h"

#define STEPS 10
#define ROWS 48
#define IN 36 /* also images [4, 3, 3] */
#define OUT 3
#define STATE 1024

/* --- one problem, for one process and for many ---------------------------- */

typedef struct problem {
    bool images;
    const int *rows;   /* of each rank; NULL: all as many */
    bool apart;        /* statistics have a group of their own */
    tri_device device; /* where the network lies, that of rank 1 if `spread` the next one */
    bool spread;
    double state[STATE]; /* of one process after the last step, */
    int n_state;
    double losses[STEPS]; /* and its losses */
} problem;

static double number(uint64_t seed, int64_t i)
{
    uint64_t z = (seed * 1000003 + (uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) / (double)(UINT64_C(1) << 52) - 1.0;
}

/* Rows first .. first + n of all that step `step` has. */
static tri_tensor *rows_of(const problem *p, int step, bool target, int first, int n)
{
    int width = target ? OUT : IN;
    double data[ROWS * IN];

    for (int i = 0; i < n * width; i++)
        data[i] = number(target ? 100 + (uint64_t)step : 200 + (uint64_t)step, first * width + i);
    if (p->images && !target)
        return tri_tensor_from(TRI_SHAPE(n, 4, 3, 3), TRI_DTYPE_F64, data);
    return tri_tensor_from(TRI_SHAPE(n, width), TRI_DTYPE_F64, data);
}

/* Initial values are not drawn: all ranks are threads of one process, which has one generator. */
static tri_status fill_state(tri_module *net)
{
    for (int64_t k = 0; k < tri_module_state_count(net); k++) {
        tri_state_entry entry = tri_module_state(net, k);
        int64_t n = tri_tensor_numel(entry.tensor);
        double data[STATE];
        tri_status status;

        if (!entry.parameter)
            continue;
        for (int64_t i = 0; i < n; i++)
            data[i] = (tri_tensor_ndim(entry.tensor) == 1) + 0.4 * number((uint64_t)k, i);
        status = tri_tensor_copy_in(entry.tensor, data, (size_t)n * sizeof(double));
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

/* The MLP has the layers themselves, the CNN batch norms that are converted. */
static tri_module *make_net(const problem *p, tri_group *group)
{
    const tri_nn_sync_batch_norm_options sync = {.group = group};
    const tri_nn_conv2d_options same = {.padding = 1, .no_bias = true};
    tri_module *net;

    tri_set_default_dtype(TRI_DTYPE_F64);
    if (p->images)
        net = tri_nn_sequential(tri_nn_conv2d(4, 4, 3, &same), tri_nn_batch_norm2d(4, NULL),
                                tri_nn_relu(),
                                tri_nn_sequential(tri_nn_conv2d(4, 6, 3, &same),
                                                  tri_nn_batch_norm2d(6, NULL), tri_nn_relu()),
                                tri_nn_flatten(1), tri_nn_linear(54, OUT, NULL));
    else
        net = tri_nn_sequential(tri_nn_linear(IN, 8, NULL), tri_nn_sync_batch_norm(8, &sync),
                                tri_nn_relu(), tri_nn_linear(8, 8, NULL),
                                tri_nn_sync_batch_norm(8, &sync), tri_nn_relu(),
                                tri_nn_linear(8, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    if (p->images && group != NULL && tri_convert_sync_batch_norm(net, group) != 2)
        tri_module_destroy(tri_module_add_child(net, "bad", NULL)); /* net carries the error */
    return net;
}

static tri_status take_state(tri_module *net, double *state, int *n_out)
{
    *n_out = 0;
    for (int64_t k = 0; k < tri_module_state_count(net); k++) {
        tri_tensor *t = tri_module_state(net, k).tensor;
        int n = (int)tri_tensor_numel(t);
        tri_status status;

        if (tri_tensor_dtype(t) != TRI_DTYPE_F64)
            continue;
        status = tri_tensor_copy_out(t, state + *n_out, (size_t)n * sizeof(double));
        if (status != TRI_OK)
            return status;
        *n_out += n;
    }
    return TRI_OK;
}

/* `losses` gets what each step's loss is. */
static tri_status train(const problem *p, tri_module *model, tri_device device, int first, int n,
                        double *losses)
{
    tri_optimizer *opt = tri_sgd(model, 0.05, &(tri_sgd_options){.momentum = 0.9});
    tri_status status = TRI_OK;

    for (int step = 0; step < STEPS && status == TRI_OK; step++) {
        tri_tensor *x = rows_of(p, step, false, first, n), *y = rows_of(p, step, true, first, n);
        tri_tensor *in = tri_to(x, device);
        tri_tensor *loss =
            tri_keep(tri_mse_loss(tri_to(tri_forward(model, in), TRI_CPU(0)), y, NULL));

        tri_backward(loss);
        status = tri_optimizer_step(opt);
        if (status == TRI_OK && n > 0)
            status = tri_item_status(loss, &losses[step]);
        if (status == TRI_OK)
            status = tri_step_end_status();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
    }
    tri_optimizer_destroy(opt);
    return status;
}

static void train_alone(problem *p)
{
    tri_module *net = make_net(p, NULL);

    CHECK_OK(fill_state(net));
    CHECK_OK(train(p, net, TRI_CPU(0), 0, ROWS, p->losses));
    CHECK_OK(take_state(net, p->state, &p->n_state));
    CHECK_OK(tri_step_end_status());
    tri_module_destroy(net);
}

static const char *compare(rank_env *env, const problem *p, tri_group *group, tri_module *model,
                           const double *losses, int n)
{
    double state[STATE], total;
    int n_state;

    RANK_TRY(env, take_state(model, state, &n_state));
    if (n_state != p->n_state)
        return RANK_FAIL(env, "%d numbers instead of %d", n_state, p->n_state);
    for (int i = 0; i < n_state; i++)
        if (!(fabs(state[i] - p->state[i]) <= 1e-9))
            return RANK_FAIL(env, "rank %d of %d: number %d of the state is %.12g, not %.12g",
                             env->rank, env->size, i, state[i], p->state[i]);
    for (int step = 0; step < STEPS; step++) {
        total = n > 0 ? losses[step] * n / ROWS : 0;
        RANK_TRY(env, tri_all_reduce(group, &total, &total, 1, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
        if (!(fabs(total - p->losses[step]) <= 1e-9))
            return RANK_FAIL(env, "the loss of step %d is %.12g, not %.12g", step, total,
                             p->losses[step]);
    }
    return NULL;
}

static const char *train_rank(rank_env *env)
{
    const problem *p = env->arg;
    tri_group *group = NULL, *norms = NULL;
    tri_module *model;
    double losses[STEPS] = {0};
    const char *wrong;
    int first = 0, n = ROWS / env->size;
    tri_device device = p->device + (p->spread ? env->rank : 0);

    for (int r = 0; r < env->rank; r++)
        first += p->rows != NULL ? p->rows[r] : n;
    if (p->rows != NULL)
        n = p->rows[env->rank];
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    if (p->apart)
        RANK_TRY(env, tri_group_split(group, 0, env->rank, NULL, &norms));
    model = make_net(p, p->apart ? norms : group);
    RANK_TRY(env, tri_module_status(model));
    RANK_TRY(env, fill_state(model));
    RANK_TRY(env, tri_module_to(model, device));
    model = tri_ddp(model, &(tri_ddp_options){.group = group});
    RANK_TRY(env, tri_module_status(model));
    RANK_TRY(env, train(p, model, device, first, n, losses));
    RANK_TRY(env, tri_ddp_verify(model, true)); /* running statistics too: the same bits */
    wrong = compare(env, p, group, model, losses, n);
    tri_module_destroy(model);
    RANK_TRY(env, tri_step_end_status());
    tri_group_unref(norms);
    tri_group_unref(group);
    return wrong;
}

static void ranks_train_as_one_process(bool images)
{
    static const int sizes[] = {1, 2, 4, 6, 8};
    static const int uneven[][8] = {{31, 17}, {0, 48}, {1, 40, 0, 7}, {3, 9, 0, 20, 0, 5, 10, 1}};
    static const int n_uneven[] = {2, 2, 4, 8};
    static problem p;

    p = (problem){.images = images};
    train_alone(&p);
    for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++)
        run_threads(sizes[i], NULL, train_rank, &p);
    for (size_t i = 0; i < TRII_COUNT_OF(n_uneven); i++) {
        p.rows = uneven[i];
        run_threads(n_uneven[i], NULL, train_rank, &p);
    }
}

static void an_mlp_trains_as_with_the_whole_batch(void **state)
{
    (void)state;
    ranks_train_as_one_process(false);
}

static void a_converted_cnn_trains_as_with_the_whole_batch(void **state)
{
    (void)state;
    ranks_train_as_one_process(true);
}

static void statistics_may_have_a_group_of_their_own(void **state)
{
    static problem p;

    (void)state;
    p = (problem){.images = true, .apart = true};
    train_alone(&p);
    run_threads(3, NULL, train_rank, &p);
}

static void networks_of_other_devices_share_statistics_too(void **state)
{
    static problem p;

    (void)state;
    guarded_register();
    CHECK_OK(tri_cpu_devices_set(2));
    p = (problem){.images = true};
    train_alone(&p);
    p.device = TRI_CPU(1);
    run_threads(2, NULL, train_rank, &p);
    p.device = TRI_CUDA(0); /* whose memory the host may not touch */
    p.spread = true;
    run_threads(2, NULL, train_rank, &p);
    assert_true(guarded_kernels() > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_mlp_trains_as_with_the_whole_batch),
    cmocka_unit_test(a_converted_cnn_trains_as_with_the_whole_batch),
    cmocka_unit_test(statistics_may_have_a_group_of_their_own),
    cmocka_unit_test(networks_of_other_devices_share_statistics_too),
};

TEST_MAIN(tests)
