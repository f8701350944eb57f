/*
 * device_empty_test.c - steps on tensors without elements, as an empty last batch makes them:
 * every family forward and backward, in every dtype, on the device and with the reference kernels.
 */
#include <math.h>

#include <trireme/ops.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

typedef tri_tensor *(*unary_fn)(tri_tensor *x);
typedef tri_tensor *(*binary_fn)(tri_tensor *a, tri_tensor *b);

static tri_tensor *gelu(tri_tensor *x)
{
    return tri_gelu(x, TRI_GELU_TANH);
}

static tri_tensor *leaky(tri_tensor *x)
{
    return tri_leaky_relu(x, 0.1);
}

static tri_tensor *plus(tri_tensor *x)
{
    return tri_add_scalar(x, 0.1);
}

static tri_tensor *times(tri_tensor *x)
{
    return tri_mul_scalar(x, 0.1);
}

static tri_tensor *rows(tri_tensor *x)
{
    return tri_softmax(x, -1);
}

static tri_tensor *log_columns(tri_tensor *x)
{
    return tri_log_softmax(x, 0);
}

static tri_tensor *dropped(tri_tensor *x)
{
    return tri_dropout(x, 0.5, true);
}

static tri_tensor *chained(tri_tensor *x)
{
    return tri_mul(tri_tanh(tri_add_scalar(x, 1)), tri_sigmoid(tri_neg(x)));
}

static const unary_fn unary[] = {
    tri_neg, tri_abs,  tri_square, tri_sqrt, tri_exp, tri_log, tri_relu,    tri_sigmoid, tri_tanh,
    gelu,    tri_silu, leaky,      plus,     times,   rows,    log_columns, dropped,     chained,
};
static const binary_fn binary[] = {tri_add, tri_sub, tri_mul, tri_div, tri_maximum, tri_minimum};
static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BF16};

/* Zeros that require a gradient; in bf16 as a step computes: rounded from f32. */
static tri_tensor *leaf(tri_dtype dtype, const int64_t *shape, int ndim)
{
    tri_tensor *x = tri_tensor_create(shape, ndim, dtype == TRI_DTYPE_BF16 ? TRI_DTYPE_F32 : dtype);

    tri_requires_grad(x, true);
    return x;
}

static tri_tensor *in_dtype(tri_tensor *x, tri_dtype dtype)
{
    return dtype == TRI_DTYPE_BF16 ? tri_cast(x, dtype) : x;
}

/* Runs forward and backward of what hangs on the leaves, and that their gradients are zeros. */
static void check_step(tri_tensor *y, tri_tensor *const *leaves, int n)
{
    tri_keep(y);
    tri_backward(tri_sum(y, NULL, 0, false));
    CHECK_OK(tri_run());
    for (int i = 0; i < n; i++) {
        tri_tensor *grad = tri_grad(leaves[i]);
        int64_t numel = tri_tensor_numel(leaves[i]);
        size_t size = tri_dtype_size(tri_tensor_dtype(leaves[i]));
        void *data = malloc((size_t)numel * size + 1);

        assert_non_null(grad);
        assert_int_equal(tri_tensor_numel(grad), numel);
        memset(data, 1, (size_t)numel * size);
        CHECK_OK(tri_tensor_copy_out(grad, data, (size_t)numel * size));
        for (int64_t k = 0; k < numel; k++)
            assert_true((size == 4 ? (double)((float *)data)[k] : ((double *)data)[k]) == 0);
        free(data);
    }
    CHECK_OK(tri_step_end_status());
}

static void on_both(void (*check)(tri_dtype dtype))
{
    for (size_t d = 0; d < TRII_COUNT_OF(dtypes); d++) {
        trii_executor_set(NULL);
        check(dtypes[d]);
        trii_executor_set(&trii_executor_reference);
        check(dtypes[d]);
    }
    trii_executor_set(NULL);
}

static void check_unary(tri_dtype dtype)
{
    static const int64_t shapes[][2] = {{0, 4}, {4, 0}, {0, 0}};

    for (size_t s = 0; s < TRII_COUNT_OF(shapes); s++) {
        for (size_t f = 0; f < TRII_COUNT_OF(unary); f++) {
            tri_tensor *x = leaf(dtype, shapes[s], 2);
            tri_tensor *y = unary[f](in_dtype(x, dtype));

            CHECK_OK(tri_tensor_status(y));
            assert_int_equal(tri_tensor_numel(y), 0);
            check_step(y, &x, 1);
            tri_tensor_unref(x);
        }
    }
}

static void element_wise_operations(void **state)
{
    (void)state;
    on_both(check_unary);
}

static void check_binary(tri_dtype dtype)
{
    static const int64_t shapes[][2][2] = {
        {{0, 4}, {0, 4}}, {{0, 4}, {1, 4}}, {{4, 1}, {1, 0}}, {{1, 1}, {0, 3}}, {{5, 0}, {5, 1}}};

    for (size_t s = 0; s < TRII_COUNT_OF(shapes); s++) {
        for (size_t f = 0; f < TRII_COUNT_OF(binary); f++) {
            tri_tensor *x[2] = {leaf(dtype, shapes[s][0], 2), leaf(dtype, shapes[s][1], 2)};
            tri_tensor *y = binary[f](in_dtype(x[0], dtype), in_dtype(x[1], dtype));

            CHECK_OK(tri_tensor_status(y));
            assert_int_equal(tri_tensor_numel(y), 0);
            check_step(y, x, 2);
            tri_tensor_unref(x[0]);
            tri_tensor_unref(x[1]);
        }
    }
}

static void element_wise_operations_that_broadcast(void **state)
{
    (void)state;
    on_both(check_binary);
}

static void check_reductions(tri_dtype dtype)
{
    static const int64_t dims[2] = {0, 1};

    for (int variant = 0; variant < 12; variant++) {
        int64_t shape[2] = {variant & 1 ? 3 : 0, variant & 1 ? 0 : 3};
        const int64_t *over = variant / 4 == 2 ? NULL : &dims[variant / 4];
        bool mean = variant & 2;
        tri_tensor *x = leaf(dtype, shape, 2), *a = in_dtype(x, dtype), *y;
        double values[3] = {7, 7, 7};
        int64_t n;

        y = tri_keep(mean ? tri_mean(a, over, 1, true) : tri_sum(a, over, 1, true));
        y = tri_cast(y, TRI_DTYPE_F64);
        n = tri_tensor_numel(y);
        CHECK_OK(tri_tensor_copy_out(y, values, (size_t)n * sizeof(double)));
        for (int64_t i = 0; i < n; i++)
            assert_true(mean ? isnan(values[i]) : values[i] == 0);
        check_step(y, &x, 1);
        tri_tensor_unref(x);
    }
}

static void reductions(void **state)
{
    (void)state;
    on_both(check_reductions);
}

static void check_losses(tri_dtype dtype)
{
    int64_t shape[2] = {0, 10}, none = 0;
    tri_tensor *x = leaf(dtype, shape, 2), *a = in_dtype(x, dtype);
    tri_tensor *target = tri_tensor_create(&none, 1, TRI_DTYPE_I64), *loss, *correct;
    const tri_cross_entropy_options smooth = {.label_smoothing = 0.1};
    int64_t count = 7;

    loss = tri_keep(tri_cross_entropy(a, target, &smooth));
    correct = tri_keep(tri_count_correct(a, target));
    assert_true(isnan(tri_item(loss)));
    CHECK_OK(tri_tensor_copy_out(correct, &count, sizeof(count)));
    assert_int_equal(count, 0);
    check_step(loss, &x, 1);
    a = in_dtype(x, dtype);
    loss = tri_keep(tri_mse_loss(a, a, NULL));
    assert_true(isnan(tri_item(loss)));
    check_step(loss, &x, 1);
    tri_tensor_unref(target);
    tri_tensor_unref(x);
}

static void losses(void **state)
{
    (void)state;
    on_both(check_losses);
}

static void check_products(tri_dtype dtype)
{
    static const int64_t sizes[][3] = {{0, 3, 5},    {3, 0, 5},    {3, 5, 0},  {0, 4096, 10},
                                       {4096, 0, 7}, {7, 4096, 0}, {0, 0, 0},  {0, 25088, 3},
                                       {2500, 0, 3}, {0, 3000, 0}, {64, 0, 70}};

    for (size_t s = 0; s < TRII_COUNT_OF(sizes); s++) {
        int64_t m = sizes[s][0], k = sizes[s][1], n = sizes[s][2];

        for (int with_bias = 0; with_bias < 2; with_bias++) {
            tri_tensor *x[3] = {leaf(dtype, (int64_t[]){m, k}, 2),
                                leaf(dtype, (int64_t[]){n, k}, 2), leaf(dtype, &n, 1)};
            tri_tensor *y;

            if (dtype == TRI_DTYPE_BF16)
                tri_autocast_begin(dtype);
            y = tri_linear(x[0], x[1], with_bias ? x[2] : NULL);
            if (dtype == TRI_DTYPE_BF16)
                tri_autocast_end();
            CHECK_OK(tri_tensor_status(y));
            if (m * n == 0) /* else the bias has a gradient that is not zero */
                check_step(y, x, 2 + with_bias);
            else
                check_step(y, x, 2);
            for (int i = 0; i < 3; i++)
                tri_tensor_unref(x[i]);
        }
        for (int64_t batch = 0; batch < 3; batch += 2) {
            tri_tensor *x[2] = {leaf(dtype, (int64_t[]){batch, m, k}, 3),
                                leaf(dtype, (int64_t[]){batch, k, n}, 3)};
            tri_tensor *y = tri_matmul(in_dtype(x[0], dtype), in_dtype(x[1], dtype));

            CHECK_OK(tri_tensor_status(y));
            check_step(y, x, 2);
            tri_tensor_unref(x[0]);
            tri_tensor_unref(x[1]);
        }
    }
}

static void products(void **state)
{
    (void)state;
    on_both(check_products);
}

static void products_of_an_empty_batch_of_matrices(void **state)
{
    tri_tensor *x[2] = {leaf(TRI_DTYPE_F32, (int64_t[]){0, 300, 4096}, 3),
                        leaf(TRI_DTYPE_F32, (int64_t[]){0, 4096, 70}, 3)};

    (void)state;
    check_step(tri_matmul(x[0], x[1]), x, 2);
    tri_tensor_unref(x[0]);
    tri_tensor_unref(x[1]);
}

#define MANY (INT64_C(1) << 40)

static tri_tensor *log_middle(tri_tensor *x)
{
    return tri_log_softmax(x, 1);
}

static tri_tensor *added_up(tri_tensor *x)
{
    return tri_cumsum(x, 1);
}

static tri_tensor *first_none(tri_tensor *x)
{
    return tri_topk(x, 0, 1, false, NULL);
}

static tri_tensor *itself_transposed(tri_tensor *x)
{
    return tri_matmul(x, tri_transpose(x, 1, 2));
}

/* Nothing goes through them one by one, or the test would not end. */
static void check_many(tri_dtype dtype)
{
    static const unary_fn fns[] = {log_middle, added_up, first_none, itself_transposed, rows};

    for (size_t f = 0; f < TRII_COUNT_OF(fns); f++) {
        tri_tensor *x = leaf(dtype, (int64_t[]){MANY, 0, 3}, 3);

        check_step(fns[f](in_dtype(x, dtype)), &x, 1);
        tri_tensor_unref(x);
    }
}

static void any_number_of_rows_without_elements(void **state)
{
    (void)state;
    on_both(check_many);
}

/* With all those products of sizes would overflow in one place or the other. */
static void sizes_beside_a_zero_are_refused_where_their_product_overflows(void **state)
{
    const int64_t large[3] = {0, MANY, MANY};
    tri_tensor *x = tri_tensor_create(large, 3, TRI_DTYPE_F32);

    (void)state;
    CHECK_FAILS(tri_tensor_status(x), TRI_ERR_INVALID_ARG, "address space");
    tri_tensor_unref(x);
    x = leaf(TRI_DTYPE_F32, (int64_t[]){0, MANY}, 2);
    CHECK_FAILS(tri_tensor_status(tri_expand(tri_reshape(x, (int64_t[]){0, 1, MANY}, 3), large, 3)),
                TRI_ERR_INVALID_ARG, "more than 2^48 elements, counted without its sizes of 0");
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
}

/* What autocast makes of an empty last batch: the classifier's gradients are zeros. */
static void a_network_in_bf16(void **state)
{
    int64_t none = 0;
    tri_tensor *x[5] = {
        leaf(TRI_DTYPE_F32, (int64_t[]){0, 64}, 2), leaf(TRI_DTYPE_F32, (int64_t[]){32, 64}, 2),
        leaf(TRI_DTYPE_F32, (int64_t[]){32}, 1), leaf(TRI_DTYPE_F32, (int64_t[]){10, 32}, 2),
        leaf(TRI_DTYPE_F32, (int64_t[]){10}, 1)};
    tri_tensor *target = tri_tensor_create(&none, 1, TRI_DTYPE_I64), *y;

    (void)state;
    for (int threads = 1; threads < 4; threads++) {
        trii_parallel_set_threads(threads);
        tri_autocast_begin(TRI_DTYPE_BF16);
        y = tri_linear(tri_relu(tri_linear(x[0], x[1], x[2])), x[3], x[4]);
        y = tri_mul_scalar(tri_cross_entropy(y, target, NULL), 0.5);
        tri_autocast_end();
        check_step(y, x, 5);
    }
    for (int i = 0; i < 5; i++)
        tri_tensor_unref(x[i]);
    tri_tensor_unref(target);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(element_wise_operations),
        cmocka_unit_test(element_wise_operations_that_broadcast),
        cmocka_unit_test(reductions),
        cmocka_unit_test(losses),
        cmocka_unit_test(products),
        cmocka_unit_test(products_of_an_empty_batch_of_matrices),
        cmocka_unit_test(any_number_of_rows_without_elements),
        cmocka_unit_test(sizes_beside_a_zero_are_refused_where_their_product_overflows),
        cmocka_unit_test(a_network_in_bf16),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
