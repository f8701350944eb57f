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
    cmocka_unit_test(what_comes_before_is_computed_again_with_its_masks),
};

TEST_MAIN(tests)
