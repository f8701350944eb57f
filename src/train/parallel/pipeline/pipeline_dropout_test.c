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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(masks_are_those_of_one_process),
    cmocka_unit_test(what_is_computed_again_has_the_same_masks),
};

TEST_MAIN(tests)
