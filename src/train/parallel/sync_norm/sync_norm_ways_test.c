/* sync_norm_ways_test.c - batch norm by the batches of all ranks in all the ways that a step may
 * go: differentiated twice, in 16 bits, recomputed, without synchronisation, in evaluation; and
 * what is refused. */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "testing/ranks.h"

#define ROWS 12
#define C 3
#define HW 4

static double number(int64_t i)
{
    return sin((double)(i * 7 + 1)) * 2;
}

static tri_tensor *rows(int first, int n, tri_dtype dtype)
{
    double wide[ROWS * C * HW];
    float narrow[ROWS * C * HW];

    for (int i = 0; i < n * C * HW; i++) {
        wide[i] = number((int64_t)first * C * HW + i);
        narrow[i] = (float)wide[i];
    }
    return tri_tensor_from(TRI_SHAPE(n, C, 2, 2), dtype,
                           dtype == TRI_DTYPE_F64 ? (void *)wide : (void *)narrow);
}

static const char *join(rank_env *env, tri_group **group)
{
    tri_group_options options = {.timeout_ms = 20000};

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &options, group));
    return NULL;
}

static tri_module *layer_of(tri_group *group, int64_t channels, tri_dtype dtype)
{
    const tri_nn_sync_batch_norm_options opt = {.group = group};
    tri_module *layer;

    tri_set_default_dtype(dtype);
    layer = tri_nn_sync_batch_norm(channels, &opt);
    tri_set_default_dtype(TRI_DTYPE_F32);
    return layer;
}

/* --- second gradients ----------------------------------------------------- */

/* Of the penalty: the squares of the first gradients of x and of the weight, all together, by x. */
static tri_status penalty_gradient(tri_module *layer, tri_tensor *x, double *out, size_t bytes)
{
    tri_tensor *inputs[2] = {x, tri_module_find(layer, "weight")}, *first[2], *second, *y, *loss;
    tri_status status;

    tri_requires_grad(x, true);
    y = tri_forward(layer, x);
    loss = tri_sum(tri_mul(tri_square(y), tri_add_scalar(y, 1.5)), NULL, 0, false);
    status =
        tri_gradients(&loss, 1, inputs, 2, &(tri_gradients_options){.create_graph = true}, first);
    if (status != TRI_OK)
        return status;
    loss = tri_sum(tri_square(first[0]), NULL, 0, false);
    status = tri_gradients(&loss, 1, inputs, 1, NULL, &second);
    if (status == TRI_OK)
        status = tri_tensor_copy_out(second, out, bytes);
    return status != TRI_OK ? status : tri_step_end_status();
}

static const char *second_rank(rank_env *env)
{
    const double *want = env->arg;
    int n = ROWS / env->size;
    double got[ROWS * C * HW];
    tri_group *group = NULL;
    tri_tensor *x = rows(env->rank * n, n, TRI_DTYPE_F64);
    tri_module *layer;
    const char *wrong = join(env, &group);

    if (wrong != NULL)
        return wrong;
    layer = layer_of(group, C, TRI_DTYPE_F64);
    RANK_TRY(env, penalty_gradient(layer, x, got, (size_t)(n * C * HW) * sizeof(double)));
    for (int i = 0; i < n * C * HW; i++)
        if (!(fabs(got[i] - want[env->rank * n * C * HW + i]) < 1e-9))
            return RANK_FAIL(env, "rank %d of %d: second gradient %d is %.12g, not %.12g",
                             env->rank, env->size, i, got[i], want[env->rank * n * C * HW + i]);
    tri_module_destroy(layer);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void second_gradients_are_those_of_the_whole_batch(void **state)
{
    static double want[ROWS * C * HW];
    tri_tensor *x = rows(0, ROWS, TRI_DTYPE_F64);
    tri_module *layer = layer_of(NULL, C, TRI_DTYPE_F64);

    (void)state;
    CHECK_OK(penalty_gradient(layer, x, want, sizeof(want)));
    tri_module_destroy(layer);
    tri_tensor_unref(x);
    for (int size = 2; size <= 4; size++)
        run_threads(size, NULL, second_rank, want);
}

/* --- 16 bits, recomputation, no_sync -------------------------------------- */

typedef struct way {
    bool bf16, recompute, no_sync, destroy;
    const float *want; /* dx of each part, and the gradient of the weight */
    double tolerance;
} way;

#define RESULTS (ROWS * C * HW + C)

/* The gradients of the mean over all samples' losses, in one backward pass or, of two halves of the
 * batch, in two, of which the first communicates no gradients. Each half is shared by all ranks. */
static const char *train_way(rank_env *env, tri_group *group, const way *w, float *out)
{
    int parts = w->no_sync ? 2 : 1, m = ROWS / parts / env->size;
    bool ddp = group != NULL && !w->destroy;
    tri_module *model = tri_nn_sequential(layer_of(group, C, TRI_DTYPE_F32), tri_nn_relu());

    tri_module_set_recompute(model, w->recompute);
    if (ddp)
        model = tri_ddp(model, &(tri_ddp_options){.group = group});
    RANK_TRY(env, tri_module_status(model));
    for (int part = 0; part < parts; part++) {
        tri_tensor *x = rows(part * (ROWS / parts) + env->rank * m, m, TRI_DTYPE_F32), *y, *loss;
        bool silent = ddp && part + 1 < parts;

        tri_requires_grad(x, true);
        if (silent)
            tri_ddp_no_sync_begin(model);
        if (w->bf16)
            tri_autocast_begin(TRI_DTYPE_BF16);
        y = tri_forward(model, w->bf16 ? tri_cast(x, TRI_DTYPE_BF16) : x);
        if (w->bf16)
            tri_autocast_end();
        y = tri_sum(tri_cast(y, TRI_DTYPE_F32), TRI_SHAPE(1, 2, 3), false);
        loss = tri_mean(tri_mul(y, tri_add_scalar(y, -1)), NULL, 0, false);
        if (w->destroy)
            tri_module_destroy(model); /* what was recorded goes on */
        tri_backward(tri_mul_scalar(loss, 1.0 / parts));
        if (silent)
            tri_ddp_no_sync_end(model);
        RANK_TRY(env, tri_tensor_copy_out(tri_grad(x), out + (size_t)part * (size_t)(m * C * HW),
                                          (size_t)(m * C * HW) * sizeof(float)));
        RANK_TRY(env, tri_step_end_status());
        tri_tensor_unref(x);
    }
    if (w->destroy)
        return NULL;
    RANK_TRY(env, tri_tensor_copy_out(tri_grad(tri_module_find(model, "0.weight")),
                                      out + parts * m * C * HW, C * sizeof(float)));
    tri_module_destroy(model);
    return NULL;
}

static const char *way_rank(rank_env *env)
{
    const way *w = env->arg;
    int parts = w->no_sync ? 2 : 1, n = ROWS / parts / env->size * C * HW; /* of a part */
    float got[RESULTS] = {0};
    tri_group *group = NULL;
    const char *wrong = join(env, &group);

    if (wrong == NULL)
        wrong = train_way(env, group, w, got);
    tri_group_unref(group);
    for (int i = 0; i < parts * n + (w->destroy ? 0 : C) && wrong == NULL; i++) {
        int at = i < parts * n ? i / n * (ROWS / parts) * C * HW + env->rank * n + i % n
                               : ROWS * C * HW + i - parts * n;
        /* what is no parameter has the gradient of the sum of the ranks' losses */
        double scale = i < parts * n ? 1.0 / env->size : 1.0;

        if (!(fabs((double)got[i] * scale - (double)w->want[at]) <= w->tolerance))
            return RANK_FAIL(env, "rank %d of %d: number %d is %g, not %g", env->rank, env->size, i,
                             (double)got[i] * scale, (double)w->want[at]);
    }
    return wrong;
}

static void check_way(way w)
{
    static float want[RESULTS];
    rank_env alone = {.size = 1};
    way plain = w;
    const char *wrong;

    plain.recompute = plain.destroy = false;
    wrong = train_way(&alone, NULL, &plain, want);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    w.want = want;
    for (int size = 2; size <= 3; size++)
        run_threads(size, NULL, way_rank, &w);
}

static void f32_gradients_are_those_of_the_whole_batch(void **state)
{
    (void)state;
    check_way((way){.tolerance = 1e-4});
}

static void bf16_gradients_are_those_of_the_whole_batch(void **state)
{
    (void)state;
    check_way((way){.bf16 = true, .tolerance = 0.05});
}

static void gradients_with_recomputation_are_those_of_the_whole_batch(void **state)
{
    (void)state;
    check_way((way){.recompute = true, .tolerance = 1e-4});
}

static void gradients_of_a_destroyed_module_are_those_of_the_whole_batch(void **state)
{
    (void)state;
    check_way((way){.destroy = true, .tolerance = 1e-4});
}

static void gradients_that_add_up_are_those_of_the_whole_batch(void **state)
{
    (void)state;
    check_way((way){.no_sync = true, .tolerance = 1e-4});
}

/* --- running statistics --------------------------------------------------- */

/* After three batches they are the mean of the three. */
static tri_status run_batches(tri_module *layer, int rank, int size, double *mean, double *var)
{
    for (int batch = 0; batch < 3; batch++) {
        int n = ROWS / 3 / size;
        tri_tensor *x = rows(batch * (ROWS / 3) + rank * n, n, TRI_DTYPE_F64);

        (void)tri_forward(layer, x);
        tri_tensor_unref(x);
    }
    if (tri_tensor_copy_out(tri_module_find(layer, "running_mean"), mean, C * sizeof(double)) < 0 ||
        tri_tensor_copy_out(tri_module_find(layer, "running_var"), var, C * sizeof(double)) < 0)
        return tri_step_end_status();
    return tri_step_end_status();
}

static const char *cumulative_rank(rank_env *env)
{
    const double(*want)[C] = env->arg;
    double got[2][C];
    tri_group *group = NULL;
    tri_module *layer;
    const char *wrong = join(env, &group);

    if (wrong != NULL)
        return wrong;
    tri_set_default_dtype(TRI_DTYPE_F64);
    layer = tri_nn_sync_batch_norm(
        C, &(tri_nn_sync_batch_norm_options){.cumulative = true, .group = group});
    RANK_TRY(env, run_batches(layer, env->rank, env->size, got[0], got[1]));
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < C; c++)
            if (!(fabs(got[k][c] - want[k][c]) < 1e-12))
                return RANK_FAIL(env, "statistic %d of channel %d is %g, not %g", k, c, got[k][c],
                                 want[k][c]);
    tri_module_destroy(layer);
    tri_group_unref(group);
    return NULL;
}

static void cumulative_statistics_are_the_means_of_all_batches(void **state)
{
    static double want[2][C], got[2][C];
    tri_module *layer;

    (void)state;
    for (int batch = 0; batch < 3; batch++) {
        for (int c = 0; c < C; c++) {
            double sum = 0, squares = 0, count = ROWS / 3 * HW;

            for (int pass = 0; pass < 2; pass++)
                for (int r = 0; r < ROWS / 3; r++)
                    for (int i = 0; i < HW; i++) {
                        double v = number(((batch * (ROWS / 3) + r) * C + c) * HW + i);

                        sum += pass == 0 ? v : 0;
                        squares += pass == 1 ? (v - sum / count) * (v - sum / count) : 0;
                    }
            want[0][c] += sum / count / 3;
            want[1][c] += squares / (count - 1) / 3;
        }
    }
    tri_set_default_dtype(TRI_DTYPE_F64);
    layer = tri_nn_batch_norm2d(C, &(tri_nn_batch_norm2d_options){.cumulative = true});
    tri_set_default_dtype(TRI_DTYPE_F32);
    CHECK_OK(run_batches(layer, 0, 1, got[0], got[1]));
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < C; c++)
            assert_true(fabs(got[k][c] - want[k][c]) < 1e-12);
    tri_module_destroy(layer);
    layer = tri_nn_sync_batch_norm(
        2, &(tri_nn_sync_batch_norm_options){.cumulative = true, .momentum = TRI_SET(0.5)});
    CHECK_FAILS(tri_module_status(layer), TRI_ERR_INVALID_ARG, "cumulative");
    tri_module_destroy(layer);
    run_threads(2, NULL, cumulative_rank, want);
    assert_int_equal(setenv("TRI_EAGER", "1", 1), 0); /* of the contexts of new threads */
    run_threads(2, NULL, cumulative_rank, want);
    assert_int_equal(unsetenv("TRI_EAGER"), 0);
}

/* --- evaluation ----------------------------------------------------------- */

/* Rank 0 alone evaluates, while the other has left. */
static const char *evaluating_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_module *sync, *plain = tri_nn_batch_norm2d(C, NULL);
    tri_tensor *x = rows(env->rank, 4, TRI_DTYPE_F32);
    float y[2][4 * C * HW];
    const char *wrong = join(env, &group);

    if (wrong != NULL)
        return wrong;
    sync = layer_of(group, C, TRI_DTYPE_F32);
    RANK_TRY(env, tri_tensor_copy_out(tri_forward(sync, x), y[0], sizeof(y[0])));
    RANK_TRY(env, tri_step_end_status());
    if (env->rank == 0) {
        for (int64_t k = 0; k < tri_module_state_count(sync); k++) {
            float data[C];
            tri_state_entry entry = tri_module_state(sync, k);

            if (tri_tensor_dtype(entry.tensor) != TRI_DTYPE_F32)
                continue;
            RANK_TRY(env, tri_tensor_copy_out(entry.tensor, data, sizeof(data)));
            RANK_TRY(env,
                     tri_tensor_copy_in(tri_module_find(plain, entry.name), data, sizeof(data)));
        }
        tri_module_train(sync, false);
        tri_module_train(plain, false);
        RANK_TRY(env, tri_tensor_copy_out(tri_forward(sync, x), y[0], sizeof(y[0])));
        RANK_TRY(env, tri_tensor_copy_out(tri_forward(plain, x), y[1], sizeof(y[1])));
        RANK_TRY(env, tri_step_end_status());
        if (memcmp(y[0], y[1], sizeof(y[0])) != 0)
            return RANK_FAIL(env, "evaluation is not that of batch norm");
    }
    tri_module_destroy(sync);
    tri_module_destroy(plain);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void evaluation_is_batch_norm_and_communicates_nothing(void **state)
{
    (void)state;
    run_threads(2, NULL, evaluating_rank, NULL);
}

/* --- conversion ----------------------------------------------------------- */

static void count_calls(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                        void *arg)
{
    (void)self;
    (void)in;
    (void)n_in;
    (void)out;
    (void)n_out;
    ++*(int *)arg;
}

static void conversion_keeps_modules_and_what_they_have(void **state)
{
    tri_module *norm =
        tri_nn_batch_norm2d(C, &(tri_nn_batch_norm2d_options){.momentum = TRI_SET(0.25)});
    tri_module *bare = tri_nn_batch_norm1d(
        C, &(tri_nn_batch_norm2d_options){.no_affine = true, .no_track_running_stats = true});
    tri_module *net = tri_nn_sequential(norm, tri_nn_sequential(bare, tri_nn_relu()));
    tri_tensor *weight = tri_module_find(net, "0.weight"), *x = rows(0, 4, TRI_DTYPE_F32);
    int64_t n = tri_module_state_count(net);
    int calls = 0;
    tri_group *group;
    uint64_t before, after;

    (void)state;
    CHECK_OK(tri_group_create(NULL, 0, 1, NULL, &group));
    CHECK_OK(tri_module_add_forward_hook(norm, count_calls, &calls, NULL));
    tri_module_train(bare, false);
    CHECK_OK(tri_module_hash(net, &before));
    assert_int_equal(tri_convert_sync_batch_norm(net, group), 2);
    assert_int_equal(tri_convert_sync_batch_norm(net, NULL), 2); /* another group */
    assert_int_equal(tri_convert_sync_batch_norm(tri_module_submodule(net, "1"), group), 1);
    tri_group_unref(group);
    CHECK_OK(tri_module_hash(net, &after));
    assert_true(before == after);
    assert_ptr_equal(tri_module_submodule(net, "0"), norm);
    assert_string_equal(tri_module_type(norm), "SyncBatchNorm");
    assert_ptr_equal(tri_module_find(net, "0.weight"), weight);
    assert_int_equal(tri_module_state_count(net), n);
    assert_true(tri_module_is_training(norm));
    assert_false(tri_module_is_training(bare));
    CHECK_OK(tri_tensor_status(tri_forward(net, x)));
    assert_int_equal(calls, 1);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(net);
}

static void conversion_of_nothing_converts_nothing(void **state)
{
    tri_module *failed = tri_nn_linear(0, 1, NULL), *net = tri_nn_relu();

    (void)state;
    assert_int_equal(tri_convert_sync_batch_norm(failed, NULL), 0);
    assert_int_equal(tri_convert_sync_batch_norm(net, NULL), 0);
    assert_int_equal(tri_convert_sync_batch_norm(NULL, NULL), 0);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "tri_convert_sync_batch_norm");
    tri_module_destroy(failed);
    tri_module_destroy(net);
}

/* --- what is refused ------------------------------------------------------ */

static const char *other_channels_rank(rank_env *env)
{
    tri_group *group = NULL;
    int64_t channels = env->rank == 1 ? 5 : 8;
    tri_module *layer;
    float data[2 * 8] = {0};
    tri_tensor *x;
    tri_status status;
    const char *wrong = join(env, &group);

    if (wrong != NULL)
        return wrong;
    layer = layer_of(group, channels, TRI_DTYPE_F32);
    x = tri_tensor_from(TRI_SHAPE(2, channels), TRI_DTYPE_F32, data);
    status =
        tri_tensor_copy_out(tri_forward(layer, x), data, (size_t)(2 * channels) * sizeof(float));
    if (status == TRI_OK || strstr(tri_last_error(), "rank") == NULL ||
        strstr(tri_last_error(), "SyncBatchNorm") == NULL)
        wrong = RANK_FAIL(env, "%s: %s", tri_status_name(status), tri_last_error());
    tri_step_end();
    tri_module_destroy(layer);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return wrong;
}

static void another_number_of_channels_is_named(void **state)
{
    (void)state;
    run_threads(2, NULL, other_channels_rank, NULL);
}

/* One row on one rank, none on the other; then one on each. */
static const char *one_value_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_module *layer;
    float data[2] = {1, 2};
    const char *wrong = join(env, &group);

    if (wrong != NULL)
        return wrong;
    layer = layer_of(group, 2, TRI_DTYPE_F32);
    for (int round = 0; round < 2; round++) {
        tri_tensor *x =
            tri_tensor_from(TRI_SHAPE(round == 0 ? 1 : 1 - env->rank, 2), TRI_DTYPE_F32, data);

        (void)tri_keep(tri_forward(layer, x));
        if (round == 0)
            RANK_TRY(env, tri_run());
        else
            RANK_FAILS(env, tri_run(), TRI_ERR_INVALID_ARG, "more than one value per channel");
        tri_step_end();
        tri_tensor_unref(x);
    }
    tri_module_destroy(layer);
    tri_group_unref(group);
    return NULL;
}

static void one_value_on_all_ranks_together_has_no_variance(void **state)
{
    (void)state;
    run_threads(2, NULL, one_value_rank, NULL);
}

/* Rank 1 makes a mistake after the layer, while the other waits for its statistics. */
static const char *mistaken_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = rows(0, 4, TRI_DTYPE_F32), *target;
    tri_module *model;
    const char *wrong = join(env, &group);

    if (wrong != NULL)
        return wrong;
    model = tri_nn_sequential(layer_of(group, C, TRI_DTYPE_F32), tri_nn_flatten(1));
    if (env->arg != NULL)
        model = tri_ddp(model, &(tri_ddp_options){.group = group});
    RANK_TRY(env, tri_module_status(model));
    target = tri_tensor_create(TRI_SHAPE(4, env->rank == 1 ? 5 : C * HW), TRI_DTYPE_F32);
    tri_backward(tri_mse_loss(tri_forward(model, x), target, NULL));
    if (env->rank == 1)
        RANK_FAILS(env, tri_run(), TRI_ERR_INVALID_ARG, "tri_mse_loss");
    else
        RANK_FAILS(env, tri_run(), TRI_ERR_ABORTED, "rank 1 aborted the group");
    tri_step_end();
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(target);
    tri_group_unref(group);
    return NULL;
}

static void a_rank_that_fails_tells_those_who_wait_for_its_statistics(void **state)
{
    (void)state;
    run_threads(2, NULL, mistaken_rank, NULL);
    run_threads(2, NULL, mistaken_rank, &(bool){true}); /* under tri_ddp */
}

static void inputs_of_another_shape_are_refused(void **state)
{
    tri_module *layer = tri_nn_sync_batch_norm(3, NULL);
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_F32, (float[3]){0});

    (void)state;
    CHECK_FAILS(tri_tensor_status(tri_forward(layer, x)), TRI_ERR_INVALID_ARG,
                "SyncBatchNorm takes x [N, 3, ..]; this one has 1 dimensions");
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(layer);
}

static const char *replicas_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = rows(0, 4, TRI_DTYPE_F32);
    tri_module *model;
    const char *wrong = join(env, &group);

    if (wrong != NULL)
        return wrong;
    model = tri_data_parallel(tri_nn_sequential(layer_of(group, C, TRI_DTYPE_F32)), NULL);
    RANK_FAILS(env, tri_tensor_status(tri_forward(model, x)), TRI_ERR_UNSUPPORTED,
               "under tri_data_parallel use batch norm");
    tri_step_end();
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void replicas_do_not_share_statistics(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    run_threads(2, NULL, replicas_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(second_gradients_are_those_of_the_whole_batch),
    cmocka_unit_test(f32_gradients_are_those_of_the_whole_batch),
    cmocka_unit_test(bf16_gradients_are_those_of_the_whole_batch),
    cmocka_unit_test(gradients_with_recomputation_are_those_of_the_whole_batch),
    cmocka_unit_test(gradients_of_a_destroyed_module_are_those_of_the_whole_batch),
    cmocka_unit_test(gradients_that_add_up_are_those_of_the_whole_batch),
    cmocka_unit_test(cumulative_statistics_are_the_means_of_all_batches),
    cmocka_unit_test(evaluation_is_batch_norm_and_communicates_nothing),
    cmocka_unit_test(conversion_keeps_modules_and_what_they_have),
    cmocka_unit_test(conversion_of_nothing_converts_nothing),
    cmocka_unit_test(another_number_of_channels_is_named),
    cmocka_unit_test(one_value_on_all_ranks_together_has_no_variance),
    cmocka_unit_test(a_rank_that_fails_tells_those_who_wait_for_its_statistics),
    cmocka_unit_test(inputs_of_another_shape_are_refused),
    cmocka_unit_test(replicas_do_not_share_statistics),
};

TEST_MAIN(tests)
