/* attention_nan_test.c - a NaN is passed on by attention, and a query that may see nothing has
 * 0. */
#include <math.h>

#include <trireme/ops.h>

#include "testing/check.h"

static void a_query_of_nan_gives_nan_and_spoils_no_other(void **state)
{
    const float qs[4] = {NAN, 1, 1, 2}, ks[4] = {1, 2, 3, 4};
    tri_tensor *q = tri_tensor_from(TRI_SHAPE(1, 1, 2, 2), TRI_DTYPE_F32, qs);
    tri_tensor *k = tri_tensor_from(TRI_SHAPE(1, 1, 2, 2), TRI_DTYPE_F32, ks);
    tri_tensor *y;
    float out[4], g[4];

    (void)state;
    tri_requires_grad(q, true);
    y = tri_keep(tri_attention(q, k, k, NULL));
    tri_backward(tri_sum(y, NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(y, out, sizeof(out)));
    assert_true(isnan(out[0]) && isnan(out[1]));
    assert_true(isfinite(out[2]) && isfinite(out[3]));
    CHECK_OK(tri_tensor_copy_out(tri_grad(q), g, sizeof(g)));
    assert_true(isnan(g[0]) && isfinite(g[2]));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(q);
    tri_tensor_unref(k);
}

static void a_query_that_may_see_nothing_has_zeros(void **state)
{
    const float ks[4] = {1, 2, 3, 4};
    const uint8_t sees[4] = {0, 0, 1, 0};
    tri_tensor *k = tri_tensor_from(TRI_SHAPE(1, 1, 2, 2), TRI_DTYPE_F32, ks);
    tri_tensor *mask = tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_BOOL, sees);
    float out[4];

    (void)state;
    CHECK_OK(tri_tensor_copy_out(
        tri_keep(tri_attention(k, k, k, &(tri_attention_options){.attn_mask = mask})), out,
        sizeof(out)));
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 1 && out[3] == 2);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(k);
    tri_tensor_unref(mask);
}

/* Whatever k and v hold: 0 times NaN is NaN. */
static void a_query_that_sees_nothing_has_zeros_among_keys_of_nan(void **state)
{
    const double qs[4] = {1, 2, 3, 4}, ks[4] = {1, 2, NAN, 1}, vs[4] = {5, 6, NAN, INFINITY};
    const uint8_t sees[4] = {0, 0, 1, 0};

    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        tri_tensor *x[3], *mask = tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_BOOL, sees), *y;
        const double *const from[3] = {qs, ks, vs};
        double out[4], dq[4], dk[4];

        for (int i = 0; i < 3; i++) {
            float narrow[4];

            for (int k = 0; k < 4; k++)
                narrow[k] = (float)from[i][k];
            x[i] = tri_tensor_from(TRI_SHAPE(1, 1, 2, 2), wide ? TRI_DTYPE_F64 : TRI_DTYPE_F32,
                                   wide ? (const void *)from[i] : narrow);
            tri_requires_grad(x[i], true);
        }
        y = tri_keep(tri_narrow(
            tri_attention(x[0], x[1], x[2], &(tri_attention_options){.attn_mask = mask}), 2, 0, 1));
        tri_backward(tri_sum(y, NULL, 0, false));
        CHECK_OK(tri_tensor_copy_out(tri_cast(y, TRI_DTYPE_F64), out, 2 * sizeof(*out)));
        CHECK_OK(tri_tensor_copy_out(tri_cast(tri_grad(x[0]), TRI_DTYPE_F64), dq, sizeof(dq)));
        CHECK_OK(tri_tensor_copy_out(tri_cast(tri_grad(x[1]), TRI_DTYPE_F64), dk, sizeof(dk)));
        assert_true(out[0] == 0 && out[1] == 0);
        assert_true(dq[0] == 0 && dq[1] == 0);
        CHECK_OK(tri_step_end_status());
        for (int i = 0; i < 3; i++)
            tri_tensor_unref(x[i]);
        tri_tensor_unref(mask);
    }
}

/* Second gradients of x = q | k | v, with the first query or without it. */
static void second_gradients(tri_tensor *const *x, tri_tensor *mask, bool first, float *dq,
                             float *dk)
{
    tri_tensor *q = first ? x[0] : tri_narrow(x[0], 2, 1, 1), *y, *loss, *grads[3];

    mask = first ? mask : tri_narrow(mask, 0, 1, 1);
    y = tri_attention(q, x[1], x[2], &(tri_attention_options){.attn_mask = mask});
    loss = tri_sum(tri_square(y), NULL, 0, false);
    CHECK_OK(tri_gradients(&loss, 1, x, 3, &(tri_gradients_options){.create_graph = true}, grads));
    loss = tri_add(tri_sum(tri_square(grads[0]), NULL, 0, false),
                   tri_sum(tri_mul(grads[1], grads[2]), NULL, 0, false));
    CHECK_OK(tri_gradients(&loss, 1, x, 2, NULL, grads));
    (void)tri_keep(grads[1]);
    CHECK_OK(tri_tensor_copy_out(grads[0], dq, 4 * sizeof(*dq)));
    CHECK_OK(tri_tensor_copy_out(grads[1], dk, 4 * sizeof(*dk)));
    CHECK_OK(tri_step_end_status());
}

static void a_query_that_sees_nothing_spoils_no_second_gradient(void **state)
{
    const float qs[4] = {0.5f, -1, 1, 0.25f}, ks[4] = {1, -0.5f, 0.3f, 1}, vs[4] = {1, 2, -1, 0.5f};
    const float inf = -INFINITY, added[4] = {inf, inf, 0.5f, 0};
    const uint8_t sees[4] = {0, 0, 1, 1};
    tri_tensor *x[3] = {tri_tensor_from(TRI_SHAPE(1, 1, 2, 2), TRI_DTYPE_F32, qs),
                        tri_tensor_from(TRI_SHAPE(1, 1, 2, 2), TRI_DTYPE_F32, ks),
                        tri_tensor_from(TRI_SHAPE(1, 1, 2, 2), TRI_DTYPE_F32, vs)};
    tri_tensor *masks[2] = {tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_BOOL, sees),
                            tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_F32, added)};

    (void)state;
    for (int i = 0; i < 3; i++)
        tri_requires_grad(x[i], true);
    for (int m = 0; m < 2; m++) {
        float dq[2][4], dk[2][4];

        for (int first = 0; first < 2; first++)
            second_gradients(x, masks[m], first, dq[first], dk[first]);
        assert_true(fabsf(dq[0][2]) > 1e-3f);
        for (int i = 0; i < 4; i++) {
            CHECK_NEAR(dq[1][i], i < 2 ? 0 : dq[0][i], 1e-5);
            CHECK_NEAR(dk[1][i], dk[0][i], 1e-5);
        }
    }
    for (int i = 0; i < 3; i++)
        tri_tensor_unref(x[i]);
    tri_tensor_unref(masks[0]);
    tri_tensor_unref(masks[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_query_of_nan_gives_nan_and_spoils_no_other),
    cmocka_unit_test(a_query_that_may_see_nothing_has_zeros),
    cmocka_unit_test(a_query_that_sees_nothing_has_zeros_among_keys_of_nan),
    cmocka_unit_test(a_query_that_sees_nothing_spoils_no_second_gradient),
};

TEST_MAIN(tests)
