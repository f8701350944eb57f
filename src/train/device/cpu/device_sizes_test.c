/*
 * device_sizes_test.c - every operation of op_cases.h at other sizes than there: one, primes, and
 * some with millions of elements; in f32 and bf16, on one to eight threads, against the reference
 * kernels.
 * ctest: start=first timeout=120
 */
#include <math.h>

#include "base/compiler.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/op_cases.h"

#define MAX_RESULTS (OP_CASE_INPUTS + 1)

typedef struct results {
    double *data[MAX_RESULTS];
    int64_t n[MAX_RESULTS];
    int count;
} results;

/* --- sizes ---------------------------------------------------------------- */

typedef int64_t (*resize_fn)(int64_t size, int ndim, bool classes);

/* But three where something is chosen by the numbers 0 to 2. */
static int64_t to_one(int64_t size, int ndim, bool classes)
{
    (void)ndim;
    return size < 1 ? size : classes && size > 2 ? 3 : 1;
}

/* In the same order, so that windows stay within images: tens of thousands of elements. */
static int64_t to_prime(int64_t size, int ndim, bool classes)
{
    static const int64_t primes[][10] = {{0, 1, 61, 127, 191, 193, 197, 199, 211, 223},
                                         {0, 1, 5, 37, 67, 71, 73, 79, 83, 89},
                                         {0, 1, 3, 5, 11, 13, 17, 19, 23, 29}};

    (void)classes;
    return primes[ndim <= 2 ? 0 : ndim - 2][size < 10 ? size : 9];
}

/* 2^22 elements; a sanitizer needs no more than a few of its shares. */
static int64_t to_millions(int64_t size, int ndim, bool classes)
{
    const int64_t few = TEST_SANITIZED ? 256 : 4096, many = TEST_SANITIZED ? 128 : 1024;

    (void)classes;
    if (size < 2)
        return size;
    return size > 3 ? many : ndim <= 2 ? few : few / 64;
}

static op_case resized(const op_case *c, resize_fn resize)
{
    op_case made = *c;
    bool classes = false;
    int ndim = 0;

    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        ndim = c->in[k].ndim > ndim ? c->in[k].ndim : ndim;
        classes = classes || (c->in[k].kind | 0x20) == 'c';
    }
    for (int k = 0; k < OP_CASE_INPUTS; k++) {
        for (int d = 0; d < c->in[k].ndim; d++)
            made.in[k].shape[d] = resize(c->in[k].shape[d], ndim, classes);
    }
    return made;
}

/* --- runs ----------------------------------------------------------------- */

static void read_result(results *r, tri_tensor *tensor)
{
    tri_tensor *wide = tri_keep(tri_cast(tensor, TRI_DTYPE_F64));
    int64_t n = tri_tensor_numel(tensor);

    r->n[r->count] = n;
    r->data[r->count] = malloc((size_t)n * sizeof(double) + 1);
    CHECK_OK(tri_tensor_copy_out(wide, r->data[r->count], (size_t)n * sizeof(double)));
    r->count++;
}

static void results_free(results *r)
{
    for (int k = 0; k < r->count; k++)
        free(r->data[k]);
}

/* Of y's shape, all different: the gradient of an unweighted sum of what is normalised is nothing
 * but rounding. */
static tri_tensor *weights_like(const tri_tensor *y)
{
    int64_t shape[TRI_MAX_DIMS], n = tri_tensor_numel(y);
    float *values = malloc((size_t)n * sizeof(float) + 1);
    tri_tensor *weights;

    for (int d = 0; d < tri_tensor_ndim(y); d++)
        shape[d] = tri_tensor_size(y, d);
    for (int64_t i = 0; i < n; i++)
        values[i] = 0.5f + (float)(i * 37 % 101) / 101;
    weights = tri_tensor_from(shape, tri_tensor_ndim(y), TRI_DTYPE_F32, values);
    free(values);
    return weights;
}

static tri_tensor *record(const op_case *c, tri_tensor *const *in, bool bf16)
{
    tri_tensor *used[OP_CASE_INPUTS], *y;

    for (int k = 0; k < OP_CASE_INPUTS; k++)
        used[k] = bf16 && in[k] != NULL && op_case_is_activation(c, k)
                      ? tri_cast(in[k], TRI_DTYPE_BF16)
                      : in[k];
    if (bf16)
        tri_autocast_begin(TRI_DTYPE_BF16);
    y = c->build(used);
    if (bf16)
        tri_autocast_end();
    return y;
}

/* The value and the gradients. False: the operation is not defined for these sizes. */
static bool run_case(const op_case *c, bool bf16, results *r)
{
    tri_tensor *in[OP_CASE_INPUTS], *y, *weights = NULL;
    bool defined;

    *r = (results){.count = 0};
    tri_rng_state_set(&(tri_rng){.step = 1}); /* part of random numbers */
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        in[k] = op_case_tensor(&c->in[k], k, TRI_DTYPE_F32);
    y = record(c, in, bf16);
    defined = tri_tensor_status(y) == TRI_OK;
    if (defined) {
        tri_keep(y);
        weights = weights_like(y);
        if (op_case_wants_grad(&c->in[0]))
            tri_backward(tri_sum(tri_mul(tri_cast(y, TRI_DTYPE_F32), weights), NULL, 0, false));
        CHECK_OK(tri_run());
        read_result(r, y);
        for (int k = 0; k < OP_CASE_INPUTS; k++) {
            if (in[k] != NULL && tri_grad(in[k]) != NULL)
                read_result(r, tri_grad(in[k]));
        }
        CHECK_OK(tri_step_end_status());
    } else {
        (void)!tri_step_end_status();
    }
    tri_tensor_unref(weights);
    for (int k = 0; k < OP_CASE_INPUTS; k++)
        tri_tensor_unref(in[k]);
    return defined;
}

/* In f32 each element, in bf16, where both round in different places, the whole. */
static void check_results(const char *name, int threads, bool bf16, const results *a,
                          const results *b)
{
    assert_int_equal(a->count, b->count);
    for (int k = 0; k < a->count; k++) {
        double largest = 0, off = 0, size = 0, distance = 0;

        assert_int_equal(a->n[k], b->n[k]);
        for (int64_t i = 0; i < a->n[k]; i++) {
            double x = a->data[k][i], y = b->data[k][i];

            if (x == y || (x != x && y != y))
                continue;
            off = fmax(off, fabs(x - y));
            distance += (x - y) * (x - y);
            if (!(fabs(x - y) < INFINITY))
                fail_msg("%s on %d threads: result %d, element %lld: %g, not %g", name, threads, k,
                         (long long)i, x, y);
        }
        for (int64_t i = 0; i < a->n[k]; i++) {
            double y = b->data[k][i];

            largest = isfinite(y) ? fmax(largest, fabs(y)) : largest;
            size += isfinite(y) ? y * y : 0;
        }
        if (bf16 ? sqrt(distance) > (a->n[k] == 1 ? 0.02 : 0.01) * sqrt(size) + 1e-6
                 : off > 1e-4 * (largest + 1e-2))
            fail_msg("%s on %d threads%s: result %d of %lld elements is off by %g (largest %g)",
                     name, threads, bf16 ? " in bf16" : "", k, (long long)a->n[k], off, largest);
    }
}

/* Whether the operation is defined for the sizes; then any number of threads (up to 0) agrees with
 * the reference. Under a sanitizer there is no reference, only the threads: what they write is
 * compared in every other build. */
static bool check_case(const op_case *c, bool bf16, const int *threads)
{
    results want = {.count = 0}, got;
    bool defined = true;

    if (!TEST_SANITIZED) {
        trii_executor_set(&trii_executor_reference);
        defined = run_case(c, bf16, &want);
        trii_executor_set(NULL);
    }
    for (; *threads > 0 && defined; threads++) {
        trii_parallel_set_threads(*threads);
        trii_step_release(); /* plans of another number of threads */
        defined = run_case(c, bf16, &got);
        if (!TEST_SANITIZED) {
            assert_true(defined);
            check_results(c->name, *threads, bf16, &got, &want);
        }
        results_free(&got);
    }
    results_free(&want);
    return defined;
}

/* --- tests ---------------------------------------------------------------- */

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* A few say of sizes themselves which they take: they are not defined for others. */
static void check_cases(resize_fn resize, bool bf16)
{
    static const int all[] = {1, 2, 3, 8, 0}, some[] = {3, 0};
    int defined = 0;

    for (int i = 0; i < OP_CASE_COUNT; i++) {
        const op_case c = resized(&op_cases[i], resize);

        defined += check_case(&c, bf16, TEST_SANITIZED ? some : all);
    }
    assert_in_range(defined, OP_CASE_COUNT * 85 / 100, OP_CASE_COUNT);
}

static void of_one_element(void **state)
{
    (void)state;
    check_cases(to_one, false);
    check_cases(to_one, true);
}

static void of_primes(void **state)
{
    (void)state;
    check_cases(to_prime, false);
}

static void of_primes_in_bf16(void **state)
{
    (void)state;
    check_cases(to_prime, true);
}

static void of_millions(void **state)
{
    static const char *const names[] = {"layer_norm_bare", "rms_norm_bare", "where", "cumsum",
                                        "topk_smallest",   "concat",        NULL};
    int n = 0;

    (void)state;
    for (int i = 0; i < OP_CASE_COUNT; i++) {
        const op_case c = resized(&op_cases[i], to_millions);

        if (is_one_of(c.name, names)) {
            assert_true(check_case(&c, false, (const int[]){1, 8, 0}));
            n++;
        }
    }
    assert_int_equal(n, TRII_COUNT_OF(names) - 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(of_one_element),
    cmocka_unit_test(of_primes),
    cmocka_unit_test(of_primes_in_bf16),
    cmocka_unit_test(of_millions),
};

TEST_MAIN(tests)
