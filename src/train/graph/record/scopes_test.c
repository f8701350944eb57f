/*
 * scopes_test.c - blocks without gradients or in bf16, left in every way that C has.
 */
#include <trireme/ops.h>

#include "testing/check.h"

static tri_tensor *w;

static bool has_gradient(void)
{
    char text[100];

    tri_tensor_text(tri_mul_scalar(w, 2), text, sizeof(text));
    return strstr(text, "grad_fn") != NULL;
}

static bool is_bf16(void)
{
    return tri_tensor_dtype(tri_matmul(w, w)) == TRI_DTYPE_BF16;
}

static int returns_inside(void)
{
    TRI_NO_GRAD
    {
        TRI_AUTOCAST(TRI_DTYPE_BF16)
        {
            if (is_bf16() && !has_gradient())
                return 1;
        }
    }
    return 0;
}

static void leaves_by_goto(void)
{
    TRI_NO_GRAD
    {
        if (!has_gradient())
            goto out;
    }
    fail();
out:
    assert_true(has_gradient());
}

static void a_scope_ends_however_it_is_left(void **state)
{
    int rounds = 0;

    (void)state;
    assert_int_equal(returns_inside(), 1);
    assert_true(has_gradient() && !is_bf16());
    leaves_by_goto();
    for (int i = 0; i < 3; i++) {
        TRI_NO_GRAD
        {
            if (i == 0)
                break; /* of the braces, not of the loop */
            if (i == 1)
                continue;
            assert_false(has_gradient());
        }
        assert_true(has_gradient());
        rounds++;
    }
    assert_int_equal(rounds, 3);
}

static void scopes_nest(void **state)
{
    (void)state;
    TRI_NO_GRAD
    {
        TRI_NO_GRAD
        {
            assert_false(has_gradient());
        }
        assert_false(has_gradient());
    }
    assert_true(has_gradient());
}

static void the_rest_of_a_block_can_be_a_scope(void **state)
{
    (void)state;
    {
        TRI_NO_GRAD_HERE;
        TRI_AUTOCAST_HERE(TRI_DTYPE_BF16);
        assert_true(!has_gradient() && is_bf16());
    }
    assert_true(has_gradient() && !is_bf16());
}

/* A program's own word for two modes: both are on its line. */
#define BF16_WITHOUT_GRADIENTS                                                                     \
    TRI_NO_GRAD_HERE;                                                                              \
    TRI_AUTOCAST_HERE(TRI_DTYPE_BF16)

static void a_line_may_hold_several_scopes(void **state)
{
    (void)state;
    {
        BF16_WITHOUT_GRADIENTS;
        assert_true(!has_gradient() && is_bf16());
    }
    assert_true(has_gradient() && !is_bf16());
}

static void an_end_too_many_fails_the_step(void **state)
{
    (void)state;
    tri_no_grad_end();
    CHECK_FAILS(tri_run(), TRI_ERR_STATE, "tri_no_grad_end without tri_no_grad_begin");
    tri_step_end();
    assert_true(has_gradient());
    tri_no_grad_begin();
    assert_false(has_gradient());
    tri_no_grad_end();
    CHECK_OK(tri_step_end_status());
}

static int setup(void **state)
{
    (void)state;
    w = tri_tensor_create(TRI_SHAPE(2, 2), TRI_DTYPE_F32);
    tri_requires_grad(w, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tri_step_end();
    tri_tensor_unref(w);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_scope_ends_however_it_is_left, setup, teardown),
    cmocka_unit_test_setup_teardown(scopes_nest, setup, teardown),
    cmocka_unit_test_setup_teardown(the_rest_of_a_block_can_be_a_scope, setup, teardown),
    cmocka_unit_test_setup_teardown(a_line_may_hold_several_scopes, setup, teardown),
    cmocka_unit_test_setup_teardown(an_end_too_many_fails_the_step, setup, teardown),
};

TEST_MAIN(tests)
