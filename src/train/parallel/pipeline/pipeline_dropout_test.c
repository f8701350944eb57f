/* pipeline_dropout_test.c - stages that draw random numbers draw those of one process. */
#include "testing/pipeline_ranks.h"

/* Dropout in some stages, twice in one of them, and of an attention's weights. */
static void stages_with_dropout(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++) {
        int out = s == n - 1 ? PIPELINE_OUT : PIPELINE_WIDTH;

        stages[s] = tri_nn_sequential(tri_nn_linear(PIPELINE_WIDTH, out, NULL), tri_nn_tanh());
        if (s % 3 == 0)
            continue;
        stages[s] = tri_nn_sequential(tri_nn_dropout(0.3), stages[s]);
        if (s % 3 == 2)
            stages[s] = tri_nn_sequential(stages[s], tri_nn_dropout(0.2));
    }
}

/* Computed again, they draw the same. */
static void stages_computed_again(tri_module **stages, int n)
{
    stages_with_dropout(stages, n);
    for (int s = 0; s < n; s++)
        tri_module_set_recompute(stages[s], true);
}

static void compare(tri_pipeline_schedule schedule, int ranks, int stages, int m, int rows,
                    void (*build)(tri_module **stages, int n))
{
    pipeline_result *want = pipeline_result_new();
    pipeline_job job = {.options = {.n_microbatches = m, .schedule = schedule},
                        .stages = stages,
                        .rows = rows,
                        .steps = 3,
                        .build = build};

    tri_manual_seed(5); /* also of threads that begin now */
    pipeline_one_process(&job, want);
    job.want = want;
    run_threads(ranks, &(tri_group_options){.engine = "shm"}, pipeline_rank, &job);
    free(want);
}

static void masks_are_those_of_one_process(void **state)
{
    (void)state;
    compare(TRI_PIPELINE_1F1B, 2, 2, 3, 7, stages_with_dropout);
    compare(TRI_PIPELINE_GPIPE, 4, 4, 4, 8, stages_with_dropout);
    compare(TRI_PIPELINE_INTERLEAVED, 2, 6, 4, 8, stages_with_dropout);
    compare(TRI_PIPELINE_ZBV, 2, 4, 4, 8, stages_with_dropout);
    compare(TRI_PIPELINE_1F1B, 3, 3, 8, 5, stages_with_dropout); /* five micro-batches */
}

static void what_is_computed_again_has_the_same_masks(void **state)
{
    (void)state;
    compare(TRI_PIPELINE_1F1B, 3, 3, 4, 8, stages_computed_again);
}

/* --- of stages whose layers are cut --------------------------------------- */

/* What is cut crosses the borders before dropout: 7 features, then 8, of both of which the first of
 * two ranks has 4. */
static void stages_that_give_parts(tri_module **stages, int n)
{
    (void)n;
    stages[0] = tri_nn_sequential(tri_nn_linear(PIPELINE_WIDTH, 7, NULL), tri_nn_tanh());
    stages[1] = tri_nn_sequential(tri_nn_dropout(0.4), tri_nn_linear(7, PIPELINE_WIDTH, NULL));
    stages[2] = tri_nn_sequential(tri_nn_linear(PIPELINE_WIDTH, 8, NULL), tri_nn_tanh());
    stages[3] = tri_nn_sequential(tri_nn_dropout(0.4), tri_nn_linear(8, PIPELINE_OUT, NULL));
}

static const char *cut_rank(rank_env *env)
{
    static const tri_parallel_rule rules[] = {
        {.module = "0.0", .style = TRI_COLWISE}, {.module = "1.0", .style = TRI_COLWISE},
        {.module = "1.1", .style = TRI_ROWWISE}, {.module = "2.0", .style = TRI_COLWISE},
        {.module = "3.0", .style = TRI_COLWISE}, {.module = "3.1", .style = TRI_ROWWISE}};
    static const char *const cuts[] = {"1", "2", "3"};
    const pipeline_job *job = env->arg;
    tri_pipeline_options options = job->options;
    tri_mesh *mesh = NULL;
    tri_module *stages[4], *pipe;
    tri_optimizer *opt;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"pipeline", "tensor"}, &mesh));
    pipeline_build(job, stages);
    pipe = tri_nn_sequential_of(4, stages);
    RANK_TRY(env, tri_parallelize(pipe, tri_mesh_group(mesh, "tensor"), rules, 6));
    options.group = tri_mesh_group(mesh, "pipeline");
    pipe = tri_pipeline_split(pipe, cuts, 4, &options);
    opt = tri_sgd(pipe, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int s = 0; s < job->steps; s++) {
        double loss = 0;

        RANK_TRY(env, pipeline_train(job, pipe, opt, s, &loss));
        if (!(fabs(loss - job->want->loss[s]) <= 1e-9))
            return RANK_FAIL(env, "rank %d: loss %d is %.17g, not %.17g", env->rank, s, loss,
                             job->want->loss[s]);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(pipe);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void parts_that_cross_borders_have_their_masks(void **state)
{
    static const tri_pipeline_schedule schedules[] = {TRI_PIPELINE_INTERLEAVED, TRI_PIPELINE_ZBV};
    pipeline_result *want = pipeline_result_new();
    pipeline_job job = {.options = {.n_microbatches = 4},
                        .stages = 4,
                        .rows = 8,
                        .steps = 3,
                        .build = stages_that_give_parts,
                        .want = want};

    (void)state;
    tri_manual_seed(5);
    pipeline_one_process(&job, want);
    for (int i = 0; i < 2; i++) {
        job.options.schedule = schedules[i];
        run_threads(4, &(tri_group_options){.engine = "shm"}, cut_rank, &job);
    }
    free(want);
}

/* --- x of another network ------------------------------------------------- */

typedef struct front {
    bool recompute; /* the network that x comes from, on the first rank */
    uint64_t hash;  /* of what it has learnt */
} front;

static void stages_that_all_draw(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++)
        stages[s] = tri_nn_sequential(tri_nn_linear(PIPELINE_WIDTH, PIPELINE_WIDTH, NULL),
                                      tri_nn_dropout(0.3), tri_nn_tanh());
}

static const char *train_both(rank_env *env)
{
    static const pipeline_job of_pipe = {
        .options = {.n_microbatches = 2}, .stages = 2, .rows = 4, .build = stages_that_all_draw};
    static const pipeline_job of_front = {.stages = 1, .build = stages_that_all_draw};
    front *f = env->arg;
    tri_tensor *x = pipeline_batch(0, 4, PIPELINE_WIDTH), *y = pipeline_batch(1, 4, PIPELINE_WIDTH);
    tri_group *group = NULL;
    tri_module *net, *pipe;
    tri_optimizer *opt;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    pipeline_build(&of_front, &net);
    tri_module_set_recompute(net, f->recompute);
    opt = tri_sgd(net, 0.1, NULL);
    pipe = pipeline_make(&of_pipe, group);
    tri_manual_seed(5);
    for (int s = 0; s < 2; s++) {
        (void)tri_pipeline_step(pipe, env->rank == 0 ? tri_forward(net, x) : NULL, y, pipeline_mse,
                                NULL);
        RANK_TRY(env, env->rank == 0 ? tri_optimizer_step(opt) : tri_run());
        RANK_TRY(env, tri_step_end_status());
    }
    if (env->rank == 0)
        RANK_TRY(env, pipeline_hash(net, &f->hash));
    tri_module_destroy(pipe);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_group_unref(group);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static void what_comes_before_is_computed_again_with_its_masks(void **state)
{
    front kept = {.recompute = false}, again = {.recompute = true};

    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, train_both, &kept);
    run_threads(2, &(tri_group_options){.engine = "shm"}, train_both, &again);
    assert_int_equal(kept.hash, again.hash);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(masks_are_those_of_one_process),
    cmocka_unit_test(what_is_computed_again_has_the_same_masks),
    cmocka_unit_test(parts_that_cross_borders_have_their_masks),
    cmocka_unit_test(what_comes_before_is_computed_again_with_its_masks),
};

TEST_MAIN(tests)
