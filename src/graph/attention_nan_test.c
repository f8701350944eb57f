/* attention_nan_test.c - a NaN is passed on by attention, and a query that may see nothing has 0.
 */
#include <math.h>

#include <trireme/ops.h>

#include "testing/check.h"

static void a_query_of_nan_gives_nan_and_spoils_no_other(void **state)
{
    const float qs[4] = {NAN, 1, 1, 2}, ks[4] = {1, 2, 3, 4};
    tri_tensor *q = tri_tensor_from(TRI_DTYPE_F32, TRI_SHAPE(1, 1, 2, 2), qs);
    tri_tensor *k = tri_tensor_from(TRI_DTYPE_F32, TRI_SHAPE(1, 1, 2, 2), ks);
    tri_tensor *y;
    float out[4], g[4];

    (void)state;
    tri_requires_grad(q, true);
    y = tri_keep(tri_attention(q, k, k, NULL));
    tri_backward(tri_sum(y, NULL, 0, false));
    CHECK_OK(tri_copy_out(y, out, sizeof(out)));
    assert_true(isnan(out[0]) && isnan(out[1]));
    assert_true(isfinite(out[2]) && isfinite(out[3]));
    CHECK_OK(tri_copy_out(tri_grad(q), g, sizeof(g)));
    assert_true(isnan(g[0]) && isfinite(g[2]));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(q);
    tri_tensor_unref(k);
}

static void a_query_that_may_see_nothing_has_zeros(void **state)
{
    const float ks[4] = {1, 2, 3, 4};
    const uint8_t sees[4] = {0, 0, 1, 0};
    tri_tensor *k = tri_tensor_from(TRI_DTYPE_F32, TRI_SHAPE(1, 1, 2, 2), ks);
    tri_tensor *mask = tri_tensor_from(TRI_DTYPE_BOOL, TRI_SHAPE(2, 2), sees);
    float out[4];

    (void)state;
    CHECK_OK(
        tri_copy_out(tri_keep(tri_attention(k, k, k, &(tri_attention_options){.attn_mask = mask})),
                     out, sizeof(out)));
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 1 && out[3] == 2);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(k);
    tri_tensor_unref(mask);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_query_of_nan_gives_nan_and_spoils_no_other),
    cmocka_unit_test(a_query_that_may_see_nothing_has_zeros),
};

TEST_MAIN(tests)
