/*
 * cumsum_test.c - cumulative sums against the reference kernel, and the same bits on any number of
 * threads.
 */
#include <math.h>

#include <trireme/ops.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/integers.h"

/* Sanitizers need one number of threads, and are slow. */
#if TEST_SANITIZED
static const int threads[] = {3};
#else
static const int threads[] = {1, 2, 3, 8};
#endif

typedef struct cumsum_case {
    int ndim;
    int64_t shape[3];
    int dim;
} cumsum_case;

static const cumsum_case cases[] = {
    {0, {0}, 0},           {1, {1}, 0},
    {1, {0}, 0},           {2, {0, 5}, 0},
    {1, {13}, 0},          {1, {16384}, 0},
    {1, {16385}, 0},       {1, {TEST_SANITIZED ? 50021 : 1 << 20}, 0},
    {2, {5, 20011}, 1},    {2, {20011, 3}, 0},
    {2, {97, 151}, 1},     {2, {300, 331}, 0},
    {3, {3, 307, 129}, 1}, {3, {9, 31, 130}, 1},
    {2, {70, 1}, 1},
};

/* Sums so far, and the gradient of the weighted ones, which are sums from the end. */
typedef struct outcome {
    size_t bytes;
    void *sums, *grad;
} outcome;

static outcome run_case(const cumsum_case *c, tri_tensor *x, tri_tensor *weights)
{
    tri_tensor *y = tri_keep(tri_cumsum(x, c->dim)), *dx;
    tri_tensor *loss = tri_sum(tri_mul(y, weights), NULL, 0, false);
    outcome o = {.bytes = (size_t)tri_tensor_numel(x) * tri_dtype_size(tri_tensor_dtype(x))};

    CHECK_OK(tri_gradients(&loss, 1, &x, 1, NULL, &dx));
    (void)tri_keep(dx);
    o.sums = calloc(o.bytes + 1, 1);
    o.grad = calloc(o.bytes + 1, 1);
    CHECK_OK(tri_tensor_copy_out(y, o.sums, o.bytes));
    CHECK_OK(tri_tensor_copy_out(dx, o.grad, o.bytes));
    CHECK_OK(tri_step_end_status());
    trii_step_release(); /* plans of another number of threads */
    return o;
}

static void outcome_free(outcome *o)
{
    free(o->sums);
    free(o->grad);
}

static bool is_same(const outcome *a, const outcome *b)
{
    return a->bytes == b->bytes && memcmp(a->sums, b->sums, a->bytes) == 0 &&
           memcmp(a->grad, b->grad, a->bytes) == 0;
}

/* Of any reals. */
static tri_tensor *reals(const cumsum_case *c, tri_dtype dtype)
{
    int64_t n = 1;
    double *wide;
    float *narrow;
    tri_tensor *x;

    for (int d = 0; d < c->ndim; d++)
        n *= c->shape[d];
    wide = malloc((size_t)n * sizeof(*wide) + 1);
    narrow = malloc((size_t)n * sizeof(*narrow) + 1);
    for (int64_t i = 0; i < n; i++) {
        wide[i] = (double)below(INT64_C(1) << 62) * 0x1.07p-61 - 1;
        narrow[i] = (float)wide[i];
    }
    x = tri_tensor_from(c->shape, c->ndim, dtype,
                        dtype == TRI_DTYPE_F32 ? (const void *)narrow : (const void *)wide);
    free(wide);
    free(narrow);
    return x;
}

/* Integers, whose sums are exact, have the reference kernel's bits; reals at least the same ones on
 * any number of threads, and are near it. */
static void check_case(size_t i, tri_dtype dtype, bool exact)
{
    const cumsum_case *c = &cases[i];
    tri_tensor *x, *weights;
    outcome want, got, first;

    random_state = i;
    x = exact ? integers(dtype, c->shape, c->ndim) : reals(c, dtype);
    weights = exact ? integers(dtype, c->shape, c->ndim) : reals(c, dtype);
    tri_requires_grad(x, true);
    trii_executor_set(&trii_executor_reference);
    want = run_case(c, x, weights);
    trii_executor_set(NULL);
    for (size_t t = 0; t < TRII_COUNT_OF(threads); t++) {
        trii_parallel_set_threads(threads[t]);
        got = run_case(c, x, weights);
        if (!is_same(&got, exact || t == 0 ? &got : &first) || (exact && !is_same(&got, &want)))
            fail_msg("case %zu of %s, exact %d, %d threads: other bits", i, tri_dtype_name(dtype),
                     exact, threads[t]);
        if (t == 0)
            first = got;
        else
            outcome_free(&got);
    }
    trii_parallel_set_threads(0);
    for (int64_t k = 0; k < tri_tensor_numel(x); k++) {
        if (dtype == TRI_DTYPE_F32)
            CHECK_NEAR((double)((float *)first.sums)[k], (double)((float *)want.sums)[k],
                       1e-7 * fabs((double)((float *)want.sums)[k]) + 1e-9);
        else
            CHECK_NEAR(((double *)first.grad)[k], ((double *)want.grad)[k],
                       1e-12 * fabs(((double *)want.grad)[k]) + 1e-9);
    }
    outcome_free(&first);
    outcome_free(&want);
    tri_tensor_unref(x);
    tri_tensor_unref(weights);
}

static void check_cases(tri_dtype dtype, bool exact)
{
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++)
        check_case(i, dtype, exact);
}

static void integers_have_the_reference_kernels_sums_on_any_number_of_threads(void **state)
{
    (void)state;
    check_cases(TRI_DTYPE_F32, true);
    check_cases(TRI_DTYPE_F64, true);
}

static void reals_have_the_same_sums_on_any_number_of_threads(void **state)
{
    (void)state;
    check_cases(TRI_DTYPE_F32, false);
    check_cases(TRI_DTYPE_F64, false);
}

/* A search for a number in the sums must find them in order. */
static void sums_of_what_is_not_negative_never_fall(void **state)
{
    enum { N = TEST_SANITIZED ? 50021 : 300007 };
    float *x = calloc(N, sizeof(*x)), *y = malloc(N * sizeof(*y));

    (void)state;
    random_state = 1;
    for (int i = 0; i < N; i++)
        x[i] = i % 3 == 0 ? (float)below(1 << 20) * 0x1.3p-50F : 0;
    x[0] = 1;
    for (int wide = 0; wide < 2; wide++) {
        tri_tensor *numbers = tri_tensor_from(TRI_SHAPE(N), TRI_DTYPE_F32, x);
        tri_tensor *sums = tri_cumsum(wide ? tri_cast(numbers, TRI_DTYPE_F64) : numbers, 0);

        /* differences of neighbours */
        sums = tri_sub(tri_narrow(sums, 0, 1, N - 1), tri_narrow(sums, 0, 0, N - 1));
        CHECK_OK(tri_tensor_copy_out(tri_cast(sums, TRI_DTYPE_F32), y, (N - 1) * sizeof(*y)));
        for (int i = 0; i < N - 1; i++) {
            if (!(y[i] >= 0))
                fail_msg("f64 %d: element %d is less by %g", wide, i + 1, -(double)y[i]);
        }
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(numbers);
    }
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_have_the_reference_kernels_sums_on_any_number_of_threads),
        cmocka_unit_test(reals_have_the_same_sums_on_any_number_of_threads),
        cmocka_unit_test(sums_of_what_is_not_negative_never_fall),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
