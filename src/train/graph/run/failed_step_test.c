/* failed_step_test.c - what a step that failed leaves of gradients: nothing of its own, and what
 * had added up before it only if it is still whole. */
/* ctest: threads=none */
#include <math.h>

#include <trireme/ops.h>

#include "testing/check.h"
#include "train/graph/step/step.h"

static const int64_t good[1] = {0}, bad[1] = {7};

/* A row of two logits, the parameter, and its target. */
typedef struct problem {
    tri_tensor *w, *target;
} problem;

static problem make_problem(void)
{
    const float ws[2] = {1, 3};
    problem p = {tri_tensor_from((int64_t[]){1, 2}, 2, TRI_DTYPE_F32, ws),
                 tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_I64, good)};

    tri_requires_grad(p.w, true);
    return p;
}

static void free_problem(problem p)
{
    tri_tensor_unref(p.w);
    tri_tensor_unref(p.target);
}

static void set_target(problem p, const int64_t *target)
{
    CHECK_OK(tri_tensor_copy_in(p.target, target, sizeof(*target)));
}

static float grad_of(tri_tensor *w)
{
    float out[2] = {NAN, NAN};

    CHECK_OK(tri_tensor_copy_out(tri_grad(w), out, sizeof(out)));
    return out[0];
}

static tri_tensor *squares(problem p)
{
    return tri_sum(tri_square(p.w), NULL, 0, false); /* gradient: 2w */
}

static void consume(tri_tensor *w)
{
    trii_vid grad = TRII_NO_VALUE;

    CHECK_OK(trii_grad_consume(trii_step_current(), w, &grad));
    assert_int_not_equal(grad, TRII_NO_VALUE);
}

/* The bad batch is skipped, as every training loop does it. */
static void the_gradient_of_a_failed_step_is_not_added_to_the_next(void **state)
{
    problem p = make_problem();
    tri_tensor *loss;
    float want;

    (void)state;
    loss = tri_cross_entropy(p.w, p.target, NULL);
    tri_backward(loss);
    consume(p.w);
    CHECK_OK(tri_step_end_status());
    want = grad_of(p.w);
    assert_true(fabsf(want) > 0.1f);
    for (int round = 0; round < 2; round++) {
        set_target(p, bad);
        loss = tri_cross_entropy(p.w, p.target, NULL);
        tri_backward(loss);
        assert_true(isnan(tri_item(loss)));
        tri_step_end();
        assert_false(trii_has_grad(p.w));
        set_target(p, good);
        loss = tri_cross_entropy(p.w, p.target, NULL);
        tri_backward(loss);
        CHECK_OK(tri_run());
        CHECK_NEAR(grad_of(p.w), want, 0);
        consume(p.w);
        CHECK_OK(tri_step_end_status());
    }
    free_problem(p);
}

/* Recorded, never run: another operation of the step was refused. */
static void a_refused_operation_takes_back_the_recorded_gradient(void **state)
{
    problem p = make_problem();

    (void)state;
    tri_backward(squares(p));
    tri_backward(tri_add(p.w, p.w)); /* no scalar */
    assert_false(trii_has_grad(p.w));
    tri_backward(squares(p)); /* of a step that has failed already */
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "one floating-point number");
    assert_false(trii_has_grad(p.w));
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(grad_of(p.w), 2, 0);
    free_problem(p);
}

static void an_update_that_failed_has_not_consumed_the_gradient(void **state)
{
    problem p = make_problem();

    (void)state;
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    set_target(p, bad);
    consume(p.w);
    assert_true(isnan(tri_item(tri_cross_entropy(p.w, p.target, NULL))));
    assert_true(trii_has_grad(p.w));
    tri_step_end();
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(grad_of(p.w), 4, 0);
    free_problem(p);
}

/* The failure comes before the sum is touched: what had added up is still there. */
static void what_had_added_up_survives_a_failure_before_the_sum(void **state)
{
    problem p = make_problem();

    (void)state;
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    set_target(p, bad);
    tri_backward(tri_cross_entropy(p.w, p.target, NULL));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "target 7 of row 0");
    assert_true(trii_has_grad(p.w));
    CHECK_NEAR(grad_of(p.w), 2, 0);
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(grad_of(p.w), 4, 0);
    free_problem(p);
}

/* The failure comes after it: nobody can say what the sum was. */
static void a_sum_that_was_overwritten_is_reported_as_lost(void **state)
{
    problem p = make_problem();
    tri_tensor *g;

    (void)state;
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    g = tri_grad(p.w);
    set_target(p, bad);
    tri_backward(squares(p));
    (void)tri_keep(tri_cross_entropy(p.w, p.target, NULL));
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "target 7 of row 0");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(tri_grad(p.w)), TRI_ERR_STATE,
                "the gradient that had added up is lost, since a step that added to it failed "
                "(tri_cross_entropy at ");
    assert_true(isnan(tri_item(tri_sum(g, NULL, 0, false)))); /* nor by the old name */
    tri_step_end();
    tri_backward(squares(p)); /* to what? */
    CHECK_FAILS(tri_run(), TRI_ERR_STATE, "call tri_optimizer_zero_grad and begin again");
    tri_step_end();
    trii_grad_clear(p.w);
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(grad_of(p.w), 2, 0);
    free_problem(p);
}

/* A gradient that was new, or would have been, is no gradient. */
static void a_half_made_gradient_is_none(void **state)
{
    problem p = make_problem();

    (void)state;
    set_target(p, bad);
    tri_backward(squares(p));
    (void)tri_keep(tri_cross_entropy(p.w, p.target, NULL));
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "target 7 of row 0");
    tri_step_end();
    assert_false(trii_has_grad(p.w));
    CHECK_FAILS(tri_tensor_status(tri_grad(p.w)), TRI_ERR_STATE,
                "no gradient: the step that was to compute it failed");
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(grad_of(p.w), 2, 0);
    free_problem(p);
}

/* When TRI_CHECK=nan has spoken, everything is written: it is put back. */
static void what_had_added_up_survives_a_nan_that_was_found(void **state)
{
    problem p = make_problem();
    const float zero[2] = {0, 0}, ws[2] = {1, 3};

    (void)state;
    trii_step_release();
    setenv("TRI_CHECK", "nan", 1);
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_tensor_copy_in(p.w, zero, sizeof(zero)));
    tri_backward(tri_sum(tri_div(p.w, p.w), NULL, 0, false));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_NAN, "NaN made by div");
    assert_true(trii_has_grad(p.w));
    CHECK_NEAR(grad_of(p.w), 2, 0);
    trii_grad_clear(p.w);
    CHECK_OK(tri_tensor_copy_in(p.w, ws, sizeof(ws)));
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    CHECK_NEAR(grad_of(p.w), 2, 0);
    free_problem(p);
    trii_step_release();
    unsetenv("TRI_CHECK");
}

static void what_was_cleared_stays_cleared_when_the_step_fails(void **state)
{
    problem p = make_problem();

    (void)state;
    tri_backward(squares(p));
    CHECK_OK(tri_step_end_status());
    tri_backward(squares(p));
    trii_grad_clear(p.w);
    set_target(p, bad);
    assert_true(isnan(tri_item(tri_cross_entropy(p.w, p.target, NULL))));
    tri_step_end();
    assert_false(trii_has_grad(p.w));
    free_problem(p);
}

/* tri_item said NaN and why; that the loop goes on to tri_backward is no second failure. */
static void what_a_call_has_returned_does_not_fail_the_next_step(void **state)
{
    problem p = make_problem();
    tri_tensor *loss;

    (void)state;
    set_target(p, bad);
    loss = tri_cross_entropy(p.w, p.target, NULL);
    assert_true(isnan(tri_item(loss)));
    tri_backward(loss);
    tri_step_end();
    set_target(p, good);
    tri_backward(tri_cross_entropy(p.w, p.target, NULL));
    CHECK_OK(tri_step_end_status());
    assert_true(trii_has_grad(p.w));
    free_problem(p);
}

/* The thread ends, its step never ran. */
/* What looks at its operands when it runs, with one that it refuses. */
static tri_tensor *refusing(int which, tri_tensor *index)
{
    tri_tensor *table = tri_zeros(TRI_SHAPE(4, 2), TRI_DTYPE_F32);

    switch (which) {
    case 0:
        return tri_embedding(index, table, NULL);
    case 1:
        return tri_index_select(table, 0, index);
    case 2:
        return tri_gather_along(table, 0, tri_unsqueeze(index, 1));
    case 3:
        return tri_scatter_add(table, 0, tri_unsqueeze(index, 1), table);
    case 4:
        return tri_one_hot(index, 4);
    case 5:
        return tri_bernoulli(tri_cast(index, TRI_DTYPE_F32));
    default:
        return tri_multinomial(tri_neg(tri_cast(index, TRI_DTYPE_F32)), 1, true);
    }
}

static void running_statistics_survive_what_refuses_its_operands_behind_them(void **state)
{
    const float ones[2] = {1, 1};
    float got[2];

    (void)state;
    for (int which = 0; which < 7; which++) {
        tri_tensor *index = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &(int64_t){7});
        tri_tensor *mean = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, ones);
        tri_tensor *var = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, ones);
        const tri_batch_norm_args args = {
            .running_mean = mean, .running_var = var, .training = true};

        tri_keep(tri_batch_norm(tri_randn(TRI_SHAPE(5, 2), TRI_DTYPE_F32), &args));
        tri_keep(refusing(which, index));
        assert_true(tri_run() < 0);
        tri_step_end();
        CHECK_OK(tri_tensor_copy_out(mean, got, sizeof(got)));
        assert_memory_equal(got, ones, sizeof(got));
        CHECK_OK(tri_tensor_copy_out(var, got, sizeof(got)));
        assert_memory_equal(got, ones, sizeof(got));
        tri_tensor_unref(index);
        tri_tensor_unref(mean);
        tri_tensor_unref(var);
    }
}

static void a_step_that_is_given_up_publishes_nothing(void **state)
{
    problem p = make_problem();

    (void)state;
    tri_backward(squares(p));
    assert_true(trii_has_grad(p.w));
    trii_step_release();
    assert_false(trii_has_grad(p.w));
    free_problem(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_gradient_of_a_failed_step_is_not_added_to_the_next),
    cmocka_unit_test(a_refused_operation_takes_back_the_recorded_gradient),
    cmocka_unit_test(an_update_that_failed_has_not_consumed_the_gradient),
    cmocka_unit_test(what_had_added_up_survives_a_failure_before_the_sum),
    cmocka_unit_test(a_sum_that_was_overwritten_is_reported_as_lost),
    cmocka_unit_test(a_half_made_gradient_is_none),
    cmocka_unit_test(what_had_added_up_survives_a_nan_that_was_found),
    cmocka_unit_test(what_was_cleared_stays_cleared_when_the_step_fails),
    cmocka_unit_test(what_a_call_has_returned_does_not_fail_the_next_step),
    cmocka_unit_test(running_statistics_survive_what_refuses_its_operands_behind_them),
    cmocka_unit_test(a_step_that_is_given_up_publishes_nothing),
};

TEST_MAIN(tests)
