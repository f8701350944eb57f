/* seeding_test.c - tri_manual_seed starts random numbers again, between steps and within one. */
#include <string.h>

#include <trireme/ops.h>

#include "testing/check.h"

#define N 64

static tri_tensor *ones(void)
{
    return tri_ones(TRI_SHAPE(N), TRI_DTYPE_F32);
}

static void drawn(float *into)
{
    CHECK_OK(tri_tensor_copy_out(tri_dropout(ones(), 0.5, true), into, N * sizeof(*into)));
}

static void a_seed_starts_again_after_any_number_of_steps(void **state)
{
    float first[N], again[N];

    (void)state;
    for (int round = 0; round < 3; round++) {
        tri_manual_seed(5);
        drawn(round == 0 ? first : again);
        CHECK_OK(tri_step_end_status());
        if (round > 0)
            assert_memory_equal(first, again, sizeof(first));
    }
    drawn(again);
    assert_memory_not_equal(first, again, sizeof(first));
    CHECK_OK(tri_step_end_status());
}

static void a_seed_starts_again_within_a_step(void **state)
{
    float a[N], b[N], c[N], d[N];
    tri_tensor *x[4];

    (void)state;
    tri_manual_seed(5);
    x[0] = tri_keep(tri_rand(TRI_SHAPE(N), TRI_DTYPE_F32));
    x[1] = tri_keep(tri_rand(TRI_SHAPE(N), TRI_DTYPE_F32));
    tri_manual_seed(6); /* what is recorded already draws from 5 */
    x[2] = tri_keep(tri_rand(TRI_SHAPE(N), TRI_DTYPE_F32));
    tri_manual_seed(5);
    x[3] = tri_keep(tri_rand(TRI_SHAPE(N), TRI_DTYPE_F32));
    CHECK_OK(tri_tensor_copy_out(x[0], a, sizeof(a)));
    CHECK_OK(tri_tensor_copy_out(x[1], b, sizeof(b)));
    CHECK_OK(tri_tensor_copy_out(x[2], c, sizeof(c)));
    CHECK_OK(tri_tensor_copy_out(x[3], d, sizeof(d)));
    CHECK_OK(tri_step_end_status());
    assert_memory_equal(a, d, sizeof(a));
    assert_memory_not_equal(a, b, sizeof(a));
    assert_memory_not_equal(a, c, sizeof(a));
    tri_manual_seed(6);
    x[0] = tri_rand(TRI_SHAPE(N), TRI_DTYPE_F32);
    CHECK_OK(tri_tensor_copy_out(x[0], d, sizeof(d)));
    assert_memory_equal(c, d, sizeof(c));
    CHECK_OK(tri_step_end_status());
}

/* The mask of a part that is computed again is the one of the first time. */
static void what_is_computed_again_draws_as_before(void **state)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(N), TRI_DTYPE_F32), *y = NULL;
    float filled[N], out[N], grad[N];

    (void)state;
    for (int i = 0; i < N; i++)
        filled[i] = 1;
    CHECK_OK(tri_tensor_copy_in(x, filled, sizeof(filled)));
    tri_requires_grad(x, true);
    tri_manual_seed(5);
    TRI_RECOMPUTE
    {
        y = tri_exp(tri_dropout(x, 0.5, true));
    }
    (void)tri_keep(y);
    tri_manual_seed(6);
    tri_backward(tri_sum(y, NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(y, out, sizeof(out)));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), grad, sizeof(grad)));
    for (int i = 0; i < N; i++) {
        if (out[i] > 1)
            CHECK_NEAR(grad[i], 2 * out[i], 1e-4);
        else
            CHECK_NEAR(grad[i], 0, 0);
    }
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* So that what one rank does alone, such as a look at the loss, leaves its random numbers alone. */
static void steps_that_draw_nothing_do_not_count(void **state)
{
    float a[N], b[N];

    (void)state;
    for (int round = 0; round < 2; round++) {
        tri_manual_seed(9);
        drawn(a);
        CHECK_OK(tri_step_end_status());
        assert_int_equal(tri_rng_state().step, 1);
        for (int i = 0; i < round; i++) {
            CHECK_NEAR(tri_item(tri_sum(ones(), NULL, 0, false)), N, 0);
            CHECK_OK(tri_step_end_status());
        }
        drawn(round == 0 ? b : a);
        CHECK_OK(tri_step_end_status());
    }
    assert_memory_equal(a, b, sizeof(a));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_seed_starts_again_after_any_number_of_steps),
    cmocka_unit_test(a_seed_starts_again_within_a_step),
    cmocka_unit_test(what_is_computed_again_draws_as_before),
    cmocka_unit_test(steps_that_draw_nothing_do_not_count),
};

TEST_MAIN(tests)
