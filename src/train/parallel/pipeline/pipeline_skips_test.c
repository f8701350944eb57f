/* pipeline_skips_test.c - stages that take what others have saved. */
#include "testing/pipeline_ranks.h"

static tri_module *linear(int in)
{
    return tri_nn_linear(in, PIPELINE_WIDTH, NULL);
}

/* Two tensors that others take, each twice, once of the next stage, once further on; and the batch
 * itself, which has no gradient, at the end. */
static void stages_with_skips(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++)
        stages[s] = s == 0       ? tri_nn_sequential(tri_nn_skip_save("x"), linear(PIPELINE_WIDTH),
                                                     tri_nn_skip_save("a"), tri_nn_tanh())
                    : s == 1     ? tri_nn_sequential(linear(PIPELINE_WIDTH), tri_nn_skip_save("b"),
                                                     tri_nn_skip_take("a", TRI_SKIP_ADD), tri_nn_tanh())
                    : s == n - 2 ? tri_nn_sequential(tri_nn_skip_take("b", TRI_SKIP_CONCAT),
                                                     linear(2 * PIPELINE_WIDTH), tri_nn_tanh())
                    : s == n - 1
                        ? tri_nn_sequential(tri_nn_skip_take("a", TRI_SKIP_CONCAT),
                                            tri_nn_skip_take("b", TRI_SKIP_CONCAT),
                                            tri_nn_skip_take("x", TRI_SKIP_CONCAT),
                                            tri_nn_linear(4 * PIPELINE_WIDTH, PIPELINE_OUT, NULL))
                        : tri_nn_sequential(linear(PIPELINE_WIDTH), tri_nn_tanh());
}

/* The same stages, which keep their inputs only. */
static void stages_computed_again(tri_module **stages, int n)
{
    stages_with_skips(stages, n);
    for (int s = 0; s < n; s++)
        tri_module_set_recompute(stages[s], true);
}

/* A stage of two results, of which the second has a stage of its own to go to. */
static tri_tensor *two_results(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = tri_forward(tri_module_submodule(self, "layer"), x);

    (void)tri_forward(tri_module_submodule(self, "second"), tri_sigmoid(y));
    return tri_tanh(y);
}

static void stages_of_two_results(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++) {
        stages[s] = tri_module_simple("TwoResults", 1, two_results);
        tri_module_add_child(stages[s], "layer",
                             tri_nn_linear((s > 0) * PIPELINE_WIDTH + PIPELINE_WIDTH,
                                           s == n - 1 ? PIPELINE_OUT : PIPELINE_WIDTH, NULL));
        tri_module_add_child(stages[s], "second", tri_nn_skip_save("gate"));
        if (s > 0)
            stages[s] = tri_nn_sequential(tri_nn_skip_take("gate", TRI_SKIP_CONCAT), stages[s]);
    }
}

/* The last column of the batch says which rows later stages are to mask. */
static tri_tensor *take_off_mask(tri_module *self, tri_tensor *x)
{
    tri_tensor *last = tri_narrow(x, 1, PIPELINE_WIDTH - 1, 1);

    (void)tri_forward(tri_module_submodule(self, "mask"), tri_gt(last, tri_mul_scalar(last, 0)));
    return tri_forward(tri_module_submodule(self, "layer"),
                       tri_narrow(x, 1, 0, PIPELINE_WIDTH - 1));
}

static tri_tensor *fill_masked(tri_module *self, tri_tensor *x)
{
    tri_tensor *mask = tri_forward(tri_module_submodule(self, "mask"), x);

    return tri_forward(tri_module_submodule(self, "layer"), tri_masked_fill(tri_tanh(x), mask, 2));
}

static void stages_of_a_masked_batch(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++) {
        stages[s] = tri_module_simple("Masked", 1, s == 0 ? take_off_mask : fill_masked);
        tri_module_add_child(stages[s], "layer",
                             tri_nn_linear(PIPELINE_WIDTH - (s == 0),
                                           s == n - 1 ? PIPELINE_OUT : PIPELINE_WIDTH, NULL));
        tri_module_add_child(stages[s], "mask",
                             s == 0 ? tri_nn_skip_save("mask")
                                    : tri_nn_skip_take("mask", TRI_SKIP_ALONE));
    }
}

static void compare_job(pipeline_job job, int ranks)
{
    pipeline_result *want = pipeline_result_new();

    pipeline_one_process(&job, want);
    job.want = want;
    run_threads(ranks, &(tri_group_options){.engine = ranks > 1 ? "shm" : "self"}, pipeline_rank,
                &job);
    free(want);
}

static void compare(tri_pipeline_schedule schedule, int ranks, int stages, int m, int rows)
{
    compare_job((pipeline_job){.options = {.n_microbatches = m, .schedule = schedule},
                               .stages = stages,
                               .rows = rows,
                               .steps = rows > 100 ? 1 : 3,
                               .build = stages_with_skips},
                ranks);
}

static void saved_tensors_reach_any_later_stage(void **state)
{
    (void)state;
    compare(TRI_PIPELINE_1F1B, 4, 4, 4, 8);
    compare(TRI_PIPELINE_GPIPE, 4, 4, 5, 11); /* 3, 2, 2, 2, 2 */
    compare(TRI_PIPELINE_1F1B, 8, 8, 8, 8);
}

static void a_rank_takes_its_own_tensors(void **state)
{
    (void)state;
    compare(TRI_PIPELINE_INTERLEAVED, 2, 6, 4, 8);
    compare(TRI_PIPELINE_LOOPED_BFS, 2, 4, 3, 7);
    compare(TRI_PIPELINE_LOOPED_BFS, 1, 4, 3, 7);
}

/* Where stages of one rank follow each other, and each has a backward of its own. */
static void backwards_in_two_parts_find_them(void **state)
{
    (void)state;
    compare(TRI_PIPELINE_ZBV, 2, 4, 4, 8);
    compare(TRI_PIPELINE_ZBV, 3, 6, 5, 11);
    compare(TRI_PIPELINE_ZERO_BUBBLE, 4, 4, 4, 8);
    compare(TRI_PIPELINE_ZERO_BUBBLE, 1, 4, 2, 4);
    compare(TRI_PIPELINE_ZERO_BUBBLE, 2, 4, 2, 4);
}

/* Too large to be kept by the receiver, or for a message to oneself. */
static void large_tensors_wait_for_nobody(void **state)
{
    (void)state;
    compare(TRI_PIPELINE_1F1B, 4, 4, 2, 12000);
    compare(TRI_PIPELINE_LOOPED_BFS, 2, 4, 2, 12000);
    compare(TRI_PIPELINE_ZBV, 2, 4, 2, 12000);
}

static void other_stages_take_them_too(void **state)
{
    pipeline_job job = {.options = {.n_microbatches = 4},
                        .stages = 4,
                        .rows = 8,
                        .steps = 3,
                        .build = stages_computed_again};

    (void)state;
    compare_job(job, 4);
    job.build = stages_of_two_results;
    compare_job(job, 4);
    job.build = stages_of_a_masked_batch;
    compare_job(job, 4);
}

/* --- refused -------------------------------------------------------------- */

static void take_without_save(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++)
        stages[s] = s == 1 ? tri_nn_skip_take("missing", TRI_SKIP_ADD) : tri_nn_skip_save("other");
}

static tri_tensor *saves_nothing(tri_module *self, tri_tensor *x)
{
    (void)self;
    return x;
}

static void save_that_is_not_called(tri_module **stages, int n)
{
    stages[0] = tri_module_simple("Forgetful", 1, saves_nothing);
    tri_module_add_child(stages[0], "save", tri_nn_skip_save("a"));
    for (int s = 1; s < n; s++)
        stages[s] = tri_nn_skip_take("a", TRI_SKIP_ADD);
}

static const char *refuse_to_make(rank_env *env)
{
    pipeline_job job = {.stages = 3, .rows = 8, .build = take_without_save};
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &job, &own));
    RANK_FAILS(env, tri_module_status(own.pipe), TRI_ERR_INVALID_ARG,
               "stage 1 takes \"missing\" (tri_nn_skip_take), which no stage before it "
               "saves");
    pipeline_end(&own);
    return NULL;
}

static const char *refuse_to_step(rank_env *env)
{
    pipeline_job job = {.stages = 2, .rows = 8, .build = save_that_is_not_called};
    pipeline_own own;

    RANK_TRY(env, pipeline_begin(env, &job, &own));
    (void)tri_pipeline_step(own.pipe, own.x, own.x, pipeline_mse, NULL);
    if (tri_run() == TRI_OK ||
        strstr(tri_last_error(),
               "stage 0 has not called its tri_nn_skip_save of \"a\", which stage "
               "1 takes") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    tri_step_end();
    pipeline_end(&own);
    return NULL;
}

static void what_is_not_saved_is_named(void **state)
{
    (void)state;
    run_threads(3, NULL, refuse_to_make, NULL);
    run_threads(2, NULL, refuse_to_step, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(saved_tensors_reach_any_later_stage),
    cmocka_unit_test(a_rank_takes_its_own_tensors),
    cmocka_unit_test(backwards_in_two_parts_find_them),
    cmocka_unit_test(large_tensors_wait_for_nobody),
    cmocka_unit_test(other_stages_take_them_too),
    cmocka_unit_test(what_is_not_saved_is_named),
};

TEST_MAIN(tests)
