/*
 * element_blocks_test.c - element-wise operations of other types than chains have, against the
 * reference kernels over the whole of the operands: the same bits, on any number of threads.
 */
#include <trireme/ops.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

/* Sizes of the result, and of the operands that broadcast to it. */
typedef struct shapes {
    int ndim;
    int64_t out[4], a[4], b[4];
} shapes;

static const shapes all_shapes[] = {
    {1, {1}, {1}, {1}},
    {1, {4096}, {4096}, {1}},
    {1, {5003}, {5003}, {5003}},
    {2, {2, 8209}, {2, 8209}, {2, 1}},
    {2, {8209, 2}, {1, 2}, {8209, 1}},
    {3, {7, 1, 5000}, {1, 1, 5000}, {7, 1, 1}},
    {3, {5, 67, 131}, {5, 1, 131}, {1, 67, 131}},
    {4, {2, 3, 71, 73}, {1, 1, 71, 73}, {2, 3, 71, 73}},
    {4, {3, 1, 4097, 1}, {3, 1, 1, 1}, {1, 1, 4097, 1}},
    {2, {0, 5000}, {0, 5000}, {1, 5000}},
};

/* Numbers from -4 to 4 that change from place to place. */
static tri_tensor *numbers(const shapes *s, const int64_t *shape, tri_dtype dtype, int64_t from)
{
    int64_t n = 1;
    tri_tensor *x;

    for (int d = 0; d < s->ndim; d++)
        n *= shape[d];
    x = tri_arange((double)from, (double)(from + n), 1, TRI_DTYPE_F32);
    x = tri_floor(tri_mul_scalar(tri_sin(x), 4.5));
    return tri_cast(tri_reshape(x, shape, s->ndim), dtype);
}

typedef tri_tensor *(*build_fn)(const shapes *s);

static tri_tensor *build_where(const shapes *s)
{
    tri_tensor *a = numbers(s, s->a, TRI_DTYPE_F32, 1), *b = numbers(s, s->b, TRI_DTYPE_F32, 2);

    return tri_where(tri_gt(numbers(s, s->out, TRI_DTYPE_F32, 3), b), a, b);
}

static tri_tensor *build_where_of_one_mask(const shapes *s)
{
    tri_tensor *x = numbers(s, s->out, TRI_DTYPE_BF16, 1);

    return tri_cast(
        tri_where(tri_le(numbers(s, s->a, TRI_DTYPE_I64, 0), tri_full(NULL, 0, 0, TRI_DTYPE_I64)),
                  x, tri_full(NULL, 0, 2, TRI_DTYPE_BF16)),
        TRI_DTYPE_F32);
}

static tri_tensor *build_masked_fill(const shapes *s)
{
    tri_tensor *mask =
        tri_ne(numbers(s, s->a, TRI_DTYPE_F64, 4), numbers(s, s->b, TRI_DTYPE_F64, 5));

    return tri_masked_fill(numbers(s, s->out, TRI_DTYPE_F32, 6), mask, -2.5);
}

static tri_tensor *build_masked_bytes(const shapes *s)
{
    tri_tensor *mask = tri_logical_not(
        tri_eq(numbers(s, s->b, TRI_DTYPE_I32, 4), numbers(s, s->b, TRI_DTYPE_I32, 5)));

    return tri_masked_fill(tri_cast(numbers(s, s->out, TRI_DTYPE_F32, 6), TRI_DTYPE_BF16), mask, 7);
}

static tri_tensor *build_logic(const shapes *s)
{
    tri_tensor *a = tri_lt(numbers(s, s->a, TRI_DTYPE_F32, 0), numbers(s, s->a, TRI_DTYPE_F32, 9));
    tri_tensor *b = tri_ge(numbers(s, s->b, TRI_DTYPE_U8, 0), numbers(s, s->b, TRI_DTYPE_U8, 3));

    return tri_logical_or(tri_logical_xor(a, b), tri_logical_and(a, b));
}

static tri_tensor *build_integers(const shapes *s)
{
    return tri_mul(numbers(s, s->a, TRI_DTYPE_I64, 0), numbers(s, s->b, TRI_DTYPE_I64, 1));
}

static tri_tensor *build_f64(const shapes *s)
{
    return tri_exp(tri_div(numbers(s, s->a, TRI_DTYPE_F64, 0),
                           tri_add_scalar(numbers(s, s->b, TRI_DTYPE_F64, 1), 5.25)));
}

static const build_fn builds[] = {
    build_where, build_where_of_one_mask, build_masked_fill, build_masked_bytes,
    build_logic, build_integers,          build_f64};

static void *run_build(build_fn build, const shapes *s, size_t *bytes)
{
    tri_tensor *y = build(s);
    void *data;

    CHECK_OK(tri_tensor_status(y));
    *bytes = (size_t)tri_tensor_numel(y) * tri_dtype_size(tri_tensor_dtype(y));
    data = calloc(*bytes + 1, 1);
    CHECK_OK(tri_tensor_copy_out(y, data, *bytes));
    CHECK_OK(tri_step_end_status());
    return data;
}

static void blocks_have_the_reference_kernels_bits_on_any_number_of_threads(void **state)
{
    static const int threads[4] = {1, 2, 3, 8}; /* tsan needs one number, and is slow */

    (void)state;
    for (size_t b = 0; b < TRII_COUNT_OF(builds); b++) {
        for (size_t i = 0; i < TRII_COUNT_OF(all_shapes); i++) {
            size_t bytes = 0, n = 0;
            void *want;

            trii_executor_set(&trii_executor_reference);
            want = run_build(builds[b], &all_shapes[i], &bytes);
            trii_executor_set(NULL);
            for (int t = TEST_SANITIZED ? 2 : 0; t < (TEST_SANITIZED ? 3 : 4); t++) {
                void *got;

                trii_parallel_set_threads(threads[t]);
                got = run_build(builds[b], &all_shapes[i], &n);
                assert_int_equal(bytes, n);
                if (memcmp(got, want, n) != 0)
                    fail_msg("operation %zu, shapes %zu, %d threads: other bits", b, i, threads[t]);
                free(got);
            }
            free(want);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_reference_kernels_bits_on_any_number_of_threads),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
