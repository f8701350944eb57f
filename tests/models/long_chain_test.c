/* long_chain_test.c - gradients of steps as deep as they can be recorded. */
/* ctest: threads=none tsan=no */
#include <sys/resource.h>

#include <trireme/ops.h>

#include "testing/check.h"

/* Nothing on the way calls itself once an operation: one that did would not fit. */
static void a_chain_of_any_length_fits_a_small_stack(void **state)
{
    enum { LENGTH = 10000 };
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, (const float[]){3, 5});
    struct rlimit before, small;

    (void)state;
    tri_requires_grad(x, true);
    assert_int_equal(getrlimit(RLIMIT_STACK, &before), 0);
    small = before;
    small.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_STACK, &small), 0);
    for (int again = 0; again < 2; again++) {
        tri_tensor *at = x, *loss, *grad;
        float out[2] = {0};

        if (again)
            tri_recompute_begin();
        for (int i = 0; i < LENGTH; i++)
            at = tri_mul_scalar(at, i % 2 == 0 ? 0.5 : 2);
        if (again)
            tri_recompute_end();
        loss = tri_sum(tri_mul(at, at), NULL, 0, false);
        CHECK_OK(
            tri_gradients(&loss, 1, &x, 1, &(tri_gradients_options){.keep_graph = true}, &grad));
        tri_backward(loss);
        CHECK_OK(tri_tensor_copy_out(grad, out, sizeof(out)));
        assert_true(out[0] == 6 && out[1] == 10);
        CHECK_OK(tri_tensor_copy_out(tri_grad(x), out, sizeof(out)));
        assert_true(out[0] == (again ? 12 : 6) && out[1] == (again ? 20 : 10));
        CHECK_OK(tri_step_end_status());
    }
    assert_int_equal(setrlimit(RLIMIT_STACK, &before), 0);
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_chain_of_any_length_fits_a_small_stack),
};

TEST_MAIN(tests)
