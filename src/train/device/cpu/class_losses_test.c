/*
 * class_losses_test.c - cross_entropy and nll_loss against their formulas: sizes, options, threads,
 * targets that are ignored; the same bits on any number of threads.
 */
#include <math.h>

#include <trireme/trireme.h>

#include "train/device/cpu/cpu_parallel.h"
#include "testing/check.h"

#define MOST 300000

typedef struct options {
    bool logarithms, weighted;
    double smoothing;
    tri_reduction reduction;
} options;

static float x_data[MOST], w_data[MOST], dx[MOST], first_dx[MOST], loss_data[MOST];
static double wanted_dx[MOST], wanted_loss[MOST];
static int64_t targets[MOST];

static float uniform(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 24);
}

/* Every third target is ignored. */
static void make(int64_t rows, int64_t classes, bool logarithms)
{
    uint32_t seed = (uint32_t)(rows + classes);

    for (int64_t i = 0; i < rows * classes; i++)
        x_data[i] = logarithms ? -4 * uniform(&seed) : 8 * uniform(&seed) - 4;
    for (int64_t k = 0; k < classes; k++)
        w_data[k] = 0.5f + uniform(&seed);
    for (int64_t r = 0; r < rows; r++)
        targets[r] = r % 3 == 1 ? -100 : (int64_t)(uniform(&seed) * (float)classes);
}

static double weight(const options *o, int64_t k)
{
    return o->weighted ? (double)w_data[k] : 1;
}

/* The formulas of torch.nn.functional, as they stand in its documentation. */
static void expect(int64_t rows, int64_t classes, const options *o)
{
    double divisor = 0, total = 0;

    for (int64_t r = 0; r < rows; r++)
        divisor += targets[r] < 0 ? 0 : weight(o, targets[r]);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = x_data + r * classes;
        double sum = 0, lse, all = 0, s = o->smoothing;
        double g = o->reduction == TRI_REDUCTION_MEAN ? 1 / divisor : 1;

        for (int64_t k = 0; k < classes; k++) {
            sum += exp((double)x[k]);
            all += weight(o, k);
        }
        lse = o->logarithms ? 0 : log(sum);
        wanted_loss[r] = 0;
        for (int64_t k = 0; k < classes; k++) {
            double q = s / (double)classes * weight(o, k);

            if (k == targets[r])
                q += (1 - s) * weight(o, k);
            wanted_dx[r * classes + k] = -g * q;
            if (!o->logarithms)
                wanted_dx[r * classes + k] +=
                    g * exp((double)x[k] - lse) *
                    ((1 - s) * (targets[r] < 0 ? 0 : weight(o, targets[r])) +
                     s / (double)classes * all);
            wanted_loss[r] += q * (lse - (double)x[k]);
            if (targets[r] < 0)
                wanted_dx[r * classes + k] = wanted_loss[r] = 0;
        }
        total += wanted_loss[r];
    }
    if (o->reduction != TRI_REDUCTION_NONE)
        wanted_loss[0] = o->reduction == TRI_REDUCTION_MEAN ? total / divisor : total;
}

static void run(int64_t rows, int64_t classes, const options *o)
{
    size_t bytes = (size_t)(rows * classes) * sizeof(float);
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(rows, classes), TRI_DTYPE_F32, x_data);
    tri_tensor *t = tri_tensor_from(TRI_SHAPE(rows), TRI_DTYPE_I64, targets);
    tri_tensor *w = tri_tensor_from(TRI_SHAPE(classes), TRI_DTYPE_F32, w_data), *loss;

    tri_requires_grad(x, true);
    if (o->logarithms)
        loss = tri_nll_loss(
            x, t,
            &(tri_nll_loss_options){.weight = o->weighted ? w : NULL, .reduction = o->reduction});
    else
        loss = tri_cross_entropy(x, t,
                                 &(tri_cross_entropy_options){.weight = o->weighted ? w : NULL,
                                                              .label_smoothing = o->smoothing,
                                                              .reduction = o->reduction});
    loss = tri_keep(loss);
    tri_backward(tri_sum(loss, NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(
        loss, loss_data, (o->reduction == TRI_REDUCTION_NONE ? (size_t)rows : 1) * sizeof(float)));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), dx, bytes));
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(t);
    tri_tensor_unref(w);
}

static void check(int64_t rows, int64_t classes, const options *o)
{
    static const int threads[] = {1, 2, 3, 8};
    int64_t n = o->reduction == TRI_REDUCTION_NONE ? rows : 1;
    float first = 0;

    make(rows, classes, o->logarithms);
    expect(rows, classes, o);
    for (int v = 0; v < 4; v++) {
        trii_parallel_set_threads(threads[v]);
        run(rows, classes, o);
        for (int64_t i = 0; i < n; i++)
            CHECK_NEAR((double)loss_data[i], wanted_loss[i], 2e-5 * (1 + fabs(wanted_loss[i])));
        for (int64_t i = 0; i < rows * classes; i++)
            CHECK_NEAR((double)dx[i], wanted_dx[i], 2e-6);
        if (v == 0) {
            first = loss_data[0];
            memcpy(first_dx, dx, (size_t)(rows * classes) * sizeof(float));
        }
        assert_memory_equal(&first, &loss_data[0], sizeof(first));
        assert_memory_equal(first_dx, dx, (size_t)(rows * classes) * sizeof(float));
    }
    trii_parallel_set_threads(1);
}

static void losses_are_their_formulas(void **state)
{
    static const int64_t shapes[][2] = {{1, 1},    {1, 3},     {7, 2},     {37, 33},
                                        {4097, 5}, {64, 1031}, {263, 1031}};

    (void)state;
    for (int s = 0; s < (int)(sizeof(shapes) / sizeof(shapes[0])); s++) {
        for (int v = 0; v < 12; v++) {
            options o = {.weighted = v % 2 != 0,
                         .smoothing = v / 2 % 2 != 0 ? 0.1 : 0,
                         .reduction = (tri_reduction)(v / 4)};

            check(shapes[s][0], shapes[s][1], &o);
            o.logarithms = true;
            if (o.smoothing == 0)
                check(shapes[s][0], shapes[s][1], &o);
        }
    }
}

/* As in PyTorch the mean is NaN and the gradient 0; values in an ignored row do not matter. */
static void only_ignored_targets_have_no_mean(void **state)
{
    static const int64_t ignored[2] = {-100, -100};
    tri_tensor *x =
        tri_tensor_from(TRI_SHAPE(2, 3), TRI_DTYPE_F32, (const float[]){1, 2, NAN, INFINITY, 0, 1});
    tri_tensor *t = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, ignored), *loss;
    float got[6];

    (void)state;
    tri_requires_grad(x, true);
    loss = tri_keep(tri_cross_entropy(x, t, NULL));
    tri_backward(loss);
    assert_true(isnan(tri_item(loss)));
    CHECK_OK(tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    for (int i = 0; i < 6; i++)
        assert_true(got[i] == 0);
    tri_step_end();
    CHECK_NEAR(tri_item(tri_cross_entropy(
                   x, t, &(tri_cross_entropy_options){.reduction = TRI_REDUCTION_SUM})),
               0, 0);
    tri_step_end();
    /* with ignore_index 0, -100 is an invalid class */
    (void)tri_keep(
        tri_cross_entropy(x, t, &(tri_cross_entropy_options){.ignore_index = TRI_SET(0)}));
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "target -100 of row 0 is out of range (3 classes)");
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(t);
}

static void refused(tri_tensor *loss, const char *text)
{
    CHECK_FAILS(tri_tensor_status(loss), TRI_ERR_INVALID_ARG, text);
    tri_step_end();
}

static void wrong_operands_are_named(void **state)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, 3, 4), TRI_DTYPE_F32);
    tri_tensor *t = tri_tensor_create(TRI_SHAPE(2, 3), TRI_DTYPE_I64);
    tri_tensor *fit = tri_tensor_create(TRI_SHAPE(2, 4), TRI_DTYPE_I64);
    tri_tensor *real = tri_tensor_create(TRI_SHAPE(2, 4), TRI_DTYPE_F32);
    tri_tensor *w = tri_tensor_create(TRI_SHAPE(4), TRI_DTYPE_F32);
    tri_tensor *wide = tri_tensor_create(TRI_SHAPE(3), TRI_DTYPE_F64);

    (void)state;
    refused(tri_cross_entropy(x, t, NULL), "tri_cross_entropy(f32 [2, 3, 4], i64 [2, 3])");
    refused(tri_cross_entropy(x, t, NULL), "without its classes (dimension 1)");
    refused(tri_nll_loss(x, real, NULL), "target must be i64, not f32");
    refused(tri_nll_loss(x, fit, &(tri_nll_loss_options){.weight = w}), "weight must be f32 [3]");
    refused(tri_cross_entropy(x, fit, &(tri_cross_entropy_options){.weight = wide}), "f64");
    refused(tri_cross_entropy(x, fit, &(tri_cross_entropy_options){.reduction = (tri_reduction)7}),
            "reduction 7");
    refused(tri_nll_loss(x, NULL, NULL), "argument 1 is NULL");
    tri_tensor_unref(x);
    tri_tensor_unref(t);
    tri_tensor_unref(fit);
    tri_tensor_unref(real);
    tri_tensor_unref(w);
    tri_tensor_unref(wide);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses_are_their_formulas),
    cmocka_unit_test(only_ignored_targets_have_no_mean),
    cmocka_unit_test(wrong_operands_are_named),
};

TEST_MAIN(tests)
