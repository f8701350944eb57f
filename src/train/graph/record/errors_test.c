/* errors_test.c - what a wrong call says: the operation, the shapes, the line; and that the error
 * reaches the call that needs the value. */
#include <math.h>

#include <trireme/ops.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "os/thread.h"
#include "testing/check.h"
#include "train/graph/step/step.h"

static tri_tensor *zeros(tri_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return tri_tensor_create((const int64_t[]){a, b, c, d}, ndim, dtype);
}

/* The handle carries INVALID_ARG and its line has both texts. */
static void refused(tri_tensor *handle, const char *call, const char *reason)
{
    CHECK_FAILS(tri_tensor_status(handle), TRI_ERR_INVALID_ARG, call);
    CHECK_FAILS(tri_tensor_status(handle), TRI_ERR_INVALID_ARG, reason);
    assert_int_equal(tri_tensor_ndim(handle), -1);
    assert_int_equal(tri_tensor_dtype(handle), TRI_DTYPE_NONE);
}

static void wrong_shapes_and_dtypes_are_named(void **state)
{
    tri_tensor *m = zeros(TRI_DTYPE_F32, 2, 4, 6, 0, 0), *v = zeros(TRI_DTYPE_F32, 1, 5, 0, 0, 0);
    tri_tensor *d = zeros(TRI_DTYPE_F64, 2, 4, 6, 0, 0), *i = zeros(TRI_DTYPE_I64, 1, 4, 0, 0, 0);
    tri_tensor *x = zeros(TRI_DTYPE_F32, 4, 2, 4, 5, 5), *w = zeros(TRI_DTYPE_F32, 4, 6, 3, 3, 3);

    (void)state;
    refused(tri_add(m, v), "tri_add(f32 [4, 6], f32 [5])", "sizes 6 and 5 in dimension 1");
    refused(tri_add(m, d), "tri_add(f32 [4, 6], f64 [4, 6])", "dtypes f32 and f64 differ");
    refused(tri_relu(i), "tri_relu(i64 [4])", "must be f32 or f64, not i64");
    refused(tri_linear(v, m, NULL), "tri_linear(f32 [5], f32 [4, 6], NULL) at ", "errors_test.c:");
    refused(tri_linear(x, m, NULL), "tri_linear", "last size of x is not the 6");
    refused(tri_linear(m, m, v), "tri_linear", "bias must be f32 [4], not f32 [5]");
    refused(tri_matmul(m, m), "tri_matmul", "a has 6 columns, but b has 4 rows");
    refused(tri_conv(x, w, NULL, NULL), "tri_conv(f32 [2, 4, 5, 5], f32 [6, 3, 3, 3], NULL)",
            "4 channels in 1 groups do not fit weights [6, 3, ..]");
    refused(tri_conv(m, w, NULL, NULL), "tri_conv",
            "x must have 4 dimensions as weight, or 3 without a batch, not 2");
    refused(tri_conv(m, m, NULL, NULL), "tri_conv",
            "weight must have 3 dimensions (of rows) or 4 (of images), not 2");
    refused(tri_conv(x, x, NULL, &(tri_conv_options){.padding = {0, 0, 1}}), "tri_conv",
            "padding {0, 0, 1}: weight has 2 dimensions after its channels");
    refused(tri_conv(x, w, NULL, &(tri_conv_options){.dilation = {3, 3}}), "tri_conv",
            "do not fit weights");
    refused(tri_conv(x, x, NULL, &(tri_conv_options){.dilation = {2, 2}}), "tri_conv",
            "larger than the padded image");
    refused(tri_max_pool(x, &(tri_pool_options){.kernel = {2, 2}, .padding = {2, 2}}),
            "tri_max_pool(f32 [2, 4, 5, 5])", "padding at most half");
    refused(tri_max_pool(x, NULL), "tri_max_pool", "kernel {0, 0, 0}: one size (of rows) or two");
    refused(tri_avg_pool(x, &(tri_pool_options){.kernel = {2, 2, 2}}), "tri_avg_pool",
            "kernel {2, 2, 2}: one size (of rows) or two (of images)");
    refused(tri_avg_pool(x, &(tri_pool_options){.kernel = {2, -2}}), "tri_avg_pool",
            "kernel {2, -2, 0}: one size");
    refused(tri_max_pool(x, &(tri_pool_options){.kernel = {2}}), "tri_max_pool",
            "x must have 3 dimensions (batch, channels, 1 of space), or 2 without the batch");
    refused(tri_max_pool(x, &(tri_pool_options){.kernel = {2, 2}, .stride = {1, 1, 1}}),
            "tri_max_pool",
            "stride {1, 1, 1}: kernel has 2 sizes, what is given for other dimensions");
    refused(tri_adaptive_max_pool(m, TRI_SHAPE(1, 1)), "tri_adaptive_max_pool(f32 [4, 6])",
            "x must have 4 dimensions (batch, channels, 2 of space), or 3 without the batch");
    refused(tri_adaptive_avg_pool(x, TRI_SHAPE(1, 1, 1)), "tri_adaptive_avg_pool",
            "3 sizes of the result: one (of rows) or two (of images)");
    refused(tri_adaptive_avg_pool(x, NULL, 2), "tri_adaptive_avg_pool", "size is NULL");
    refused(tri_adaptive_avg_pool(x, TRI_SHAPE(2, -1)), "tri_adaptive_avg_pool",
            "size[1] of the result is -1: must not be negative");
    refused(tri_reshape(m, (int64_t[]){5, -1}, 2), "tri_reshape", "24 elements do not divide");
    refused(tri_reshape(m, (int64_t[]){5, 5}, 2), "tri_reshape", "24 elements do not fit 25");
    refused(tri_expand(m, (int64_t[]){2, 4, 7}, 3), "tri_expand", "size 6 cannot grow to 7");
    refused(tri_permute(m, TRI_SHAPE(0, 0)), "tri_permute", "dims[1] is 0");
    refused(tri_flatten(m, 3), "tri_flatten", "dimension 3 is out of range (tensor of 2");
    refused(tri_sum(m, TRI_SHAPE(0, -2), false), "tri_sum", "named twice");
    refused(tri_softmax(m, 2), "tri_softmax", "dimension 2");
    refused(tri_cross_entropy(m, i, &(tri_cross_entropy_options){.label_smoothing = 1}),
            "tri_cross_entropy", "not in [0, 1)");
    refused(tri_cross_entropy(m, v, NULL), "tri_cross_entropy", "target must be i64, not f32");
    refused(tri_mse_loss(m, v, NULL), "tri_mse_loss", "target must be f32 [4, 6], not f32 [5]");
    refused(tri_dropout(m, 1.5, true), "tri_dropout", "p is 1.5");
    refused(tri_batch_norm(m, &(tri_batch_norm_args){.training = true, .weight = v}),
            "tri_batch_norm", "or neither");
    refused(tri_batch_norm(m, &(tri_batch_norm_args){.training = false}), "tri_batch_norm_eval",
            "argument 3 is NULL");
    refused(tri_batch_norm(tri_reshape(m, (int64_t[]){1, 24}, 2),
                           &(tri_batch_norm_args){.training = true}),
            "tri_batch_norm", "more than one value per channel");
    refused(tri_add(NULL, m), "tri_add(NULL, f32 [4, 6])",
            "argument 0 is NULL (tri_module_find and tri_grad return NULL for");
    CHECK_FAILS(tri_tensor_copy_out(tri_grad(m), NULL, 0), TRI_ERR_INVALID_ARG,
                "the tensor is NULL (tri_module_find and tri_grad");
    refused(tri_cross_entropy(m, m, NULL), "tri_cross_entropy",
            "target must be i64, not f32: a class for each row; with a probability p");
    refused(tri_cross_entropy(m, v, NULL), "tri_cross_entropy", "f32 (tri_cast converts)");
    CHECK_OK(tri_step_end_status()); /* nobody needed those values */
    tri_tensor_unref(m);
    tri_tensor_unref(v);
    tri_tensor_unref(d);
    tri_tensor_unref(i);
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

static void what_was_given_and_what_is_allowed_are_named(void **state)
{
    tri_tensor *m = zeros(TRI_DTYPE_F32, 2, 4, 6, 0, 0), *i = zeros(TRI_DTYPE_I64, 1, 4, 0, 0, 0);
    tri_tensor *x = zeros(TRI_DTYPE_F32, 4, 2, 4, 5, 5), *w = zeros(TRI_DTYPE_F32, 4, 6, 4, 3, 3);
    tri_tensor *row = zeros(TRI_DTYPE_F32, 3, 2, 4, 5, 0),
               *rows = zeros(TRI_DTYPE_F32, 3, 6, 4, 3, 0);
    tri_tensor *y;

    (void)state;
    refused(tri_transpose(m, 5, 0), "tri_transpose(f32 [4, 6]) at ", "errors_test.c:");
    refused(tri_softmax(m, 2), "tri_softmax(f32 [4, 6]) at ", "dimension 2 is out of range");
    refused(tri_reshape(m, (int64_t[]){5, -1}, 2), "tri_reshape", "do not divide into [5, -1]");
    refused(tri_reshape(m, (int64_t[]){5, 5}, 2), "tri_reshape", "those of [5, 5]");
    refused(tri_reshape(m, (int64_t[]){-1, 2, -1}, 3), "tri_reshape",
            "sizes of -1 in dimensions 0 and 2: only one");
    refused(tri_conv(x, w, NULL, &(tri_conv_options){.stride = {1, -2}}), "tri_conv",
            "stride[1] is -2: must be at least 1");
    refused(tri_conv(x, w, NULL, &(tri_conv_options){.padding = {-1}}), "tri_conv",
            "padding[0] is -1: must be at least 0");
    refused(
        tri_conv(row, rows, NULL, &(tri_conv_options){.stride = {-2}}), "tri_conv",
        "stride[0] is -2: must be at least 1"); /* as it was given, though it is that of a width */
    refused(tri_conv(x, w, NULL, &(tri_conv_options){.groups = -1}), "tri_conv",
            "groups is -1: must be at least 1");
    refused(tri_dropout(m, 1.5, true), "tri_dropout(f32 [4, 6]) at ", "p is 1.5, not in [0, 1]");
    refused(tri_masked_fill(i, tri_eq(i, i), 1e300), "tri_masked_fill", "1e+300 does not fit i64");
    refused(tri_pad(i, TRI_SHAPE(1, 1), NAN), "tri_pad", "does not fit i64");
    refused(tri_sum(i, NULL, 0, false), "tri_sum", "not i64 (tri_cast converts)");
    refused(tri_full(TRI_SHAPE(2), 1e300, TRI_DTYPE_I8), "tri_full", "1e+300 does not fit i8");
    refused(tri_full(TRI_SHAPE(2), -1, TRI_DTYPE_U8), "tri_full", "-1 does not fit u8 (0 to 255)");
    refused(tri_full(TRI_SHAPE(2), NAN, TRI_DTYPE_I64), "tri_full", "does not fit i64");
    refused(tri_full(TRI_SHAPE(2), 1e300, TRI_DTYPE_NONE), "tri_full", "does not fit f32");
    y = tri_full(TRI_SHAPE(1), -INFINITY, TRI_DTYPE_F32);
    assert_true(tri_item(y) == -INFINITY);
    CHECK_NEAR(tri_item(tri_cast(tri_full(TRI_SHAPE(1), -128, TRI_DTYPE_I8), TRI_DTYPE_F32)), -128,
               0);
    y = tri_square(tri_full(TRI_SHAPE(1), 3, TRI_DTYPE_F32));
    CHECK_OK(tri_run());
    CHECK_FAILS(tri_item_status(y, &(double){0}), TRI_ERR_STATE, "the value of tri_square at ");
    CHECK_FAILS(tri_tensor_status(tri_neg(y)), TRI_ERR_STATE,
                "argument 0 (the value of tri_square at ");
    CHECK_OK(tri_step_end_status());
    y = tri_tensor_create(TRI_SHAPE(2, -1), TRI_DTYPE_F32);
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG, "tri_tensor_create at ");
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG, "size -1 of dimension 1 is negative");
    tri_tensor_unref(y);
    tri_tensor_unref(m);
    tri_tensor_unref(i);
    tri_tensor_unref(x);
    tri_tensor_unref(row);
    tri_tensor_unref(rows);
    tri_tensor_unref(w);
}

/* What is no probability: a loss that TRI_CHECK=nan finds, instead of a number that pleases. */
static void a_loss_of_probabilities_of_others_is_not_a_number(void **state)
{
    const float p[4] = {0, 1, 1.5f, -0.5f}, t[4] = {0, 1, 1, 0};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(4), TRI_DTYPE_F32, p);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(4), TRI_DTYPE_F32, t);
    const tri_bce_loss_options each = {.reduction = TRI_REDUCTION_NONE};
    float loss[4], grad[4];
    tri_tensor *l;

    (void)state;
    tri_requires_grad(x, true);
    l = tri_keep(tri_bce_loss(x, y, &each));
    tri_backward(tri_sum(l, NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(l, loss, sizeof(loss)));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), grad, sizeof(grad)));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(isnan(loss[i]) != 0, i > 1);
        assert_int_equal(isnan(grad[i]) != 0, i > 1);
    }
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void a_failed_tensor_fails_whatever_uses_it(void **state)
{
    tri_tensor *bad = tri_tensor_create((int64_t[]){-1}, 1, TRI_DTYPE_F32);
    tri_tensor *good = zeros(TRI_DTYPE_F32, 1, 2, 0, 0, 0);
    float out[2];

    (void)state;
    CHECK_FAILS(tri_tensor_status(bad), TRI_ERR_INVALID_ARG, "size -1 of dimension 0 is negative");
    refused(tri_mul(good, tri_relu(bad)), "size -1", "size -1");
    CHECK_FAILS(tri_tensor_copy_in(bad, out, 8), TRI_ERR_INVALID_ARG, "size -1");
    tri_tensor_unref(bad);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(good);
    bad = tri_tensor_create(NULL, 0, TRII_TENSOR_DTYPES);
    assert_int_equal(tri_tensor_ndim(bad), -1);
    tri_tensor_unref(bad);
}

static void an_error_without_a_status_reaches_the_next_run(void **state)
{
    tri_tensor *x = zeros(TRI_DTYPE_F32, 1, 2, 0, 0, 0), *loss = tri_sum(x, NULL, 0, false);
    float out[2];

    (void)state;
    tri_backward(loss); /* x requires none */
    CHECK_FAILS(tri_tensor_copy_out(x, out, sizeof(out)), TRI_ERR_INVALID_ARG,
                "requires a gradient");
    tri_step_end(); /* that has been told */
    CHECK_OK(tri_tensor_copy_out(x, out, sizeof(out)));
    tri_backward(tri_sum(x, NULL, 0, false));
    tri_step_end(); /* returns nothing: the error waits */
    CHECK_FAILS(tri_tensor_copy_out(x, out, sizeof(out)), TRI_ERR_INVALID_ARG,
                "requires a gradient");
    CHECK_OK(tri_tensor_copy_out(x, out, sizeof(out))); /* told once */
    tri_requires_grad(x, true);
    tri_backward(tri_relu(x));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG,
                "one floating-point number, not f32 [2]");
    tri_no_grad_begin();
    loss = tri_sum(x, NULL, 0, false);
    tri_no_grad_end();
    tri_backward(loss);
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "tri_no_grad_begin");
    tri_backward_of(&loss, 1, &(tri_backward_options){.count = &(int64_t){-1}});
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "tri_no_grad_begin"); /* the first */
    tri_tensor_unref(x);
}

/* Between the two, the run has dropped what the first one had no more use for. */
static void a_second_backward_behind_a_run_names_the_remedy(void **state)
{
    const float two[2] = {2, 3};
    tri_tensor *x = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_F32, two), *loss;
    float grad[2];

    (void)state;
    tri_requires_grad(x, true);
    loss = tri_sum(tri_mul(tri_square(x), tri_exp(x)), NULL, 0, false);
    tri_backward(loss);
    assert_false(isnan(tri_item(loss)));
    tri_backward(loss);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE,
                "a second tri_backward through what has run since the first: call both before");
    assert_non_null(strstr(tri_last_error(), "errors_test.c:"));
    loss = tri_sum(tri_mul(tri_square(x), x), NULL, 0, false);
    tri_backward(loss); /* both before the run add up, to what the first had left */
    tri_backward(loss);
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), grad, sizeof(grad)));
    CHECK_NEAR(grad[0], (4 + 4) * expf(2) + 2 * 3 * 4, 1e-4);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

static void a_wrong_target_is_found_when_the_step_runs(void **state)
{
    const int64_t target[2] = {1, 7};
    tri_tensor *logits = zeros(TRI_DTYPE_F32, 2, 2, 3, 0, 0);
    tri_tensor *t = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_I64, target);
    tri_tensor *loss, *after;
    char where[128];
    const int line = __LINE__ + 3;

    (void)state;
    loss = tri_cross_entropy(tri_neg(logits), t, NULL);
    snprintf(where, sizeof(where), "errors_test.c:%d, operation 2 of the step: target 7 of row 1",
             line);
    after = tri_mul_scalar(loss, 2);
    assert_true(isnan(tri_item(loss)));
    assert_non_null(strstr(tri_last_error(), "tri_cross_entropy at "));
    assert_non_null(strstr(tri_last_error(), where));
    assert_non_null(strstr(tri_last_error(), "is out of range (3 classes)"));
    assert_true(isnan(tri_item(after))); /* of the same run */
    assert_non_null(strstr(tri_last_error(), "target 7"));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG, "target 7");
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(logits);
    tri_tensor_unref(t);
}

typedef struct other {
    tri_tensor *handle, *persistent;
    tri_status on_handle, own;
    char line[256];
} other;

static void other_thread(void *arg)
{
    other *o = arg;

    /* as many values as the other step has, so that only the step tells them apart */
    o->own = tri_tensor_status(tri_relu(tri_relu(o->persistent)));
    o->on_handle = tri_tensor_status(tri_neg(o->handle));
    snprintf(o->line, sizeof(o->line), "%s", tri_last_error());
    tri_step_end();
}

static void another_thread_cannot_use_a_step_tensor(void **state)
{
    long live = (trii_step_release(), trii_alloc_live());
    tri_tensor *x = zeros(TRI_DTYPE_F32, 1, 2, 0, 0, 0);
    other o = {.handle = tri_relu(x), .persistent = zeros(TRI_DTYPE_F32, 1, 2, 0, 0, 0)};
    trii_thread thread;

    (void)state;
    CHECK_OK(trii_thread_start(&thread, "other", other_thread, &o));
    trii_thread_join(&thread);
    assert_int_equal(o.on_handle, TRI_ERR_STATE);
    assert_non_null(strstr(o.line, "belongs to the step of thread"));
    assert_int_equal(o.own, TRI_OK);
    CHECK_OK(tri_tensor_status(o.handle));
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(o.persistent);
    trii_step_release();
    assert_int_equal(trii_alloc_live(), live); /* the thread took its recorder along */
}

/* Sizes whose product wraps around: a result of 2^64 elements had none, one of 2^62 no bytes. */
static void a_result_beyond_any_memory_is_refused(void **state)
{
    const int64_t k31 = INT64_C(1) << 31, k32 = INT64_C(1) << 32;
    tri_tensor *one = zeros(TRI_DTYPE_F32, 2, 1, 1, 0, 0);
    tri_tensor *tall = zeros(TRI_DTYPE_F32, 2, k31, 0, 0, 0);
    tri_tensor *wide = zeros(TRI_DTYPE_F32, 2, 0, k31, 0, 0);
    tri_tensor *empty = zeros(TRI_DTYPE_F32, 3, 0, k31, 1 << 20, 0);
    const char *why = "has more than 2^48 elements";

    (void)state;
    refused(tri_expand(one, (const int64_t[]){k31, k31}, 2), "tri_expand(f32 [1, 1])", why);
    refused(tri_expand(one, (const int64_t[]){k32, k32}, 2), "tri_expand(f32 [1, 1])", why);
    refused(tri_matmul(tall, wide), "tri_matmul", "f32 [2147483648, 2147483648]");
    refused(tri_linear(tall, tall, NULL), "tri_linear", why);
    refused(tri_sum(empty, TRI_SHAPE(0), false), "tri_sum", why);
    refused(tri_relu(empty), "tri_relu", "more than 2^48 elements, counted without its sizes of 0");
    CHECK_OK(tri_tensor_status(tri_relu(wide)));
    tri_step_end();
    tri_tensor_unref(one);
    tri_tensor_unref(tall);
    tri_tensor_unref(wide);
    tri_tensor_unref(empty);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(wrong_shapes_and_dtypes_are_named),
    cmocka_unit_test(what_was_given_and_what_is_allowed_are_named),
    cmocka_unit_test(a_loss_of_probabilities_of_others_is_not_a_number),
    cmocka_unit_test(a_failed_tensor_fails_whatever_uses_it),
    cmocka_unit_test(an_error_without_a_status_reaches_the_next_run),
    cmocka_unit_test(a_second_backward_behind_a_run_names_the_remedy),
    cmocka_unit_test(a_result_beyond_any_memory_is_refused),
    cmocka_unit_test(a_wrong_target_is_found_when_the_step_runs),
    cmocka_unit_test(another_thread_cannot_use_a_step_tensor),
};

TEST_MAIN(tests)
