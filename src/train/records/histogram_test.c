/* histogram_test.c - buckets against a search through PyTorch's list of limits. */
/* ctest: threads=none */
#include <float.h>
#include <math.h>

#include "os/clock.h"
#include "train/records/histogram.h"
#include "testing/scratch.h"

/* As torch/utils/tensorboard/writer.py makes its default bins. */
static int list_limits(double *limits)
{
    static double side[1000];
    double v = 1e-12;
    int n = 0;

    while (v < 1e20) {
        side[n++] = v;
        v *= 1.1;
    }
    for (int i = 0; i < n; i++) {
        limits[i] = -side[n - 1 - i];
        limits[n + 1 + i] = side[i];
    }
    limits[n] = 0;
    return 2 * n + 1;
}

static void check_counts(const trii_histogram *h, const double *values, int n)
{
    static double limits[2001], counts[2002];
    int n_limits = list_limits(limits), first = 0, last;

    assert_int_equal(n_limits, TRII_HISTOGRAM_LIMITS);
    memset(counts, 0, sizeof(counts));
    for (int i = 0; i < n; i++) {
        int at = 0;

        while (at < n_limits && limits[at] <= values[i])
            at++;
        counts[at]++;
    }
    for (last = n_limits; counts[last] == 0;)
        last--;
    while (counts[first] == 0)
        first++;
    first -= first > 0;
    assert_int_equal(h->first, first);
    assert_int_equal(h->buckets, last - first + 1);
    for (int i = first; i <= last; i++) {
        assert_true(h->limits[i] == (i < n_limits ? limits[i] : DBL_MAX));
        if (h->counts[i] != counts[i])
            fail_msg("up to %g: %g instead of %g", h->limits[i], h->counts[i], counts[i]);
    }
}

static void every_value_is_in_its_bucket(void **state)
{
    static double values[20000], limits[2001];
    static trii_histogram h;
    uint64_t seed = 1;
    int n = 0, n_limits = list_limits(limits);

    (void)state;
    for (int i = 0; i < n_limits; i++) { /* on each limit, and beside it */
        values[n++] = limits[i];
        values[n++] = nextafter(limits[i], INFINITY);
        values[n++] = nextafter(limits[i], -INFINITY);
    }
    while (n < 19990)
        values[n++] =
            ldexp((double)scratch_random(&seed) - 0x1p31, (int)(scratch_random(&seed) % 140) - 90);
    values[n++] = -0.0;
    values[n++] = 5e-324;
    values[n++] = -5e-324;
    values[n++] = DBL_MAX;
    values[n++] = -DBL_MAX;
    trii_histogram_make(values, n, TRI_DTYPE_F64, &h);
    check_counts(&h, values, n);
    assert_int_equal(h.n, n);
    assert_true(h.min == -DBL_MAX && h.max == DBL_MAX);
    for (int i = 0; i < n; i += 7) {
        trii_histogram_make(values + i, 1, TRI_DTYPE_F64, &h);
        check_counts(&h, values + i, 1);
        assert_int_equal(h.n, 1);
    }
}

static void what_is_not_finite_is_not_counted(void **state)
{
    static trii_histogram h;
    const float some[] = {NAN, 1, INFINITY, -INFINITY, 3}, none[] = {NAN, INFINITY};

    (void)state;
    trii_histogram_make(some, 5, TRI_DTYPE_F32, &h);
    assert_int_equal(h.n, 2);
    assert_true(h.min == 1 && h.max == 3 && h.sum == 4 && h.sum_squares == 10);
    for (int i = 0; i < 2; i++) {
        trii_histogram_make(none, i == 0 ? 2 : 0, TRI_DTYPE_F32, &h);
        assert_int_equal(h.n, 0);
        assert_int_equal(h.buckets, 1);
        assert_true(h.limits[h.first] == 0 && h.counts[h.first] == 0);
        assert_true(h.min == 0 && h.max == 0 && h.sum == 0);
    }
}

static void values_of_every_kind_are_counted(void **state)
{
    static trii_histogram h;
    const int64_t i64[] = {-3, 7};
    const int32_t i32[] = {-3, 7};
    const double f64[] = {-3, 7};
    const float f32[] = {-3, 7};
    const uint8_t u8[] = {3, 255};
    const struct {
        const void *values;
        tri_dtype dtype;
    } cases[] = {{i64, TRI_DTYPE_I64},
                 {i32, TRI_DTYPE_I32},
                 {f64, TRI_DTYPE_F64},
                 {f32, TRI_DTYPE_F32},
                 {u8, TRI_DTYPE_U8}};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        bool bytes = cases[i].dtype == TRI_DTYPE_U8;

        trii_histogram_make(cases[i].values, 2, cases[i].dtype, &h);
        assert_int_equal(h.n, 2);
        assert_true(h.min == (bytes ? 3 : -3) && h.max == (bytes ? 255 : 7));
    }
}

/* As many as a large layer has parameters. The line says how long it takes. */
static void millions_are_counted(void **state)
{
    enum { MANY = TEST_SANITIZED ? 1 << 18 : 1 << 22 };
    static trii_histogram h;
    float *values = malloc(MANY * sizeof(*values));
    double counted = 0;
    uint64_t seed = 1;
    int64_t began;

    (void)state;
    assert_non_null(values);
    for (int i = 0; i < MANY; i++)
        values[i] = ldexpf((float)scratch_random(&seed) - 0x1p31f, -34);
    began = trii_now_ns();
    trii_histogram_make(values, MANY, TRI_DTYPE_F32, &h);
    print_message("%d values in %.1f ms\n", MANY, (double)(trii_now_ns() - began) / 1e6);
    for (int i = 0; i < h.buckets; i++)
        counted += h.counts[h.first + i];
    assert_true(counted == MANY && h.n == MANY);
    free(values);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_value_is_in_its_bucket),
    cmocka_unit_test(what_is_not_finite_is_not_counted),
    cmocka_unit_test(values_of_every_kind_are_counted),
    cmocka_unit_test(millions_are_counted),
};
TEST_MAIN(tests)
