/* step_test.c - recording, running, reading and gradients, through the public functions. */
#include <math.h>

#include <trireme/ops.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "train/graph/step/step.h"

static tri_tensor *vec(int n, const float *x)
{
    return tri_tensor_from((int64_t[]){n}, 1, TRI_DTYPE_F32, x);
}

static void a_small_step_trains(void **state)
{
    const float xs[4] = {1, 2, 3, 4}, ys[2] = {1, -1}, ws[2] = {0.5f, -0.25f}, bs[1] = {0.125f};
    tri_tensor *x = tri_tensor_from((int64_t[]){2, 2}, 2, TRI_DTYPE_F32, xs);
    tri_tensor *y = tri_tensor_from((int64_t[]){2, 1}, 2, TRI_DTYPE_F32, ys);
    tri_tensor *w = tri_tensor_from((int64_t[]){1, 2}, 2, TRI_DTYPE_F32, ws);
    tri_tensor *b = vec(1, bs);
    float dw[2], db;
    tri_tensor *loss;

    (void)state;
    tri_requires_grad(w, true);
    tri_requires_grad(b, true);
    loss = tri_mse_loss(tri_linear(x, w, b), y, NULL);
    tri_backward(loss);
    /* predictions 0.125, 0.625: differences -0.875, 1.625 */
    CHECK_NEAR(tri_item(loss), (0.875 * 0.875 + 1.625 * 1.625) / 2, 1e-6);
    CHECK_OK(tri_tensor_copy_out(tri_grad(w), dw, sizeof(dw)));
    CHECK_OK(tri_tensor_copy_out(tri_grad(b), &db, sizeof(db)));
    CHECK_NEAR(dw[0], -0.875 * 1 + 1.625 * 3, 1e-6);
    CHECK_NEAR(dw[1], -0.875 * 2 + 1.625 * 4, 1e-6);
    CHECK_NEAR(db, -0.875 + 1.625, 1e-6);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_tensor_unref(w);
    tri_tensor_unref(b);
    trii_step_release();
    assert_int_equal(trii_alloc_live(), 0);
}

static void gradients_add_up_until_they_are_consumed(void **state)
{
    const float xs[2] = {3, 5};
    tri_tensor *x = vec(2, xs);
    float got[2];
    trii_vid id = TRII_NO_VALUE;

    (void)state;
    tri_requires_grad(x, true);
    tri_backward(tri_sum(x, NULL, 0, false));
    tri_backward(tri_sum(tri_mul(x, x), NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    CHECK_NEAR(got[0], 1 + 6, 0);
    CHECK_NEAR(got[1], 1 + 10, 0);
    tri_step_end();
    tri_backward(tri_sum(x, NULL, 0, false)); /* over steps, too */
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    CHECK_NEAR(got[1], 12, 0);
    CHECK_OK(trii_grad_consume(trii_step_current(), x, &id));
    assert_true(id != TRII_NO_VALUE);
    tri_backward(tri_sum(x, NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    CHECK_NEAR(got[1], 1, 0);
    tri_step_end();
    tri_tensor_unref(x);
}

/* One loss that depends on contents which a parameter had before and after it was written. */
static void a_loss_over_an_update_gets_both_gradients(void **state)
{
    const float xs[2] = {3, 5}, later[2] = {1, 2};
    tri_tensor *x = vec(2, xs), *before, *between, *after, *half;
    trii_vid id = TRII_NO_VALUE;
    float got[2];

    (void)state;
    tri_requires_grad(x, true);
    before = tri_sum(tri_mul(x, x), NULL, 0, false); /* 2x = 6, 10 */
    CHECK_OK(tri_tensor_copy_in(x, later, sizeof(later)));
    between = tri_sum(tri_mul_scalar(x, 100), NULL, 0, false); /* 100, 100 */
    tri_no_grad_begin();
    half = tri_mul_scalar(x, 0.5);
    tri_no_grad_end();
    CHECK_OK(trii_resolve(trii_step_current(), half, &id));
    CHECK_OK(trii_bind(trii_step_current(), id, x));
    after = tri_sum(tri_mul(tri_mul(x, x), x), NULL, 0, false); /* 3x^2 = 0.75, 3 */
    tri_backward(tri_add(tri_add(before, between), after));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    CHECK_NEAR(got[0], 6 + 100 + 0.75, 0);
    CHECK_NEAR(got[1], 10 + 100 + 3, 0);
    tri_step_end();
    before = tri_sum(x, NULL, 0, false);
    CHECK_OK(tri_tensor_copy_in(x, later, sizeof(later)));
    tri_backward(tri_add(before, tri_sum(x, NULL, 0, false)));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    CHECK_NEAR(got[0], 106.75 + 2, 0); /* what was there is added once */
    tri_step_end();
    tri_tensor_unref(x);
}

static void old_and_failed_handles_say_what_is_wrong(void **state)
{
    const float xs[3] = {1, 2, 3};
    tri_tensor *x = vec(3, xs), *y = vec(2, xs), *h, *bad;
    float got[3];

    (void)state;
    h = tri_relu(x);
    bad = tri_add(h, y);
    CHECK_FAILS(tri_tensor_status(bad), TRI_ERR_INVALID_ARG, "tri_add(f32 [3], f32 [2]) at ");
    CHECK_FAILS(tri_tensor_status(tri_mul(tri_relu(bad), x)), TRI_ERR_INVALID_ARG, "tri_add(");
    CHECK_FAILS(tri_tensor_copy_out(bad, got, sizeof(got)), TRI_ERR_INVALID_ARG,
                "do not broadcast");
    tri_backward(bad);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "tri_backward at ");
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "do not broadcast");
    CHECK_FAILS(tri_tensor_status(h), TRI_ERR_STATE, "step has ended");
    bad = tri_neg(tri_relu(x)); /* a value of that number exists again */
    CHECK_OK(tri_tensor_status(bad));
    CHECK_FAILS(tri_tensor_status(h), TRI_ERR_STATE, "step has ended");
    CHECK_FAILS(tri_tensor_status(tri_neg(h)), TRI_ERR_STATE, "tri_neg(?) at ");
    CHECK_FAILS(tri_tensor_copy_out(h, got, sizeof(got)), TRI_ERR_STATE, "step has ended");
    assert_true(isnan(tri_item(tri_add(h, x))));
    CHECK_FAILS(tri_tensor_status(tri_relu(NULL)), TRI_ERR_INVALID_ARG, "argument 0 is NULL");
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void what_was_not_kept_cannot_be_read(void **state)
{
    const float xs[2] = {1, -2};
    tri_tensor *x = vec(2, xs), *a, *b, *c;
    float got[2];

    (void)state;
    a = tri_relu(x);
    b = tri_keep(tri_mul_scalar(a, 3));
    c = tri_add(b, a);
    CHECK_OK(tri_tensor_copy_out(c, got, sizeof(got)));
    CHECK_NEAR(got[0], 4, 0);
    CHECK_OK(tri_tensor_copy_out(b, got, sizeof(got)));
    CHECK_NEAR(got[0], 3, 0);
    CHECK_FAILS(tri_tensor_copy_out(a, got, sizeof(got)), TRI_ERR_STATE, "tri_keep");
    CHECK_FAILS(tri_tensor_status(tri_relu(a)), TRI_ERR_STATE, "tri_keep");
    tri_step_end();
    tri_tensor_unref(x);
}

static void a_run_that_splits_the_step_keeps_what_gradients_need(void **state)
{
    const float xs[2] = {2, 3};
    tri_tensor *x = vec(2, xs), *y, *loss;
    float got[2];

    (void)state;
    tri_requires_grad(x, true);
    y = tri_mul(x, tri_relu(x));
    loss = tri_sum(tri_mul(y, y), NULL, 0, false);
    CHECK_NEAR(tri_item(loss), 16 + 81, 0);
    tri_backward(loss);
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    CHECK_NEAR(got[0], 4 * 8, 0); /* d x^4 */
    CHECK_NEAR(got[1], 4 * 27, 0);
    tri_step_end();
    tri_tensor_unref(x);
}

static void writing_a_tensor_leaves_recorded_work_its_old_contents(void **state)
{
    const float old[2] = {1, 2}, new[2] = {10, 20};
    tri_tensor *x = vec(2, old), *y, *z;
    float got[2];

    (void)state;
    y = tri_keep(tri_mul_scalar(x, 2));
    CHECK_OK(tri_tensor_copy_in(x, new, sizeof(new)));
    z = tri_mul_scalar(x, 2);
    CHECK_OK(tri_tensor_copy_out(z, got, sizeof(got)));
    CHECK_NEAR(got[1], 40, 0);
    CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
    CHECK_NEAR(got[1], 4, 0);
    CHECK_OK(tri_tensor_copy_out(x, got, sizeof(got)));
    CHECK_NEAR(got[1], 20, 0);
    CHECK_FAILS(tri_tensor_copy_in(x, new, 4), TRI_ERR_INVALID_ARG,
                "4 bytes are given, the tensor has 8");
    tri_step_end();
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_small_step_trains),
    cmocka_unit_test(gradients_add_up_until_they_are_consumed),
    cmocka_unit_test(a_loss_over_an_update_gets_both_gradients),
    cmocka_unit_test(old_and_failed_handles_say_what_is_wrong),
    cmocka_unit_test(what_was_not_kept_cannot_be_read),
    cmocka_unit_test(a_run_that_splits_the_step_keeps_what_gradients_need),
    cmocka_unit_test(writing_a_tensor_leaves_recorded_work_its_old_contents),
};

TEST_MAIN(tests)
