/* pipeline_loss_test.c - losses that are means over something else than rows. */
#include "testing/pipeline_ranks.h"

#define ROWS 8
#define STEPS 3
#define IGNORED (-1)

/* Micro-batches of 3, 3 and 2 rows have 1, 0 and 2 targets. */
static const int64_t classes[ROWS] = {IGNORED, 2, IGNORED, IGNORED, IGNORED, IGNORED, 0, 1};

static tri_tensor *entropy(tri_tensor *output, tri_tensor *target, tri_reduction reduction)
{
    return tri_cross_entropy(
        output, target,
        &(tri_cross_entropy_options){.ignore_index = TRI_SET(IGNORED), .reduction = reduction});
}

static tri_tensor *sum_of_targets(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return entropy(output, target, TRI_REDUCTION_SUM);
}

/* arg: what is ignored. */
static tri_tensor *count_targets(tri_tensor *target, void *arg)
{
    return tri_sum(tri_cast(tri_ne(target, arg), TRI_DTYPE_F32), NULL, 0, false);
}

static tri_tensor *count_nothing(tri_tensor *target, void *arg)
{
    (void)target, (void)arg;
    return NULL;
}

static tri_tensor *count_rows(tri_tensor *target, void *arg)
{
    (void)arg;
    return target;
}

static void plain_stages(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++)
        stages[s] = tri_nn_sequential(
            tri_nn_linear(PIPELINE_WIDTH, s == n - 1 ? PIPELINE_OUT : PIPELINE_WIDTH, NULL),
            tri_nn_tanh());
}

static const char *count_rank(rank_env *env)
{
    static const pipeline_job job = {.options = {.n_microbatches = 3, .count = count_targets},
                                     .stages = 2,
                                     .rows = ROWS,
                                     .build = plain_stages};
    const int64_t ignored = IGNORED;
    const double *want = env->arg;
    tri_tensor *x = pipeline_batch(0, ROWS, PIPELINE_WIDTH);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, classes);
    tri_tensor *none = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &ignored);
    tri_group *group = NULL;
    tri_module *pipe;
    tri_optimizer *opt;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipe = pipeline_make(&job, group);
    opt = tri_sgd(pipe, 0.5, NULL);
    for (int s = 0; s < STEPS; s++) {
        tri_tensor *loss = tri_pipeline_step(pipe, x, y, sum_of_targets, none);
        double got = 0;

        RANK_TRY(env, tri_optimizer_step(opt));
        RANK_TRY(env, tri_item_status(loss, &got));
        RANK_TRY(env, tri_step_end_status());
        if (!(fabs(got - want[s]) <= 1e-9))
            return RANK_FAIL(env, "rank %d, loss %d is %.17g, not %.17g", env->rank, s, got,
                             want[s]);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_group_unref(group);
    tri_tensor_unref(none);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

/* Without batch norm the micro-batches are no matter: the loss is that of the whole batch. */
static void every_target_weighs_alike(void **state)
{
    tri_tensor *x = pipeline_batch(0, ROWS, PIPELINE_WIDTH);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, classes);
    tri_module *stages[2], *net;
    tri_optimizer *opt;
    double want[STEPS];

    (void)state;
    pipeline_stages(stages, 2, false);
    net = tri_nn_sequential_of(2, stages);
    opt = tri_sgd(net, 0.5, NULL);
    for (int s = 0; s < STEPS; s++) {
        tri_tensor *loss = entropy(tri_forward(net, x), y, TRI_REDUCTION_MEAN);

        tri_backward(loss);
        CHECK_OK(tri_optimizer_step(opt));
        want[s] = tri_item(loss);
        tri_step_end();
    }
    run_threads(2, NULL, count_rank, want);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void refuse(tri_group *group, tri_pipeline_count_fn count, const char *part)
{
    tri_module *pipe =
        tri_pipeline((tri_module *[]){tri_nn_linear(PIPELINE_WIDTH, PIPELINE_OUT, NULL)}, 1,
                     &(tri_pipeline_options){.group = group, .count = count});
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, PIPELINE_WIDTH), TRI_DTYPE_F32);
    tri_tensor *y = tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_I64);

    (void)tri_pipeline_step(pipe, x, y, sum_of_targets, NULL);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, part);
    tri_step_end();
    tri_module_destroy(pipe);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

/* Each replica would have a count of its own. */
static void refuse_replicas(tri_group *group)
{
    tri_module *pipe =
        tri_pipeline((tri_module *[]){tri_nn_linear(PIPELINE_WIDTH, PIPELINE_OUT, NULL)}, 1,
                     &(tri_pipeline_options){.group = group, .count = count_targets});
    tri_module *model = tri_ddp(pipe, &(tri_ddp_options){.group = group});
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, PIPELINE_WIDTH), TRI_DTYPE_F32);

    (void)tri_pipeline_step(model, x, x, sum_of_targets, NULL);
    CHECK_FAILS(
        tri_run(), TRI_ERR_UNSUPPORTED,
        "options.count is of one pipeline's batch, and tri_ddp weighs its pipelines by rows");
    tri_step_end();
    tri_module_destroy(model);
    tri_tensor_unref(x);
}

static void counts_are_checked(void **state)
{
    tri_group *group = NULL;
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
    refuse(group, count_nothing, "the count function returned NULL");
    refuse(group, count_rows,
           "the count function returned 2 elements: it returns how many targets the loss is over");
    refuse_replicas(group);
    tri_group_unref(group);
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_target_weighs_alike),
    cmocka_unit_test(counts_are_checked),
};

TEST_MAIN(tests)
