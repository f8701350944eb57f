/*
 * zero_sizes_test.c - operations on tensors with a size of zero, as PyTorch has them: an empty
 * batch goes through forward and backward and leaves gradients of zero; an empty image, or nothing
 * to choose from, is refused when it is recorded. Each in f32 and bf16, by the plan and one by one.
 */
#include <trireme/ops.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "train/graph/step/step.h"

typedef struct zero_case {
    const char *name;
    tri_tensor *(*build)(tri_tensor *x, tri_tensor *w);
    int ndim;
    int64_t x[4], w[4];  /* w[0] negative: none */
    const char *refusal; /* NULL: it runs, to a result of this shape */
    int out_ndim;
    int64_t out[4];
} zero_case;

static tri_tensor *max_pool(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_max_pool(x, &(tri_pool_options){.kernel = {2, 2}, .padding = {1, 1}});
}

static tri_tensor *avg_pool(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_avg_pool(x, &(tri_pool_options){.kernel = {2, 2}, .padding = {1, 1}});
}

static tri_tensor *adaptive_max(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_adaptive_max_pool(x, TRI_SHAPE(2, 2));
}

static tri_tensor *adaptive_avg(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_adaptive_avg_pool(x, TRI_SHAPE(2, 2));
}

static tri_tensor *adaptive_avg_to_nothing(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_adaptive_avg_pool(x, TRI_SHAPE(0, 3));
}

static tri_tensor *conv(tri_tensor *x, tri_tensor *w)
{
    return tri_conv(x, w, NULL, &(tri_conv_options){.padding = {1, 1}});
}

static tri_tensor *norm(tri_tensor *x, tri_tensor *w)
{
    return tri_relu(tri_batch_norm(x, &(tri_batch_norm_args){.weight = w,
                                                             .bias = w,
                                                             .training = true,
                                                             .momentum = TRI_SET(0.1),
                                                             .eps = TRI_SET(1e-5)}));
}

static tri_tensor *norm_eval(tri_tensor *x, tri_tensor *w)
{
    return tri_relu(tri_batch_norm(
        x, &(tri_batch_norm_args){
               .weight = w, .bias = w, .running_mean = w, .running_var = w, .eps = TRI_SET(1e-5)}));
}

static tri_tensor *permute(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_permute(x, TRI_SHAPE(2, 0, 1));
}

static tri_tensor *flip(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_flip(x, 0);
}

static tri_tensor *dropout(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_dropout(x, 0.5, true);
}

static tri_tensor *amax(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_amax(x, TRI_SHAPE(1), false);
}

static tri_tensor *amax_all(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_amax(x, NULL, 0, false);
}

static tri_tensor *argmax(tri_tensor *x, tri_tensor *w)
{
    (void)w;
    return tri_argmax(x, 1, false);
}

#define NONE                                                                                       \
    {                                                                                              \
        -1                                                                                         \
    }
#define POOLED "only the batch may be empty"
/* clang-format off */
static const zero_case cases[] = {
    {"max_pool", max_pool, 4, {0, 2, 4, 4}, NONE, NULL, 4, {0, 2, 3, 3}},
    {"max_pool, no channels", max_pool, 4, {1, 0, 4, 4}, NONE, POOLED, 0, {0}},
    {"max_pool, no rows", max_pool, 4, {1, 1, 0, 4}, NONE, POOLED, 0, {0}},
    {"max_pool, no columns", max_pool, 4, {1, 1, 4, 0}, NONE, POOLED, 0, {0}},
    {"avg_pool", avg_pool, 4, {0, 2, 4, 4}, NONE, NULL, 4, {0, 2, 3, 3}},
    {"avg_pool, no channels", avg_pool, 4, {1, 0, 4, 4}, NONE, POOLED, 0, {0}},
    {"avg_pool, no rows", avg_pool, 4, {1, 1, 0, 4}, NONE, POOLED, 0, {0}},
    {"adaptive_max", adaptive_max, 4, {0, 2, 4, 4}, NONE, NULL, 4, {0, 2, 2, 2}},
    {"adaptive_max, no channels", adaptive_max, 4, {1, 0, 4, 4}, NONE, POOLED, 0, {0}},
    {"adaptive_max, no rows", adaptive_max, 4, {1, 2, 0, 4}, NONE, POOLED, 0, {0}},
    {"adaptive_avg", adaptive_avg, 4, {0, 2, 4, 4}, NONE, NULL, 4, {0, 2, 2, 2}},
    {"adaptive_avg, no channels", adaptive_avg, 4, {1, 0, 4, 4}, NONE, NULL, 4, {1, 0, 2, 2}},
    {"adaptive_avg, no columns", adaptive_avg, 4, {1, 2, 4, 0}, NONE, POOLED, 0, {0}},
    {"adaptive_avg to nothing", adaptive_avg_to_nothing, 4, {1, 2, 4, 4}, NONE, NULL, 4, {1, 2, 0, 3}},
    {"conv", conv, 4, {0, 2, 4, 4}, {3, 2, 3, 3}, NULL, 4, {0, 3, 4, 4}},
    {"conv, no channels", conv, 4, {1, 0, 4, 4}, {3, 0, 3, 3}, NULL, 4, {1, 3, 4, 4}},
    {"conv, no rows", conv, 4, {1, 2, 0, 4}, {3, 2, 2, 2}, "may be empty", 0, {0}},
    {"conv, no columns", conv, 4, {1, 2, 4, 0}, {3, 2, 1, 1}, "may be empty", 0, {0}},
    {"conv to no channels", conv, 4, {1, 2, 4, 4}, {0, 2, 3, 3}, "may be empty", 0, {0}},
    {"conv, no kernel", conv, 4, {1, 2, 4, 4}, {3, 2, 0, 3}, "the kernel is larger", 0, {0}},
    {"norm", norm, 4, {0, 16, 4, 4}, {16}, NULL, 4, {0, 16, 4, 4}},
    {"norm of rows", norm, 2, {0, 3}, {3}, NULL, 2, {0, 3}},
    {"norm, no columns", norm, 4, {2, 2, 4, 0}, {2}, NULL, 4, {2, 2, 4, 0}},
    {"norm in evaluation", norm_eval, 4, {0, 16, 4, 4}, {16}, NULL, 4, {0, 16, 4, 4}},
    {"permute", permute, 3, {0, 3, 2}, NONE, NULL, 3, {2, 0, 3}},
    {"flip", flip, 3, {0, 3, 2}, NONE, NULL, 3, {0, 3, 2}},
    {"flip, no columns", flip, 3, {3, 2, 0}, NONE, NULL, 3, {3, 2, 0}},
    {"dropout", dropout, 2, {0, 3}, NONE, NULL, 2, {0, 3}},
    {"amax", amax, 2, {0, 3}, NONE, NULL, 1, {0}},
    {"amax, no columns", amax, 2, {3, 0}, NONE, "has no largest", 0, {0}},
    {"amax of nothing", amax_all, 2, {0, 3}, NONE, "has no largest", 0, {0}},
    {"argmax", argmax, 2, {0, 3}, NONE, NULL, 1, {0}},
    {"argmax, nothing inside", argmax, 3, {3, 4, 0}, NONE, NULL, 2, {3, 0}},
    {"argmax, no columns", argmax, 2, {3, 0}, NONE, "no element", 0, {0}},
};
/* clang-format on */

/* A gradient is there and zero. */
static void check_gradient(const zero_case *c, const char *what, tri_tensor *tensor)
{
    tri_tensor *grad = tri_grad(tensor);
    int64_t n = tri_tensor_numel(tensor);
    float data[256];

    if (grad == NULL)
        fail_msg("%s: no gradient of %s", c->name, what);
    CHECK_OK(tri_tensor_copy_out(grad, data, (size_t)n * sizeof(float)));
    for (int64_t i = 0; i < n; i++) {
        if (data[i] != 0)
            fail_msg("%s: gradient of %s [%lld] is %g", c->name, what, (long long)i,
                     (double)data[i]);
    }
}

static void check_result(const zero_case *c, tri_tensor *y, bool differentiable)
{
    if (c->refusal != NULL) {
        CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG, c->refusal);
        return;
    }
    CHECK_OK(tri_tensor_status(y));
    assert_int_equal(tri_tensor_ndim(y), c->out_ndim);
    for (int d = 0; d < c->out_ndim; d++)
        assert_int_equal(tri_tensor_size(y, d), c->out[d]);
    if (differentiable)
        tri_backward(tri_sum(tri_cast(y, TRI_DTYPE_F32), NULL, 0, false));
}

static void check_case(const zero_case *c, bool narrow)
{
    static const float zeros[256];
    int w_ndim = c->w[1] > 0 || c->w[2] > 0 ? 4 : 1;
    tri_tensor *x = tri_tensor_from(c->x, c->ndim, TRI_DTYPE_F32, zeros), *w = NULL, *y;
    bool differentiable = c->build != argmax;

    tri_requires_grad(x, true);
    if (c->w[0] >= 0) {
        w = tri_tensor_from(c->w, w_ndim, TRI_DTYPE_F32, zeros);
        tri_requires_grad(w, c->build != norm_eval);
    }
    if (narrow)
        tri_autocast_begin(TRI_DTYPE_BF16);
    y = tri_keep(c->build(narrow ? tri_cast(x, TRI_DTYPE_BF16) : x, w));
    if (narrow)
        tri_autocast_end();
    check_result(c, y, differentiable);
    CHECK_OK(tri_step_end_status());
    if (c->refusal == NULL && differentiable) {
        check_gradient(c, "x", x);
        if (w != NULL && c->build != norm_eval)
            check_gradient(c, "w", w);
    }
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

static void check_all(void)
{
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        check_case(&cases[i], false);
        check_case(&cases[i], true);
    }
}

static void empty_tensors_work_or_are_refused(void **state)
{
    (void)state;
    check_all();
}

static void empty_tensors_one_by_one(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    check_all();
}

/* A rank whose last batch is empty keeps the running statistics as they are. */
static void an_empty_batch_leaves_running_statistics(void **state)
{
    const int64_t shape[4] = {0, 3, 2, 2}, channels = 3;
    const float mean[3] = {1, 2, 3}, var[3] = {4, 5, 6};
    tri_tensor *x = tri_tensor_create(shape, 4, TRI_DTYPE_F32);
    tri_tensor *m = tri_tensor_from(&channels, 1, TRI_DTYPE_F32, mean);
    tri_tensor *v = tri_tensor_from(&channels, 1, TRI_DTYPE_F32, var);
    const tri_batch_norm_args args = {.running_mean = m,
                                      .running_var = v,
                                      .training = true,
                                      .momentum = TRI_SET(0.1),
                                      .eps = TRI_SET(1e-5)};
    float got[3];

    (void)state;
    CHECK_OK(tri_tensor_status(tri_batch_norm(x, &args)));
    CHECK_OK(tri_step_end_status());
    CHECK_OK(tri_tensor_copy_out(m, got, sizeof(got)));
    assert_memory_equal(got, mean, sizeof(got));
    CHECK_OK(tri_tensor_copy_out(v, got, sizeof(got)));
    assert_memory_equal(got, var, sizeof(got));
    tri_tensor_unref(x);
    tri_tensor_unref(m);
    tri_tensor_unref(v);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(empty_tensors_work_or_are_refused),
    cmocka_unit_test(empty_tensors_one_by_one),
    cmocka_unit_test(an_empty_batch_leaves_running_statistics),
};

TEST_MAIN(tests)
