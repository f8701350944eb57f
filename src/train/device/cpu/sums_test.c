/*
 * sums_test.c - sums and means: the kernels against sums written out, results against exact ones;
 * and how many rows are counted as correct. tests/conformance/number_bits_test.c compares bits.
 */
#include <math.h>

#include <trireme/ops.h>

#include "base/compiler.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/softmax_rows.h"
#include "train/device/cpu/sum_tree.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

#define MAX_TABLES (TRII_ISA_COUNT + 1)

static uint32_t state_of_random;

static float random_float(void)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    /* times a number of many digits: sums of multiples of 2^-23 would be rounded at ties only */
    return ((float)(state_of_random >> 8) / 8388608.0f - 1) * 0.98351276f;
}

static float *random_floats(int64_t n)
{
    float *x = malloc((size_t)n * sizeof(*x) + 1);

    state_of_random = 11;
    for (int64_t i = 0; i < n; i++)
        x[i] = random_float();
    return x;
}

static int tables(const trii_cpu_kernels *out[MAX_TABLES])
{
    int n = 0;

    for (int isa = 0; isa <= (int)trii_cpu_isa(); isa++)
        out[n++] = trii_cpu_kernels_of((trii_isa)isa);
#if defined(__x86_64__)
    if (trii_cpu_has_avx512_bf16()) /* two tables of one instruction set */
        out[n++] = &trii_cpu_kernels_avx512;
#endif
    return n;
}

/* --- kernels -------------------------------------------------------------- */

enum { KIND_VALUES, KIND_PRODUCTS, KIND_SQUARES, KINDS };

static double term(int kind, float a, float b)
{
    double d = (double)a - (double)b;

    return kind == KIND_VALUES ? (double)a : kind == KIND_PRODUCTS ? (double)a * (double)b : d * d;
}

/* lanes += n elements: values by fours of each lane as long as there are, the rest one by one. */
static void add_plainly(int kind, const float *a, const float *b, int64_t n, double *lanes)
{
    enum { L = TRII_SUM_LANES };
    int64_t i = 0;

    for (; kind == KIND_VALUES && i + 4 * L <= n; i += 4 * L) {
        for (int l = 0; l < L; l++) {
            const float *x = a + i + l;

            lanes[l] += (double)((x[0] + x[L]) + (x[2 * L] + x[3 * L]));
        }
    }
    for (; i < n; i++)
        lanes[i % L] += term(kind, a[i], b[i]);
}

static double total_of(const trii_cpu_kernels *table, int kind, const float *a, const float *b,
                       int64_t n)
{
    double total;

    if (kind == KIND_PRODUCTS)
        return table->total_product(a, b, n);
    if (kind == KIND_SQUARES)
        return table->total_squared_difference(a, b, n);
    table->row_totals(a, 1, 0, n, &total);
    return total;
}

static void kernels_add_in_fixed_lanes(void **state)
{
    enum { N = 4097 };
    static const int64_t sizes[] = {0,  1,  2,  3,  5,   7,   8,   13,  31,   32,   33,
                                    63, 64, 65, 97, 127, 128, 129, 300, 4095, 4096, N};
    const trii_cpu_kernels *table[MAX_TABLES];
    int n_tables = tables(table);
    float *a = random_floats(2 * N), *b = a + N;

    (void)state;
    for (int t = 0; t < n_tables; t++) {
        for (int kind = 0; kind < KINDS; kind++) {
            for (size_t s = 0; s < TRII_COUNT_OF(sizes); s++) {
                double want[TRII_SUM_LANES] = {0}, from[TRII_SUM_LANES], lanes[TRII_SUM_LANES];
                double total = total_of(table[t], kind, a, b, sizes[s]);

                add_plainly(kind, a, b, sizes[s], want);
                if (total != trii_lanes_total(want))
                    fail_msg("table %d, kind %d, %d elements", t, kind, (int)sizes[s]);
                for (int l = 0; l < TRII_SUM_LANES; l++)
                    from[l] = lanes[l] = l;
                add_plainly(KIND_VALUES, a, b, sizes[s], from);
                table[t]->add_values(a, 1, 0, sizes[s], lanes);
                assert_memory_equal(lanes, from, sizeof(from));
            }
        }
    }
    free(a);
}

static void kernels_add_rows_at_a_stride(void **state)
{
    enum { ROWS = 11, STRIDE = 300 };
    const trii_cpu_kernels *table[MAX_TABLES];
    int n_tables = tables(table);
    float *x = random_floats(ROWS * STRIDE);

    (void)state;
    for (int t = 0; t < n_tables; t++) {
        for (int64_t n = 0; n <= STRIDE; n += n < 70 ? 1 : 23) {
            for (int64_t rows = 0; rows <= ROWS; rows++) {
                double lanes[TRII_SUM_LANES] = {0}, want[TRII_SUM_LANES] = {0};
                double sums[STRIDE] = {0}, want_sums[STRIDE] = {0};
                double totals[ROWS + 1], want_total;

                totals[rows] = -1;
                table[t]->row_totals(x, rows, STRIDE, n, totals);
                assert_true(totals[rows] == -1);
                for (int64_t r = 0; r < rows; r++) {
                    double alone[TRII_SUM_LANES] = {0};

                    add_plainly(KIND_VALUES, x + r * STRIDE, x, n, want);
                    add_plainly(KIND_VALUES, x + r * STRIDE, x, n, alone);
                    want_total = trii_lanes_total(alone);
                    assert_memory_equal(&totals[r], &want_total, sizeof(want_total));
                }
                for (int64_t i = 0; i < n; i++) {
                    int64_t r = 0;

                    for (; r + 4 <= rows; r += 4) {
                        const float *p = x + r * STRIDE + i;

                        want_sums[i] +=
                            (double)((p[0] + p[STRIDE]) + (p[2 * STRIDE] + p[3 * STRIDE]));
                    }
                    for (; r < rows; r++)
                        want_sums[i] += (double)x[r * STRIDE + i];
                }
                table[t]->add_values(x, rows, STRIDE, n, lanes);
                table[t]->add_rows(x, rows, STRIDE, n, sums);
                assert_memory_equal(lanes, want, sizeof(want));
                assert_memory_equal(sums, want_sums, sizeof(want_sums));
            }
        }
    }
    free(x);
}

static void the_largest_element_wherever_it_is(void **state)
{
    enum { N = 70 };
    const trii_cpu_kernels *table[MAX_TABLES];
    int n_tables = tables(table);
    float *x = random_floats(N);

    (void)state;
    for (int t = 0; t < n_tables; t++) {
        for (size_t n = 1; n <= N; n++) {
            for (size_t at = 0; at < n; at++) {
                float kept = x[at];

                x[at] = 2;
                assert_true(table[t]->max(x, n) == 2);
                x[at] = INFINITY;
                assert_true(table[t]->max(x, n) == INFINITY);
                x[at] = NAN;
                assert_true(isnan(table[t]->max(x, n)));
                x[at] = -INFINITY;
                assert_true(table[t]->max(x, n) == (n == 1 ? -INFINITY : table[0]->max(x, n)));
                x[at] = kept;
            }
        }
    }
    for (int i = 0; i < N; i++)
        x[i] = -INFINITY;
    for (int t = 0; t < n_tables; t++)
        assert_true(table[t]->max(x, N) == -INFINITY);
    free(x);
}

static void a_tree_adds_neighbours_first(void **state)
{
    double x[7] = {1, 0x1p53, 1, -0x1p53, 0x1p-60, 1, 3};

    (void)state;
    assert_true(trii_tree_total(x, 0) == 0);
    assert_true(trii_tree_total((double[]){5}, 1) == 5);
    assert_true(trii_tree_total(x, 7) == ((1 + 0x1p53) + (1 - 0x1p53)) + ((0x1p-60 + 1) + 3));
    assert_true(trii_sum_blocks(0) == 0 && trii_sum_blocks(TRII_SUM_BLOCK) == 1 &&
                trii_sum_blocks(TRII_SUM_BLOCK + 1) == 2);
}

static void check_exponentials(const float *x, int64_t rows, int64_t n)
{
    const trii_cpu_kernels *table[MAX_TABLES];
    int n_tables = tables(table);
    float *e = calloc((size_t)(2 * rows * n), sizeof(*e)), *again = e + rows * n;
    trii_exp_sums want, got;

    trii_exp_rows(table[0], x, rows, n, e, &want);
    for (int64_t r = 0; r < rows; r++) {
        double exact = 0, largest = (double)x[r * n];

        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, (double)x[r * n + i]);
        for (int64_t i = 0; i < n; i++)
            exact += exp((double)x[r * n + i] - largest);
        assert_true((double)want.max[r] == largest);
        assert_true(fabs(want.sum[r] - exact) <= 4e-7 * exact);
    }
    for (int t = 0; t < n_tables; t++) {
        for (int keep = 0; keep < 2; keep++) {
            trii_exp_rows(table[t], x, rows, n, keep ? again : NULL, &got);
            assert_memory_equal(got.max, want.max, (size_t)rows * sizeof(want.max[0]));
            assert_memory_equal(got.sum, want.sum, (size_t)rows * sizeof(want.sum[0]));
        }
        assert_memory_equal(again, e, (size_t)(rows * n) * sizeof(*e));
    }
    free(e);
}

static void exponentials_of_rows_have_one_sum(void **state)
{
    float *x = random_floats(TRII_EXP_ROWS * 2000);

    (void)state;
    for (int64_t n = 1; n < 2000; n += n < 40 ? 1 : 89) {
        check_exponentials(x, 1, n);
        check_exponentials(x, 7, n);
        check_exponentials(x, TRII_EXP_ROWS, n);
    }
    free(x);
}

/* --- long sums ------------------------------------------------------------ */

static tri_tensor *filled(int64_t n, float value, const int64_t *shape, int ndim)
{
    float *data = malloc((size_t)n * sizeof(*data));
    tri_tensor *x;

    for (int64_t i = 0; i < n; i++)
        data[i] = value;
    x = tri_tensor_from(shape, ndim, TRI_DTYPE_F32, data);
    free(data);
    return x;
}

static void long_sums_are_exact(void **state)
{
    int64_t tenths = TEST_SANITIZED ? 100000 : 10000000, ones = TEST_SANITIZED ? 200000 : 20000000;
    tri_tensor *x = filled(tenths, 0.1f, &tenths, 1);
    tri_tensor *y = filled(ones, 1, (int64_t[]){ones, 1}, 2);
    const int64_t first = 0;

    (void)state;
    for (int eager = 0; eager < 2; eager++) {
        trii_executor_set(eager ? &trii_executor_reference : NULL);
        assert_true((float)tri_item(tri_mean(x, NULL, 0, false)) == 0.1f);
        tri_step_end();
        assert_true(tri_item(tri_sum(y, NULL, 0, false)) == (double)ones);
        tri_step_end();
        assert_true(tri_item(tri_sum(y, &first, 1, false)) == (double)ones); /* a column */
        tri_step_end();
        assert_true(tri_item(tri_mse_loss(x, tri_mul_scalar(x, 2), NULL)) == (double)(0.1f * 0.1f));
        CHECK_OK(tri_step_end_status());
    }
    trii_executor_set(NULL);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

/* --- any dimensions ------------------------------------------------------- */

typedef struct shape_case {
    int ndim;
    int64_t shape[5];
    int mask; /* bit d: dimension d is reduced */
} shape_case;

static const shape_case shapes[] = {
    {0, {0}, 0},
    {1, {1}, 1},
    {1, {9973}, 1},
    {1, {4095}, 1},
    {1, {4096}, 1},
    {1, {4097}, 1},
    {1, {(1 << 22) + 3}, 1},
    {2, {(1 << 20) + 7, 3}, 1},
    {2, {4099, 1031}, 1},
    {2, {4099, 1031}, 2},
    {2, {3, 300007}, 2},
    {2, {40009, 3}, 2},
    {3, {5, 1025, 7}, 2},
    {3, {7, 1, 2053}, 1},
    {3, {61, 31, 49}, 5},
    {4, {16, 5, 67, 71}, 13},
    {4, {13, 3, 1201, 5}, 5},
    {4, {13, 3, 1201, 5}, 10},
    {5, {3, 11, 5, 130, 17}, 10},
    {5, {3, 11, 5, 130, 17}, 21},
    {3, {2, 3, 4}, 7}, /* all of several */
};

/* Every sum by Neumaier's method, in plain order of the kept dimensions. */
static double *exact_sums(const shape_case *c, const float *x, int64_t *n_out)
{
    int64_t n = 1, kept = 1, at[5] = {0}, stride[5];
    double *sum, *rest;

    for (int d = c->ndim - 1; d >= 0; d--) {
        bool reduced = c->mask >> d & 1;

        stride[d] = reduced ? 0 : kept;
        kept *= reduced ? 1 : c->shape[d];
        n *= c->shape[d];
    }
    sum = calloc((size_t)kept, sizeof(*sum));
    rest = calloc((size_t)kept, sizeof(*rest));
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        double v = (double)x[i], t;

        for (int d = 0; d < c->ndim; d++)
            k += at[d] * stride[d];
        t = sum[k] + v;
        rest[k] += fabs(sum[k]) >= fabs(v) ? sum[k] - t + v : v - t + sum[k];
        sum[k] = t;
        for (int d = c->ndim - 1; d >= 0 && ++at[d] == c->shape[d]; d--)
            at[d] = 0;
    }
    for (int64_t k = 0; k < kept; k++)
        sum[k] += rest[k];
    free(rest);
    *n_out = kept;
    return sum;
}

/* Sum and mean over the dimensions, each [n]. */
static void device_sums(const shape_case *c, const float *x, int64_t n, float *out)
{
    tri_tensor *t = tri_tensor_from(c->shape, c->ndim, TRI_DTYPE_F32, x), *y[2];
    int64_t dims[5];
    int n_dims = 0;

    for (int d = 0; d < c->ndim; d++) {
        if (c->mask >> d & 1)
            dims[n_dims++] = d;
    }
    y[0] = tri_keep(tri_sum(t, dims, n_dims, false));
    y[1] = tri_keep(tri_mean(t, dims, n_dims, true));
    for (int i = 0; i < 2; i++)
        CHECK_OK(tri_tensor_copy_out(y[i], out + i * n, (size_t)n * sizeof(float)));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(t);
}

static void sums_over_any_dimensions(void **state)
{
    (void)state;
    for (size_t s = TEST_SANITIZED ? 9 : 0; s < TRII_COUNT_OF(shapes); s++) {
        const shape_case *c = &shapes[s];
        int64_t total = 1, n;
        float *x, *got;
        double *want;

        for (int d = 0; d < c->ndim; d++)
            total *= c->shape[d];
        x = random_floats(total);
        want = exact_sums(c, x, &n);
        got = malloc((size_t)n * 2 * sizeof(*got));
        for (int variant = 0; variant < 5; variant++) { /* threads; last: the reference */
            static const int threads[] = {1, 2, 3, 8, 1};

            trii_parallel_set_threads(threads[variant]);
            trii_executor_set(variant == 4 ? &trii_executor_reference : NULL);
            device_sums(c, x, n, got);
            for (int64_t k = 0; k < n; k++) {
                double count = (double)(total / n);
                /* one rounding at the end, and those of fours, which go either way */
                double allowed = 6e-8 * fabs(want[k]) + 1.2e-7 * sqrt(count);

                if (!(fabs((double)got[k] - want[k]) <= allowed) ||
                    !(fabs((double)got[n + k] * count - want[k]) <= allowed))
                    fail_msg("case %zu, variant %d, sum %lld: %.9g instead of %.17g", s, variant,
                             (long long)k, (double)got[k], want[k]);
            }
        }
        free(got);
        free(want);
        free(x);
    }
    trii_executor_set(NULL);
}

/* --- how often the largest element is where it belongs -------------------- */

static void rows_with_ties_and_nan_are_counted_as_the_reference_does(void **state)
{
    enum { ROWS = 6007, CLASSES = 37 };
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1, 1, 1};
    static float x[ROWS * CLASSES];
    static int64_t target[ROWS];
    const int64_t shape[2] = {ROWS, CLASSES};
    int64_t count[5];

    (void)state;
    state_of_random = 3;
    for (int i = 0; i < ROWS * CLASSES; i++) {
        int from = i / CLASSES % 3; /* with NaN, without, without infinity */

        x[i] = odd[from + (int)((random_float() + 1) * 4000) % (8 - from)];
    }
    for (int r = 0; r < ROWS; r++) /* few classes, and some that there are not */
        target[r] = r % 50 == 0 ? 100 - r : (int64_t)((random_float() + 1) * 3);
    for (int variant = 0; variant < 5; variant++) {
        static const int threads[] = {1, 2, 3, 8, 1};
        tri_tensor *a = tri_tensor_from(shape, 2, TRI_DTYPE_F32, x);
        tri_tensor *t = tri_tensor_from(shape, 1, TRI_DTYPE_I64, target);

        trii_parallel_set_threads(threads[variant]);
        trii_executor_set(variant == 4 ? &trii_executor_reference : NULL);
        CHECK_OK(tri_tensor_copy_out(tri_keep(tri_count_correct(a, t)), &count[variant],
                                     sizeof(count[0])));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(a);
        tri_tensor_unref(t);
    }
    trii_executor_set(NULL);
    assert_true(count[4] > ROWS / 10);
    for (int variant = 0; variant < 4; variant++)
        assert_int_equal(count[variant], count[4]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_add_in_fixed_lanes),
        cmocka_unit_test(kernels_add_rows_at_a_stride),
        cmocka_unit_test(the_largest_element_wherever_it_is),
        cmocka_unit_test(a_tree_adds_neighbours_first),
        cmocka_unit_test(exponentials_of_rows_have_one_sum),
        cmocka_unit_test(long_sums_are_exact),
        cmocka_unit_test(sums_over_any_dimensions),
        cmocka_unit_test(rows_with_ties_and_nan_are_counted_as_the_reference_does),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
