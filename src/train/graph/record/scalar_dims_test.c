/* scalar_dims_test.c - a tensor without dimensions has, for those that name one, the dimensions 0
 * and -1, as in PyTorch; and no others. */
#include <trireme/ops.h>

#include "testing/check.h"
#include "train/graph/step/step.h"

static tri_tensor *sum(tri_tensor *x, int dim)
{
    return tri_sum(x, &(int64_t){dim}, 1, false);
}

static tri_tensor *mean_kept(tri_tensor *x, int dim)
{
    return tri_mean(x, &(int64_t){dim}, 1, true);
}

static tri_tensor *amax(tri_tensor *x, int dim)
{
    return tri_amax(x, &(int64_t){dim}, 1, false);
}

static tri_tensor *transpose_first(tri_tensor *x, int dim)
{
    return tri_transpose(x, dim, 0);
}

static tri_tensor *transpose_second(tri_tensor *x, int dim)
{
    return tri_transpose(x, -1, dim);
}

static tri_tensor *argmax(tri_tensor *x, int dim)
{
    return tri_argmax(x, dim, false);
}

static const struct {
    const char *name;
    tri_tensor *(*call)(tri_tensor *x, int dim);
    double value, grad; /* of 3; grad < 0: there is none */
    int ndim;
} calls[] = {
    {"sum", sum, 3, 1, 0},
    {"mean", mean_kept, 3, 1, 0},
    {"amax", amax, 3, 1, 0},
    {"argmax", argmax, 0, -1, 0},
    {"flip", tri_flip, 3, 1, 0},
    {"softmax", tri_softmax, 1, 0, 0},
    {"log_softmax", tri_log_softmax, 0, 0, 0},
    {"transpose", transpose_first, 3, 1, 0},
    {"transpose", transpose_second, 3, 1, 0},
    {"flatten", tri_flatten, 3, 1, 1},
};
#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

static void check_good(size_t i, int dim)
{
    tri_tensor *x = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &(float){3}), *y;
    bool grad = calls[i].grad >= 0;

    tri_requires_grad(x, true);
    y = tri_keep(calls[i].call(x, dim));
    CHECK_OK(tri_tensor_status(y));
    assert_int_equal(tri_tensor_ndim(y), calls[i].ndim);
    if (grad)
        tri_backward(tri_reshape(y, NULL, 0));
    assert_true(tri_item(y) == calls[i].value);
    if (grad)
        assert_true(tri_item(tri_grad(x)) == calls[i].grad);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static void check_bad(size_t i, int dim)
{
    tri_tensor *x = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &(float){3});
    char line[64];

    snprintf(line, sizeof(line), "dimension %d is out of range (tensor of 0 dimensions)", dim);
    CHECK_FAILS(tri_tensor_status(calls[i].call(x, dim)), TRI_ERR_INVALID_ARG, line);
    assert_non_null(strstr(tri_last_error(), calls[i].name));
    tri_step_end();
    tri_tensor_unref(x);
}

static void a_scalar_has_dimension_0_to_those_that_name_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        check_good(i, 0);
        check_good(i, -1);
        check_bad(i, 1);
        check_bad(i, -2);
    }
}

static void the_reference_kernels_know_it_too(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    for (size_t i = 0; i < N_CALLS; i++) {
        check_good(i, 0);
        check_good(i, -1);
    }
}

/* A dimension is named once, also by its two names. */
static void no_scalar_has_two_dimensions(void **state)
{
    tri_tensor *x = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &(float){3});

    (void)state;
    CHECK_FAILS(tri_tensor_status(tri_sum(x, (int64_t[]){0, -1}, 2, false)), TRI_ERR_INVALID_ARG,
                "2 dimensions are named");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(tri_permute(x, (int64_t[]){0}, 1)), TRI_ERR_INVALID_ARG,
                "1 dimensions are named, the tensor has 0");
    tri_step_end();
    tri_tensor_unref(x);
}

/* As PyTorch has it for an empty list. */
static void no_dimension_named_means_all(void **state)
{
    static const int64_t none[1];
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_F32, (float[]){1, 2, 3, 6});

    (void)state;
    assert_true(tri_item(tri_sum(x, none, 0, false)) == 12);
    assert_true(tri_item(tri_mean(x, none, 0, false)) == 3);
    assert_true(tri_item(tri_amax(x, none, 0, false)) == 6);
    assert_int_equal(tri_tensor_ndim(tri_sum(x, none, 0, true)), 2);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_scalar_has_dimension_0_to_those_that_name_one),
    cmocka_unit_test(the_reference_kernels_know_it_too),
    cmocka_unit_test(no_scalar_has_two_dimensions),
    cmocka_unit_test(no_dimension_named_means_all),
};

TEST_MAIN(tests)
