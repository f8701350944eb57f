/*
 * topk_test.c - the largest and the smallest along a dimension: kernels against the reference
 * kernel, with equals, infinities and NaN, the same bits on any number of threads.
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

/* What torch.max and torch.min make of NaN, and of equals: the first. */
static void a_nan_is_the_extreme_of_its_row(void **state)
{
    const float numbers[3][4] = {{1, NAN, 0, NAN}, {2, 0, -0.0F, 2}, {INFINITY, 5, -INFINITY, 5}};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(3, 4), TRI_DTYPE_F32, numbers), *at[3], *y[3];
    float values[3];
    int64_t places[3];

    (void)state;
    for (int reference = 0; reference < 2; reference++) {
        trii_executor_set(reference ? &trii_executor_reference : NULL);
        y[0] = tri_max(x, 1, false, &at[0]);
        y[1] = tri_min(x, 1, false, &at[1]);
        y[2] = tri_topk(x, 1, 1, true, &at[2]); /* to which NaN is larger than any number */
        for (int i = 0; i < 3; i++) {
            (void)tri_keep(y[i]);
            (void)tri_keep(at[i]);
        }
        for (int i = 0; i < 3; i++) {
            static const float want[3][3] = {
                {NAN, 2, INFINITY}, {NAN, 0, -INFINITY}, {0, 0, -INFINITY}};
            static const int64_t want_at[3][3] = {{1, 0, 0}, {1, 1, 2}, {2, 1, 2}};

            CHECK_OK(tri_tensor_copy_out(y[i], values, sizeof(values)));
            CHECK_OK(tri_tensor_copy_out(at[i], places, sizeof(places)));
            assert_memory_equal(places, want_at[i], sizeof(places));
            for (int r = 0; r < 3; r++)
                assert_true(values[r] == want[i][r] || (isnan(values[r]) && isnan(want[i][r])));
        }
        CHECK_OK(tri_step_end_status());
    }
    trii_executor_set(NULL);
    tri_tensor_unref(x);
}

/* --- against the reference kernel ----------------------------------------- */

typedef struct topk_case {
    int ndim;
    int64_t shape[3];
    int dim;
    int64_t k;
} topk_case;

static const topk_case cases[] = {
    {0, {0}, 0, 1},
    {1, {1}, 0, 1},
    {1, {0}, 0, 0},
    {2, {0, 5}, 1, 3},
    {2, {5, 3}, 1, 0},
    {1, {13}, 0, 13},
    {1, {131}, 0, 2},
    {1, {1031}, 0, 1031}, /* sorted */
    {1, {65537}, 0, 1},
    {1, {65537}, 0, 33},
    {1, {70001}, 0, 500},
    {2, {3, 33013}, 1, 7},
    {2, {20011, 3}, 0, 1},
    {2, {20011, 2}, 0, 100},
    {2, {331, 67}, 0, 1},
    {2, {131, 67}, 0, 90},
    {2, {97, 151}, 1, 5},
    {3, {7, 1031, 5}, 1, 3},
    {3, {2, 129, 300}, 1, 40},
};

static uint64_t random_number(void)
{
    return (uint64_t)below(INT64_C(1) << 62);
}

/* Equals, zeros of both signs, infinities, NaN, the smallest numbers, and others. */
static double number(void)
{
    static const double special[] = {0.0,   -0.0,  (double)INFINITY, -(double)INFINITY, (double)NAN,
                                     1e-42, -1e-42};

    switch (below(5)) {
    case 0:
        return special[below(TRII_COUNT_OF(special))];
    case 1:
    case 2:
        return (double)(below(9) - 4);
    default:
        return (double)random_number() * 0x1p-61 - 1;
    }
}

static tri_tensor *numbers_of(const topk_case *c, tri_dtype dtype)
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
        wide[i] = number();
        narrow[i] = (float)wide[i];
    }
    x = tri_tensor_from(c->shape, c->ndim, dtype,
                        dtype == TRI_DTYPE_F32 ? (const void *)narrow : (const void *)wide);
    free(wide);
    free(narrow);
    return x;
}

typedef struct outcome {
    void *values;
    int64_t *places;
    size_t n, bytes;
} outcome;

static outcome run_case(const topk_case *c, tri_tensor *x, bool smallest)
{
    tri_tensor *at, *y = tri_topk(x, c->k, c->dim, smallest, &at);
    outcome o;

    CHECK_OK(tri_tensor_status(tri_keep(at)));
    o.n = (size_t)tri_tensor_numel(y);
    o.bytes = o.n * tri_dtype_size(tri_tensor_dtype(y));
    o.values = calloc(o.bytes + 1, 1);
    o.places = calloc(o.n + 1, sizeof(*o.places));
    CHECK_OK(tri_tensor_copy_out(y, o.values, o.bytes));
    CHECK_OK(tri_tensor_copy_out(at, o.places, o.n * sizeof(*o.places)));
    CHECK_OK(tri_step_end_status());
    trii_step_release(); /* plans of another number of threads */
    return o;
}

static void outcome_free(outcome *o)
{
    free(o->values);
    free(o->places);
}

static void check_case(size_t i, tri_dtype dtype, bool smallest)
{
    const topk_case *c = &cases[i];
    tri_tensor *x;
    outcome want, got;

    random_state = i;
    x = numbers_of(c, dtype);
    trii_executor_set(&trii_executor_reference);
    want = run_case(c, x, smallest);
    trii_executor_set(NULL);
    for (size_t t = 0; t < TRII_COUNT_OF(threads); t++) {
        trii_parallel_set_threads(threads[t]);
        got = run_case(c, x, smallest);
        assert_int_equal(got.n, want.n);
        if (memcmp(got.values, want.values, want.bytes) != 0 ||
            memcmp(got.places, want.places, want.n * sizeof(*want.places)) != 0)
            fail_msg("case %zu of %s, smallest %d, %d threads: other bits", i,
                     tri_dtype_name(dtype), smallest, threads[t]);
        outcome_free(&got);
    }
    trii_parallel_set_threads(0);
    outcome_free(&want);
    tri_tensor_unref(x);
}

static void topk_has_the_reference_kernels_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        for (int smallest = 0; smallest < 2; smallest++) {
            check_case(i, TRI_DTYPE_F32, smallest != 0);
            check_case(i, TRI_DTYPE_F64, smallest != 0);
        }
    }
}

static void of_equals_the_first_are_taken(void **state)
{
    enum { N = 1009, K = 5 };
    static const double numbers[] = {-(double)INFINITY, (double)INFINITY, (double)NAN, 0, 7};
    int64_t places[2 * K];
    double values[2 * K];

    (void)state;
    for (int i = 0; i < 20; i++) {
        double number = numbers[i % 5];
        tri_dtype dtype = i / 5 % 2 == 0 ? TRI_DTYPE_F32 : TRI_DTYPE_F64;
        bool columns = i >= 10;
        tri_tensor *x = columns ? tri_full(TRI_SHAPE(N, 2), number, dtype)
                                : tri_full(TRI_SHAPE(2, N), number, dtype);

        (void)tri_keep(x);
        for (int smallest = 0; smallest < 2; smallest++) {
            tri_tensor *at, *y = tri_topk(x, K, !columns, smallest != 0, &at);

            y = tri_keep(tri_cast(columns ? tri_transpose(y, 0, 1) : y, TRI_DTYPE_F64));
            at = tri_keep(columns ? tri_transpose(at, 0, 1) : at);
            CHECK_OK(tri_tensor_copy_out(y, values, sizeof(values)));
            CHECK_OK(tri_tensor_copy_out(at, places, sizeof(places)));
            for (int k = 0; k < 2 * K; k++) {
                assert_int_equal(places[k], k % K);
                assert_true(values[k] == number || (isnan(values[k]) && isnan(number)));
            }
        }
        CHECK_OK(tri_step_end_status());
    }
}

/* Two neighbours of a sorted row, NaN last, of equals the first first. */
static bool comes_before(const float *y, const int64_t *at)
{
    if (isnan(y[0]) || isnan(y[1]))
        return isnan(y[1]) && (!isnan(y[0]) || at[0] < at[1]);
    return y[0] < y[1] || (y[0] == y[1] && at[0] < at[1]);
}

/* Of k = n; the reference kernel takes its square. */
static void a_long_row_is_sorted(void **state)
{
    const topk_case c = {
        1, {TEST_SANITIZED ? 70001 : 1 << 20}, 0, TEST_SANITIZED ? 70001 : 1 << 20};
    tri_tensor *x;
    float *from = malloc((size_t)c.k * sizeof(*from));
    char *seen = calloc((size_t)c.k, 1);

    (void)state;
    random_state = 5;
    x = numbers_of(&c, TRI_DTYPE_F32);
    CHECK_OK(tri_tensor_copy_out(x, from, (size_t)c.k * sizeof(*from)));
    for (int t = TEST_SANITIZED ? 3 : 1; t <= 3; t += 2) {
        outcome o;
        const float *y;

        trii_parallel_set_threads(t);
        o = run_case(&c, x, true);
        y = o.values;
        memset(seen, 0, (size_t)c.k);
        for (int64_t i = 0; i < c.k; i++) {
            assert_in_range(o.places[i], 0, c.k - 1);
            assert_int_equal(seen[o.places[i]]++, 0);
            assert_memory_equal(&y[i], &from[o.places[i]], sizeof(*y));
            assert_true(i == 0 || comes_before(&y[i - 1], &o.places[i - 1]));
        }
        outcome_free(&o);
    }
    trii_parallel_set_threads(0);
    tri_tensor_unref(x);
    free(from);
    free(seen);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nan_is_the_extreme_of_its_row),
        cmocka_unit_test(topk_has_the_reference_kernels_bits_on_any_number_of_threads),
        cmocka_unit_test(of_equals_the_first_are_taken),
        cmocka_unit_test(a_long_row_is_sorted),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
