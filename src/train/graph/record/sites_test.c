/* sites_test.c - the line that an error names is the caller's, also when an argument is a call
 * whose own lines are elsewhere. */
#include <stdio.h>

#include <trireme/nn.h>
#include <trireme/ops.h>

#include "base/site.h"
#include "testing/check.h"

static tri_tensor *helper(tri_tensor *x)
{
    return tri_relu(tri_mul_scalar(x, 2));
}

static tri_tensor *own_forward(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_sigmoid(helper(x));
}

static tri_tensor *vector(int64_t n)
{
    return tri_tensor_create(&n, 1, TRI_DTYPE_F32);
}

static const char *at(int line)
{
    static char text[64];

    snprintf(text, sizeof(text), "sites_test.c:%d", line);
    return text;
}

static void an_argument_that_calls_leaves_the_line_of_the_call(void **state)
{
    tri_tensor *x = vector(4), *y = vector(5), *wrong;
    tri_module *module = tri_module_simple("Own", 0, own_forward);
    int line;

    (void)state;
    wrong = tri_add(helper(x), y), line = __LINE__;
    CHECK_FAILS(tri_tensor_status(wrong), TRI_ERR_INVALID_ARG, at(line));
    wrong = tri_add(y, helper(x)), line = __LINE__;
    CHECK_FAILS(tri_tensor_status(wrong), TRI_ERR_INVALID_ARG, at(line));
    wrong = tri_add(tri_forward(module, x), y), line = __LINE__;
    CHECK_FAILS(tri_tensor_status(wrong), TRI_ERR_INVALID_ARG, at(line));
    wrong = tri_cross_entropy(tri_forward(module, x), y, NULL), line = __LINE__;
    CHECK_FAILS(tri_tensor_status(wrong), TRI_ERR_INVALID_ARG, at(line));
    tri_requires_grad(x, true);
    tri_backward(helper(x)), line = __LINE__;
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, at(line));
    tri_step_end();
    assert_non_null(strstr(tri_tensor_debug(tri_exp(helper(x))), at(__LINE__)));
    tri_step_end();
    tri_module_destroy(module);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void the_line_of_a_call_ends_with_it(void **state)
{
    tri_tensor *x = vector(4);
    double value;

    (void)state;
    assert_null(trii_site_last().file);
    assert_int_equal(tri_item_status(tri_sum(helper(x), NULL, 0, false), &value), TRI_OK);
    assert_null(trii_site_last().file);
    tri_step_end();
    tri_tensor_unref(x);
}

/* A collective whose line has been taken has ended, whatever came after it. */
static void a_line_that_was_taken_does_not_come_back(void **state)
{
    tri_tensor *x = vector(4);

    (void)state;
    tri_site_set("old.c", 1);
    (void)helper(x);
    assert_string_equal(trii_site_take().file, "old.c"); /* as in the arguments of the call */
    (void)tri_sum(helper(x), NULL, 0, false);
    assert_null(trii_site_take().file);
    assert_string_equal(trii_site_last().file, "old.c");
    tri_step_end();
    tri_site_set(NULL, 0);
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_argument_that_calls_leaves_the_line_of_the_call),
    cmocka_unit_test(the_line_of_a_call_ends_with_it),
    cmocka_unit_test(a_line_that_was_taken_does_not_come_back),
};

TEST_MAIN(tests)
