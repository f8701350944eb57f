/*
 * batches_test.c - convolutions of batches of so many sizes that they run in pieces, and changes of
 * layout, against the reference kernels; on several threads, in f32, bf16 and f16.
 */
/* ctest: also=TRI_ISA=avx2 */
#include <math.h>
#include <trireme/trireme.h>

#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/spread_values.h"

#define CASES 5
#define MAX_RESULTS 7

typedef struct results {
    float *data[MAX_RESULTS];
    int64_t n[MAX_RESULTS];
    int count;
} results;

static void keep_result(results *r, tri_tensor *tensor)
{
    int64_t n = tri_tensor_numel(tensor);

    r->n[r->count] = n;
    r->data[r->count] = malloc((size_t)n * sizeof(float));
    CHECK_OK(tri_tensor_copy_out(tensor, r->data[r->count++], (size_t)n * sizeof(float)));
}

static void results_free(results *r)
{
    for (int k = 0; k < r->count; k++)
        free(r->data[k]);
}

/* in, out channels, window, stride, groups: what the library takes in plain order, in blocks of 16,
 * by Winograd, in blocks of 8, in groups. */
static const int cases[CASES][5] = {
    {3, 16, 3, 1, 1}, {32, 16, 1, 1, 1}, {64, 64, 3, 1, 1}, {8, 24, 3, 2, 1}, {32, 32, 3, 1, 4}};

/* Forward and backward of two convolutions, the second of which reads the first's result. */
static results run_batch(const int c[5], int64_t batch, tri_dtype dtype)
{
    const tri_conv_options apart = {
        .stride = {c[3], c[3]}, .padding = {c[2] / 2, c[2] / 2}, .groups = c[4]};
    tri_tensor *x = spread_values(TRI_SHAPE(batch, c[0], 5, 4), 1);
    tri_tensor *w = spread_values(TRI_SHAPE(c[1], c[0] / c[4], c[2], c[2]), 2);
    tri_tensor *b = spread_values(TRI_SHAPE(c[1]), 3);
    tri_tensor *w_2 = spread_values(TRI_SHAPE(16, c[1], 1, 1), 4), *y, *factors;
    tri_tensor *const wanted[4] = {x, w, b, w_2};
    results r = {.count = 0};

    for (int i = 0; i < 4; i++)
        tri_requires_grad(wanted[i], true);
    if (dtype != TRI_DTYPE_F32)
        tri_autocast_begin(dtype);
    y = tri_conv(tri_conv(x, w, b, &apart), w_2, NULL, NULL);
    if (dtype != TRI_DTYPE_F32)
        tri_autocast_end();
    y = tri_keep(tri_cast(tri_flatten(y, 1), TRI_DTYPE_F32));
    factors = spread_values(TRI_SHAPE(tri_tensor_size(y, 0), tri_tensor_size(y, 1)), 5);
    tri_backward(tri_sum(tri_mul(y, factors), NULL, 0, false));
    CHECK_OK(tri_run());
    keep_result(&r, y);
    for (int i = 0; i < 4; i++)
        keep_result(&r, tri_grad(wanted[i]));
    CHECK_OK(tri_step_end_status());
    for (int i = 0; i < 4; i++)
        tri_tensor_unref(wanted[i]);
    tri_tensor_unref(factors);
    return r;
}

static void check_batch(int which, int64_t batch, tri_dtype dtype)
{
    const double tolerance = dtype == TRI_DTYPE_F32 ? 1e-5 : dtype == TRI_DTYPE_BF16 ? 0.03 : 0.004;
    results want, got;

    trii_executor_set(&trii_executor_reference);
    want = run_batch(cases[which], batch, dtype);
    trii_executor_set(NULL);
    got = run_batch(cases[which], batch, dtype);
    assert_int_equal(want.count, got.count);
    for (int k = 0; k < want.count; k++) {
        double off = 0, size = 0;

        assert_int_equal(want.n[k], got.n[k]);
        for (int64_t i = 0; i < want.n[k]; i++) {
            off += pow((double)want.data[k][i] - (double)got.data[k][i], 2);
            size += pow((double)want.data[k][i], 2);
        }
        if (!(sqrt(off) <= tolerance * sqrt(size)))
            fail_msg("case %d, batch %lld in %s: result %d is off by %g of %g", which,
                     (long long)batch, tri_dtype_name(dtype), k, sqrt(off), sqrt(size));
    }
    results_free(&want);
    results_free(&got);
}

static void check_all(tri_dtype dtype)
{
    /* The first 8 have code of their own: the others are in pieces, 16 is one. */
    static const int64_t batches[] = {2, 3, 5, 6, 7, 9, 10, 12, 1, 13, 16, 23};

    for (int threads = TEST_SANITIZED ? 3 : 1; threads <= 3; threads += 2) { /* some on 3 */
        trii_parallel_set_threads(threads);
        trii_step_release(); /* plans of so many threads */
        for (int which = threads == 1 ? 0 : 2; which < CASES; which += threads == 1 ? 1 : 2) {
            for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++)
                check_batch(which, batches[i], dtype);
        }
    }
}

static void batches_in_pieces(void **state)
{
    (void)state;
    check_all(TRI_DTYPE_F32);
}

static void batches_in_pieces_in_bf16(void **state)
{
    (void)state;
    check_all(TRI_DTYPE_BF16);
}

static void batches_in_pieces_in_f16(void **state)
{
    (void)state;
    check_all(TRI_DTYPE_F16);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(batches_in_pieces),
    cmocka_unit_test(batches_in_pieces_in_bf16),
    cmocka_unit_test(batches_in_pieces_in_f16),
};

TEST_MAIN(tests)
