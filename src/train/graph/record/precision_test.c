/*
 * precision_test.c - what tri_autocast makes of a step: which values are bf16, what stays f32, and
 * what a wrong use says.
 */
#include <math.h>

#include <trireme/ops.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "testing/check.h"
#include "train/graph/ops/table.h"
#include "train/graph/step/step.h"

static tri_tensor *filled(int ndim, const int64_t *shape, float first, float step)
{
    tri_tensor *tensor = tri_tensor_create(shape, ndim, TRI_DTYPE_F32);
    int64_t n = tri_tensor_numel(tensor);
    float *data = calloc((size_t)n + 1, sizeof(*data));

    for (int64_t i = 0; i < n; i++)
        data[i] = first + step * (float)(i % 17);
    CHECK_OK(tri_tensor_copy_in(tensor, data, (size_t)n * sizeof(*data)));
    free(data);
    return tensor;
}

static int count_casts(void)
{
    const trii_step *step = trii_step_current();
    int n = 0;

    for (int32_t k = 0; k < step->n_nodes; k++)
        n += step->nodes[k].op == &trii_op_cast;
    return n;
}

static void check_lowering(tri_dtype narrow)
{
    tri_tensor *x = filled(2, (int64_t[]){3, 4}, -1, 0.3f),
               *w = filled(2, (int64_t[]){5, 4}, 1, -0.1f);
    tri_tensor *images = filled(4, (int64_t[]){2, 1, 4, 4}, 0, 0.1f);
    tri_tensor *kernel = filled(4, (int64_t[]){2, 1, 3, 3}, 0, 0.1f), *y, *z;

    assert_int_equal(tri_tensor_dtype(tri_linear(x, w, NULL)), TRI_DTYPE_F32);
    tri_autocast_begin(narrow);
    y = tri_linear(x, w, NULL);
    z = tri_conv(images, kernel, NULL, NULL);
    assert_int_equal(tri_tensor_dtype(y), narrow);
    assert_int_equal(tri_tensor_dtype(z), narrow);
    assert_int_equal(tri_tensor_dtype(tri_relu(x)), TRI_DTYPE_F32); /* nothing to gain */
    tri_autocast_end();
    assert_int_equal(count_casts(), 2); /* of x and the images; none of parameters */
    assert_int_equal(tri_tensor_dtype(tri_linear(x, w, NULL)), TRI_DTYPE_F32);
    assert_int_equal(tri_tensor_dtype(tri_relu(y)), narrow);
    assert_int_equal(tri_tensor_dtype(tri_max_pool(z, &(tri_pool_options){.kernel = {2, 2}})),
                     narrow);
    assert_int_equal(tri_tensor_dtype(tri_flatten(z, 1)), narrow);
    assert_int_equal(tri_tensor_dtype(tri_add(y, y)), narrow);
    assert_int_equal(count_casts(), 2);
    /* With an f32 operand, and where sums run long, it is widened. */
    assert_int_equal(tri_tensor_dtype(tri_add(y, tri_relu(tri_linear(x, w, NULL)))), TRI_DTYPE_F32);
    assert_int_equal(tri_tensor_dtype(tri_sum(y, NULL, 0, false)), TRI_DTYPE_F32);
    assert_int_equal(tri_tensor_dtype(tri_softmax(y, 1)), TRI_DTYPE_F32);
    assert_int_equal(tri_tensor_dtype(tri_dropout(y, 0.5, true)), narrow);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(w);
    tri_tensor_unref(images);
    tri_tensor_unref(kernel);
}

static void products_are_lowered_and_what_follows_stays(void **state)
{
    (void)state;
    check_lowering(TRI_DTYPE_BF16);
    check_lowering(TRI_DTYPE_F16);
}

/* The innermost says it; what is narrow in another way meets in f32, or is rounded again. */
static void bf16_and_f16_within_each_other(void **state)
{
    tri_tensor *x = filled(2, (int64_t[]){3, 4}, -1, 0.3f), *brain = NULL, *half = NULL;
    tri_tensor *w = filled(2, (int64_t[]){4, 4}, 1, -0.1f), *parts[2];

    (void)state;
    TRI_AUTOCAST(TRI_DTYPE_BF16)
    {
        TRI_AUTOCAST(TRI_DTYPE_F16)
        half = tri_linear(x, w, NULL);
        brain = tri_linear(x, w, NULL);
        assert_int_equal(tri_tensor_dtype(half), TRI_DTYPE_F16);
        assert_int_equal(tri_tensor_dtype(brain), TRI_DTYPE_BF16);
        assert_int_equal(tri_tensor_dtype(tri_linear(half, w, NULL)), TRI_DTYPE_BF16);
        assert_int_equal(tri_tensor_dtype(tri_matmul(half, tri_transpose(brain, 0, 1))),
                         TRI_DTYPE_BF16);
    }
    assert_int_equal(tri_tensor_dtype(tri_linear(half, w, NULL)), TRI_DTYPE_F16);
    assert_int_equal(tri_tensor_dtype(tri_add(half, brain)), TRI_DTYPE_F32);
    parts[0] = half;
    parts[1] = brain;
    assert_int_equal(tri_tensor_dtype(tri_concat(parts, 2, 0)), TRI_DTYPE_F32);
    parts[1] = half;
    assert_int_equal(tri_tensor_dtype(tri_concat(parts, 2, 0)), TRI_DTYPE_F16);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

/* A step that repeats another but for what it rounds to is another. */
static void the_same_step_in_another_type(void **state)
{
    static const tri_dtype types[] = {TRI_DTYPE_BF16, TRI_DTYPE_F16, TRI_DTYPE_F16, TRI_DTYPE_BF16};
    tri_tensor *x = filled(2, (int64_t[]){2, 3}, 1.0009765625f, 0.25f);
    tri_tensor *w = filled(2, (int64_t[]){1, 3}, 1, 0);

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(types); i++) {
        tri_tensor *y;
        uint16_t got[2];

        tri_autocast_begin(types[i]);
        y = tri_keep(tri_linear(x, w, NULL));
        tri_autocast_end();
        assert_int_equal(tri_tensor_dtype(y), types[i]);
        CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
        assert_true(trii_half_to_f32(types[i], got[0]) > 3.5f);
        assert_true(trii_half_to_f32(types[i], got[0]) < 4);
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

/* What a plan makes of f16 is what the reference kernels do, to the bit where sums are exact. */
static void a_plan_rounds_as_the_reference_kernels(void **state)
{
    enum { N = 37 };
    uint16_t got[2][N * N];

    (void)state;
    for (int k = 0; k < 2; k++) {
        tri_tensor *x = filled(2, (int64_t[]){N, N}, -1.3f, 0.37f), *y;

        trii_executor_set(k == 0 ? &trii_executor_reference : NULL);
        y = tri_cast(x, TRI_DTYPE_F16);
        y = tri_add(tri_mul(y, y), tri_mul_scalar(y, 0.3));
        y = tri_relu(tri_sub(tri_transpose(y, 0, 1), y));
        y = tri_keep(tri_add(y, tri_narrow(y, 0, 0, 1)));
        assert_int_equal(tri_tensor_dtype(y), TRI_DTYPE_F16);
        CHECK_OK(tri_tensor_copy_out(y, got[k], sizeof(got[k])));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
}

/* Beyond 65504 there is infinity, and what comes back through it is not finite. */
static void f16_overflows(void **state)
{
    tri_tensor *x = filled(2, (int64_t[]){2, 3}, 3000, 0),
               *w = filled(2, (int64_t[]){4, 3}, 3000, 0);
    float y[8], g[12];

    (void)state;
    tri_requires_grad(w, true);
    tri_autocast_begin(TRI_DTYPE_F16);
    {
        tri_tensor *z = tri_keep(tri_cast(tri_linear(x, w, NULL), TRI_DTYPE_F32));

        tri_backward(tri_sum(tri_mul_scalar(z, 1e6), NULL, 0, false));
        CHECK_OK(tri_tensor_copy_out(z, y, sizeof(y)));
    }
    tri_autocast_end();
    CHECK_OK(tri_tensor_copy_out(tri_grad(w), g, sizeof(g)));
    assert_true(isinf(y[0]) && isinf(g[0]));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

/* Values: each operation in f32 (here nearly exact), rounded once, some up and some down. */
static void results_are_rounded_once(void **state)
{
    enum { ROWS = 16 };
    tri_tensor *x = filled(2, (int64_t[]){1, 2}, 1.0009765625f, 0.25f);       /* not a bf16 */
    tri_tensor *w = filled(2, (int64_t[]){ROWS, 2}, 1.0009765625f, 0.09375f); /* stays as it is */
    tri_tensor *y, *twice;
    uint16_t got[2][ROWS];
    float first = trii_bf16_to_f32(trii_f32_to_bf16(1.0009765625f));
    float second = trii_bf16_to_f32(trii_f32_to_bf16(1.2509765625f));
    int up = 0;

    (void)state;
    trii_executor_set(&trii_executor_reference);
    tri_autocast_begin(TRI_DTYPE_BF16);
    y = tri_keep(tri_linear(x, w, NULL));
    tri_autocast_end();
    twice = tri_keep(tri_mul_scalar(y, 3));
    CHECK_OK(tri_tensor_copy_out(y, got[0], sizeof(got[0])));
    CHECK_OK(tri_tensor_copy_out(twice, got[1], sizeof(got[1])));
    for (int i = 0; i < ROWS; i++) {
        float product = first * (1.0009765625f + 0.09375f * (float)(2 * i % 17)) +
                        second * (1.0009765625f + 0.09375f * (float)((2 * i + 1) % 17));
        uint16_t want = trii_f32_to_bf16(product);

        up += trii_bf16_to_f32(want) > product;
        assert_int_equal(got[0][i], want);
        assert_int_equal(got[1][i], trii_f32_to_bf16(3 * trii_bf16_to_f32(want)));
    }
    assert_in_range(up, 2, ROWS - 2);
    CHECK_OK(tri_step_end_status());
    trii_executor_set(NULL);
    tri_tensor_unref(x);
    tri_tensor_unref(w);
}

static void check_gradients(tri_dtype narrow, double tolerance)
{
    tri_tensor *x = filled(4, (int64_t[]){2, 3, 6, 6}, -1, 0.17f);
    tri_tensor *kernel = filled(4, (int64_t[]){4, 3, 3, 3}, -0.5f, 0.07f);
    tri_tensor *scale = filled(1, (int64_t[]){4}, 1, 0.1f),
               *shift = filled(1, (int64_t[]){4}, 0, 0.1f);
    tri_tensor *w = filled(2, (int64_t[]){5, 4}, -0.3f, 0.1f),
               *b = filled(1, (int64_t[]){5}, 0, 0.1f);
    tri_tensor *parameters[5] = {kernel, scale, shift, w, b};
    float grads[2][5][108];
    int differ = 0;

    for (int i = 0; i < 5; i++)
        tri_requires_grad(parameters[i], true);
    for (int round = 0; round < 2; round++) {
        const tri_batch_norm_args args = {
            .weight = scale, .bias = shift, .training = true, .eps = TRI_SET(1e-5)};
        tri_tensor *y;

        if (round == 1)
            tri_autocast_begin(narrow);
        y = tri_relu(tri_batch_norm(tri_conv(x, kernel, NULL, NULL), &args));
        y = tri_linear(tri_flatten(tri_adaptive_avg_pool(y, TRI_SHAPE(1, 1)), 1), w, b);
        if (round == 1)
            tri_autocast_end();
        tri_backward(tri_mean(tri_square(y), NULL, 0, false));
        CHECK_OK(tri_run());
        for (int i = 0; i < 5; i++) {
            size_t bytes = (size_t)tri_tensor_numel(parameters[i]) * sizeof(float);
            float *before = grads[0][i], *now = grads[round][i];
            double difference = 0, size = 0;

            assert_int_equal(tri_tensor_dtype(tri_grad(parameters[i])), TRI_DTYPE_F32);
            CHECK_OK(tri_tensor_copy_out(tri_grad(parameters[i]), now, bytes));
            /* they add up: what the second round added must be what the first one gave */
            for (size_t k = 0; round == 1 && k < bytes / sizeof(float); k++) {
                double d = (double)now[k] - 2 * (double)before[k];

                difference += d * d;
                size += (double)before[k] * (double)before[k];
            }
            if (round == 1 && !(sqrt(difference) <= tolerance * sqrt(size) + 1e-3))
                fail_msg("parameter %d: gradient off by %g of %g", i, sqrt(difference), sqrt(size));
            differ += difference > 0;
        }
        CHECK_OK(tri_step_end_status());
    }
    assert_in_range(differ, 3, 5); /* it did run so */
    tri_tensor_unref(x);
    for (int i = 0; i < 5; i++)
        tri_tensor_unref(parameters[i]);
}

static void gradients_of_parameters_are_f32(void **state)
{
    (void)state;
    check_gradients(TRI_DTYPE_BF16, 0.03);
    check_gradients(TRI_DTYPE_F16, 0.004);
}

/* Some part of a bf16 value, read so that sums are its gradient. */
static tri_tensor *repeated(tri_tensor *x, int how)
{
    tri_tensor *part = tri_narrow(x, -1, 0, 1);

    switch (how) {
    case 0:
        return tri_expand(part, TRI_SHAPE(3, 4));
    case 1:
        return tri_unfold(tri_narrow(x, -1, 0, 4), 1, 2, 1);
    default:
        return tri_mul(part, tri_narrow(x, -1, 1, 4));
    }
}

static void a_gradient_has_the_type_of_its_value_also_where_it_is_a_sum(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        tri_tensor *x = filled(2, (int64_t[]){3, 5}, 1, 0.25f), *y, *parts[2], *loss, *grad;
        float sum = 0, got[15];

        tri_requires_grad(x, true);
        y = tri_cast(x, TRI_DTYPE_BF16);
        loss = tri_sum(repeated(y, how), NULL, 0, false);
        CHECK_OK(tri_gradients(&loss, 1, &y, 1, NULL, &grad));
        assert_int_equal(tri_tensor_dtype(grad), TRI_DTYPE_BF16);
        /* of a split such a gradient meets that of the other part, which nobody reads */
        tri_split(y, TRI_SHAPE(4, 1), 1, parts);
        tri_backward(
            tri_sum(tri_expand(tri_narrow(parts[0], 1, 1, 1), TRI_SHAPE(3, 4)), NULL, 0, false));
        CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
        for (int i = 0; i < 15; i++)
            sum += got[i];
        CHECK_NEAR((double)sum, 12, 0);
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
}

static void wrong_uses_are_named(void **state)
{
    (void)state;
    tri_autocast_begin(TRI_DTYPE_F64);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG,
                "tri_autocast_begin: to f64; bf16 and f16 are supported");
    tri_autocast_end();
    CHECK_OK(tri_step_end_status());
    tri_autocast_end();
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "tri_autocast_end without");
    for (int i = 0; i < 65; i++)
        tri_autocast_begin(TRI_DTYPE_F16);
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE,
                "tri_autocast_begin: nested more than 64 deep");
    for (int i = 0; i < 65; i++)
        tri_autocast_end();
    CHECK_OK(tri_step_end_status());
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_lowered_and_what_follows_stays),
        cmocka_unit_test(bf16_and_f16_within_each_other),
        cmocka_unit_test(the_same_step_in_another_type),
        cmocka_unit_test(a_plan_rounds_as_the_reference_kernels),
        cmocka_unit_test(f16_overflows),
        cmocka_unit_test(results_are_rounded_once),
        cmocka_unit_test(gradients_of_parameters_are_f32),
        cmocka_unit_test(a_gradient_has_the_type_of_its_value_also_where_it_is_a_sum),
        cmocka_unit_test(wrong_uses_are_named),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
