/* pipeline_edges_test.c - steps that fail on one rank alone, in the middle of its micro-batches,
 * in a kernel, before the pass or after it: all ranks end with its line, and nothing is updated. */
/* ctest: also=TRI_EAGER=1 */
#include "testing/pipeline_ranks.h"

enum { ROWS = 8 };

typedef enum failing { STAGE, SHAPE, GRADIENT, BACKWARD, AFTER_PASS, BEFORE_PASS, KERNEL } failing;

typedef struct failing_job {
    failing where;
    int rank;
    const char *part; /* of the line that all ranks get */
} failing_job;

static int calls_of_a_stage;
static failing late_failure;

static tri_tensor *fail_late(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = tri_tanh(x);

    (void)self;
    if (++calls_of_a_stage < 3)
        return y;
    if (late_failure == SHAPE)
        return tri_reshape(y, TRI_SHAPE(2, 2, PIPELINE_WIDTH / 2));
    if (late_failure == STAGE)
        return tri_matmul(x, x);
    if (late_failure == BACKWARD) {
        tri_backward(tri_sum(y, NULL, 0, false));
        return y;
    }
    TRI_NO_GRAD y = tri_tanh(x);
    return y;
}

static void stages_of_which_one_fails(tri_module **stages, int n)
{
    for (int s = 0; s < n; s++)
        stages[s] =
            s == 1 ? tri_module_simple("Late", 1, fail_late)
                   : tri_nn_linear(PIPELINE_WIDTH, s == 2 ? PIPELINE_OUT : PIPELINE_WIDTH, NULL);
}

static void fail_here(void)
{
    tri_tensor *bad = tri_zeros(TRI_SHAPE(2, 3), TRI_DTYPE_F64);

    tri_backward(tri_sum(tri_matmul(bad, bad), NULL, 0, false));
}

/* One class of the batch does not exist: the run fails on the last rank. */
static tri_tensor *with_a_wrong_class(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_cross_entropy(output, target, NULL);
}

static const char *failing_rank(rank_env *env)
{
    static const int64_t classes[ROWS] = {0, 1, 2, 0, 1, 7, 0, 1};
    const failing_job *j = env->arg;
    bool kernel = j->where == KERNEL;
    pipeline_job job = {
        .options = {.n_microbatches = kernel ? ROWS : 4}, .stages = 3, .rows = ROWS};
    tri_pipeline_loss_fn loss = kernel ? with_a_wrong_class : pipeline_mse;
    tri_tensor *numbers = tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, classes), *y;
    pipeline_own own;
    uint64_t before, after;

    if (j->where <= BACKWARD)
        job.build = stages_of_which_one_fails;
    RANK_TRY(env, pipeline_begin(env, &job, &own));
    own.opt = tri_sgd(own.pipe, 0.1, NULL);
    y = kernel ? numbers : own.y;
    RANK_TRY(env, pipeline_hash(own.pipe, &before));
    for (int i = 0; i < 2; i++) { /* and again */
        tri_status status;

        if (i == 0 && j->where == BEFORE_PASS && env->rank == j->rank)
            fail_here();
        (void)tri_pipeline_step(own.pipe, own.x, y, loss, NULL);
        if (i == 0 && j->where == AFTER_PASS && env->rank == j->rank)
            fail_here();
        status = tri_optimizer_step(own.opt);
        if (status == TRI_OK || strstr(tri_last_error(), j->part) == NULL)
            return RANK_FAIL(env, "rank %d, step %d: %s: %s", env->rank, i, tri_status_name(status),
                             tri_last_error());
        tri_step_end();
    }
    RANK_TRY(env, pipeline_hash(own.pipe, &after));
    if (before != after)
        return RANK_FAIL(env, "rank %d has changed its stage", env->rank);
    RANK_TRY(env, ranks_meet(env, "failed", -1));
    pipeline_end(&own);
    tri_tensor_unref(numbers);
    return NULL;
}

static void expect_failure(failing where, int rank, const char *part)
{
    failing_job j = {where, rank, part};

    calls_of_a_stage = 0;
    late_failure = where;
    run_threads(3, &(tri_group_options){.timeout_ms = 20000}, failing_rank, &j);
}

static void a_stage_that_fails_at_a_later_micro_batch_ends_all(void **state)
{
    (void)state;
    expect_failure(STAGE, 1, "stage 1, micro-batch 2");
}

static void a_stage_that_gives_something_else_later_ends_all(void **state)
{
    (void)state;
    expect_failure(SHAPE, 1,
                   "gives f64 [2, 2, 3] with a gradient for micro-batch 2, and f64 [2, 6]");
    expect_failure(GRADIENT, 1, "gives f64 [2, 6] without a gradient for micro-batch 2");
}

static void a_stage_leaves_its_backward_to_the_pipeline(void **state)
{
    (void)state;
    expect_failure(BACKWARD, 1, "tri_pipeline_step does the backward of its stages");
}

static void what_fails_before_the_pass_ends_all(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++)
        expect_failure(BEFORE_PASS, rank, "tri_matmul");
}

static void what_fails_after_the_pass_ends_all(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("TRI_EAGER"), 0); /* with which the pass has run by then */
    for (int rank = 0; rank < 3; rank++)
        expect_failure(AFTER_PASS, rank, "tri_matmul");
}

static void a_kernel_that_fails_ends_all(void **state)
{
    (void)state;
    expect_failure(KERNEL, 2, "cross_entropy");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_stage_that_fails_at_a_later_micro_batch_ends_all),
    cmocka_unit_test(a_stage_that_gives_something_else_later_ends_all),
    cmocka_unit_test(a_stage_leaves_its_backward_to_the_pipeline),
    cmocka_unit_test(what_fails_before_the_pass_ends_all),
    cmocka_unit_test(what_fails_after_the_pass_ends_all),
    cmocka_unit_test(a_kernel_that_fails_ends_all),
};

TEST_MAIN(tests)
