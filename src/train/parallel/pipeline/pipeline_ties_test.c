/* pipeline_ties_test.c - stages of several ranks that share a parameter. */
#include "testing/pipeline_shared.h"

static void compare(tri_pipeline_schedule schedule, int ranks, int stages, int m, int rows)
{
    pipeline_result *want = pipeline_result_new();
    pipeline_job job = {.options = {.n_microbatches = m, .schedule = schedule},
                        .stages = stages,
                        .rows = rows,
                        .steps = 4,
                        .build = pipeline_share};

    pipeline_one_process(&job, want);
    job.want = want;
    run_threads(ranks, &(tri_group_options){.engine = "shm"}, pipeline_rank, &job);
    free(want);
}

static void copies_train_as_one_parameter(void **state)
{
    (void)state;
    compare(TRI_PIPELINE_1F1B, 2, 2, 3, 7);
    compare(TRI_PIPELINE_GPIPE, 4, 4, 4, 8);
    compare(TRI_PIPELINE_INTERLEAVED, 2, 6, 4, 8);
    compare(TRI_PIPELINE_ZBV, 2, 4, 4, 8); /* the ends are on one rank */
    compare(TRI_PIPELINE_ZERO_BUBBLE, 3, 3, 4, 8);
}

/* --- norms, passes and values --------------------------------------------- */

typedef struct shared_want {
    double norm[2];
    double loss[2];
} shared_want;

/* Two passes an update, the second with what the first has left. */
static void one_process(const pipeline_job *job, shared_want *want)
{
    tri_tensor *x = pipeline_batch(0, 8, PIPELINE_WIDTH), *y = pipeline_batch(0, 8, PIPELINE_OUT);
    tri_module *stages[PIPELINE_STAGES], *net;
    tri_optimizer *opt;

    pipeline_build(job, stages);
    net = tri_nn_sequential_of(job->stages, stages);
    opt = tri_sgd(net, 0.1, NULL);
    for (int s = 0; s < 2; s++) {
        tri_tensor *loss = NULL, *norm;

        for (int i = 0; i < 2; i++) {
            loss = pipeline_mse(tri_forward(net, x), y, NULL);
            tri_backward(loss);
        }
        loss = tri_keep(loss);
        norm = tri_clip_grad_norm(opt, 0.5);
        CHECK_OK(tri_optimizer_step(opt));
        want->norm[s] = tri_item(norm);
        want->loss[s] = tri_item(loss);
        tri_step_end();
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

typedef struct shared_job {
    pipeline_job job;
    shared_want want;
} shared_job;

static const char *clipped_rank(rank_env *env)
{
    const shared_job *shared = env->arg;
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &shared->job, &own));
    RANK_TRY(env, tri_module_status(own.pipe));
    own.opt = tri_sgd(own.pipe, 0.1, NULL);
    for (int s = 0; s < 2; s++) {
        tri_tensor *loss = NULL, *norm;
        double got_loss = 0, got_norm = 0;

        for (int i = 0; i < 2; i++)
            loss = tri_pipeline_step(own.pipe, own.x, own.y, pipeline_mse, NULL);
        norm = tri_clip_grad_norm(own.opt, 0.5);
        RANK_TRY(env, tri_optimizer_step(own.opt));
        RANK_TRY(env, tri_item_status(norm, &got_norm));
        RANK_TRY(env, tri_item_status(loss, &got_loss));
        RANK_TRY(env, tri_step_end_status());
        if (!(fabs(got_norm - shared->want.norm[s]) <= 1e-9) ||
            !(fabs(got_loss - shared->want.loss[s]) <= 1e-9))
            return RANK_FAIL(env, "rank %d, step %d: norm %.17g loss %.17g, not %.17g, %.17g",
                             env->rank, s, got_norm, got_loss, shared->want.norm[s],
                             shared->want.loss[s]);
    }
    pipeline_end(&own);
    return NULL;
}

static void copies_count_once_in_the_norm_and_add_up_once(void **state)
{
    shared_job shared = {
        .job = {.options = {.n_microbatches = 1}, .stages = 3, .rows = 8, .build = pipeline_share}};

    (void)state;
    one_process(&shared.job, &shared.want);
    run_threads(3, NULL, clipped_rank, &shared);
}

/* Ranks that have loaded other files, say. */
static const char *begin_differently(rank_env *env)
{
    tri_module *stages[2] = {tri_nn_sequential_of(0, NULL), tri_nn_sequential_of(0, NULL)};
    const float value = (float)(env->rank + 3);
    tri_tensor *weight = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F32, &value);
    tri_group *group = NULL;
    tri_module *pipe;
    uint64_t hash;
    float got = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    tri_module_add_parameter(stages[0], "weight", tri_tensor_ref(weight));
    tri_module_add_parameter(stages[1], "head", tri_tensor_ref(weight));
    pipe = tri_pipeline(stages, 2, &(tri_pipeline_options){.group = group});
    RANK_TRY(env, tri_module_status(pipe));
    RANK_TRY(env, tri_tensor_copy_out(weight, &got, sizeof(got)));
    if (got != 3)
        return RANK_FAIL(env, "rank %d begins with %g", env->rank, (double)got);
    RANK_TRY(env, tri_module_hash(pipe, &hash));
    got = 4; /* as another rate of the optimizer would have it */
    if (env->rank == 1)
        RANK_TRY(env, tri_tensor_copy_in(weight, &got, sizeof(got)));
    RANK_FAILS(env, tri_module_hash(pipe, &hash), TRI_ERR_MISMATCH,
               "1.head is 0.weight of rank 0, a parameter of both stages");
    tri_module_destroy(pipe);
    tri_tensor_unref(weight);
    tri_group_unref(group);
    return NULL;
}

static void copies_begin_with_one_value_and_keep_it(void **state)
{
    (void)state;
    run_threads(2, NULL, begin_differently, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies_train_as_one_parameter),
    cmocka_unit_test(copies_count_once_in_the_norm_and_add_up_once),
    cmocka_unit_test(copies_begin_with_one_value_and_keep_it),
};

TEST_MAIN(tests)
