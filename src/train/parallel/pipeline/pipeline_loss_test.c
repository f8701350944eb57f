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
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, classes);
    tri_tensor *none = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &ignored);
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &job, &own));
    own.opt = tri_sgd(own.pipe, 0.5, NULL);
    for (int s = 0; s < STEPS; s++) {
        double got = 0;

        RANK_TRY(env, update_and_read(own.opt,
                                      tri_pipeline_step(own.pipe, own.x, y, sum_of_targets, none),
                                      &got));
        if (!(fabs(got - want[s]) <= 1e-9))
            return RANK_FAIL(env, "rank %d, loss %d is %.17g, not %.17g", env->rank, s, got,
                             want[s]);
    }
    pipeline_end(&own);
    tri_tensor_unref(none);
    tri_tensor_unref(y);
    return NULL;
}

/* One process and the whole batch; destroys the network, and what it has got. */
static void train_alone(tri_module *net, tri_tensor *x, tri_tensor *y, int passes, double *losses)
{
    tri_optimizer *opt = tri_sgd(net, 0.5, NULL);

    for (int s = 0; s < STEPS; s++) {
        tri_tensor *loss = NULL;

        for (int pass = 0; pass < passes; pass++) {
            loss = entropy(tri_forward(net, x), y, TRI_REDUCTION_MEAN);
            tri_backward(loss);
        }
        CHECK_OK(tri_optimizer_step(opt));
        losses[s] = tri_item(loss);
        tri_step_end();
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

/* Without batch norm the micro-batches are no matter: the loss is that of the whole batch. */
static void every_target_weighs_alike(void **state)
{
    tri_module *stages[2];
    double want[STEPS];

    (void)state;
    pipeline_stages(stages, 2, false);
    train_alone(tri_nn_sequential_of(2, stages), pipeline_batch(0, ROWS, PIPELINE_WIDTH),
                tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, classes), 1, want);
    run_threads(2, NULL, count_rank, want);
}

/* --- replicas ------------------------------------------------------------- */

/* Two pipelines of two stages: one has the rows before `border`, one those from there on. */
typedef struct replicas_job {
    int border;
    int zero;   /* stage of tri_zero; 0: tri_ddp */
    int passes; /* for one update */
    bool bare;  /* the last stage has no parameters */
    double want[STEPS];
} replicas_job;

static void bare_stages(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++)
        stages[s] = s == n - 1 ? tri_nn_tanh() : tri_nn_linear(PIPELINE_WIDTH, PIPELINE_OUT, NULL);
}

/* This pipeline's rows. */
static const char *replicas_step(rank_env *env, tri_module *model, tri_optimizer *opt, int data,
                                 double *loss_out)
{
    const replicas_job *j = env->arg;
    const int64_t ignored = IGNORED;
    int first = data == 0 ? 0 : j->border, end = data == 0 ? j->border : ROWS;
    tri_tensor *x = pipeline_batch(0, ROWS, PIPELINE_WIDTH);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(end - first), TRI_DTYPE_I64, classes + first);
    tri_tensor *none = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &ignored), *loss = NULL;

    for (int pass = 0; pass < j->passes; pass++) {
        if (pass < j->passes - 1)
            tri_ddp_no_sync_begin(model);
        loss = tri_pipeline_step(model, tri_keep(tri_narrow(x, 0, first, end - first)), y,
                                 sum_of_targets, none);
        if (pass < j->passes - 1)
            tri_ddp_no_sync_end(model);
    }
    RANK_TRY(env, update_and_read(opt, loss, loss_out));
    tri_tensor_unref(none);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static const char *replicas_rank(rank_env *env)
{
    const replicas_job *j = env->arg;
    pipeline_job job = {.options = {.n_microbatches = 3, .count = count_targets},
                        .stages = 2,
                        .build = j->bare ? bare_stages : plain_stages};
    tri_mesh *mesh = NULL;
    tri_module *model;
    tri_optimizer *opt;
    const char *wrong = NULL;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"data", "pipeline"}, &mesh));
    model = pipeline_make(&job, tri_mesh_group(mesh, "pipeline"));
    model = replicate(model, tri_mesh_group(mesh, "data"), j->zero);
    RANK_TRY(env, tri_module_status(model));
    opt = tri_sgd(model, 0.5, NULL);
    for (int s = 0; s < STEPS && wrong == NULL; s++) {
        double got = 0;

        wrong = replicas_step(env, model, opt, tri_group_rank(tri_mesh_group(mesh, "data")), &got);
        if (wrong == NULL && !(fabs(got - j->want[s]) <= 1e-9))
            wrong = RANK_FAIL(env, "rank %d, loss %d is %.17g, not %.17g", env->rank, s, got,
                              j->want[s]);
    }
    if (wrong == NULL && tri_module_parameter_count(model) > 0 &&
        tri_ddp_sample_count(model) != ROWS * j->passes)
        wrong = RANK_FAIL(env, "%lld samples", (long long)tri_ddp_sample_count(model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return wrong;
}

static void count_over_replicas(replicas_job j)
{
    const pipeline_job job = {.stages = 2, .build = j.bare ? bare_stages : plain_stages};
    tri_module *stages[PIPELINE_STAGES], *net;
    tri_tensor *x = pipeline_batch(0, ROWS, PIPELINE_WIDTH);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, classes);

    pipeline_build(&job, stages);
    net = tri_nn_sequential_of(2, stages);
    train_alone(net, x, y, j.passes, j.want);
    run_threads(4, &(tri_group_options){.engine = "shm"}, replicas_rank, &j);
}

/* The first one has one target, as the second has two, or none. */
static void replicas_count_together(void **state)
{
    (void)state;
    count_over_replicas((replicas_job){.border = 2, .passes = 1});
    count_over_replicas((replicas_job){.border = 1, .passes = 2});
    count_over_replicas((replicas_job){.border = 1, .passes = 1, .bare = true});
    for (int zero = 1; zero <= 3; zero++)
        count_over_replicas((replicas_job){.border = 5, .passes = 1, .zero = zero});
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
    tri_group_unref(group);
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_target_weighs_alike),
    cmocka_unit_test(replicas_count_together),
    cmocka_unit_test(counts_are_checked),
};

TEST_MAIN(tests)
