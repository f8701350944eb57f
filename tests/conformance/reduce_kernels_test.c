/*
 * reduce_kernels_test.c - every kernel gives the bits of the scalar reference: each instruction set
 * of this processor, dtype, operation and number of ranks, in place or not, off alignment,
 * into several places.
 */
/* ctest: threads=none */
#include "comm/group/reduce/reduce_kernels.h"

#include "conformance/calls.h"
#include "os/cpu.h"

#define MAX_COUNT 1061

typedef struct kernel {
    const char *name;
    void (*run)(const trii_reduce_args *args);
    trii_isa needs;
    /* NULL: those of the set before */
    void (*widen)(const uint16_t *src, float *dst, size_t n, tri_dtype dtype);
    void (*narrow)(const float *src, uint16_t *dst, size_t n, tri_dtype dtype);
} kernel;

static const kernel kernels[] = {
    {"portable", trii_reduce_portable, TRII_ISA_PORTABLE, trii_widen_portable,
     trii_narrow_portable},
#if defined(__x86_64__)
    {"avx2", trii_reduce_avx2, TRII_ISA_AVX2, trii_widen_avx2, trii_narrow_avx2},
    {"avx512", trii_reduce_avx512, TRII_ISA_AVX512, NULL, NULL},
#endif
};

/* Buffers: [ranks][MAX_COUNT + 1] of up to 8 bytes, at an odd element. */
static _Alignas(64) char inputs[RANKS_MAX][(MAX_COUNT + 1) * 8];
static _Alignas(64) char buffers[RANKS_MAX][(MAX_COUNT + 1) * 8];
static _Alignas(64) char apart[2][(MAX_COUNT + 1) * 8];
static char expected[MAX_COUNT * 8];

static void check(const kernel *k, trii_reduce_args *args, const void *result, const char *how)
{
    size_t at = first_difference(result, expected, args->count, args->dtype);

    if (at < args->count)
        fail_msg("%s: %s of %zu %s over %d ranks, %s: element %zu differs", k->name,
                 tri_redop_name(args->op), args->count, tri_dtype_name(args->dtype), args->n_src,
                 how, at);
}

static void compare(const kernel *k, int n, size_t count, tri_dtype dtype, tri_redop op)
{
    size_t size = tri_dtype_size(dtype), shift = count % 2 * size;
    const void *src[RANKS_MAX];
    void *dst[RANKS_MAX];
    trii_reduce_args args = {
        .src = src, .dst = dst, .n_src = n, .n_dst = n, .count = count, .dtype = dtype, .op = op};

    for (int r = 0; r < n; r++) {
        fill(inputs[r], count, dtype, (unsigned)(op * 100 + n), r);
        memcpy(buffers[r] + shift, inputs[r], count * size);
        src[r] = inputs[r];
    }
    reduce_scalar(src, n, expected, count, dtype, op);
    for (int r = 0; r < n; r++)
        src[r] = dst[r] = buffers[r] + shift;
    k->run(&args);
    for (int r = 0; r < n; r++)
        check(k, &args, dst[r], "in place");
    for (int r = 0; r < n; r++)
        src[r] = inputs[r];
    for (int i = 0; i < 2; i++)
        dst[i] = apart[i] + shift;
    for (args.n_dst = 1; args.n_dst <= 2; args.n_dst++) {
        memset(apart, 0xa5, sizeof(apart));
        k->run(&args);
        for (int i = 0; i < args.n_dst; i++)
            check(k, &args, dst[i], "apart");
    }
}

static void kernels_give_the_bits_of_the_reference(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 11};
    static const size_t counts[] = {0, 1, 31, 64, MAX_COUNT};

    (void)state;
    for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
        if (kernels[k].needs > trii_cpu_isa()) {
            printf("not on this processor: %s\n", kernels[k].name);
            continue;
        }
        for (int dtype = 1; dtype < TRII_TENSOR_DTYPES; dtype++) {
            for (int op = 0; op < TRII_REDOPS; op++) {
                if (trii_reduction_check((tri_dtype)dtype, (tri_redop)op) != TRI_OK)
                    continue;
                for (size_t n = 0; n < sizeof(ranks) / sizeof(ranks[0]); n++) {
                    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                        compare(&kernels[k], ranks[n], counts[c], (tri_dtype)dtype, (tri_redop)op);
                }
            }
        }
    }
}

static bool same_float(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

/* Every number of 16 bits, and what rounds to it and to its neighbours; at odd places. */
static void check_conversions(const kernel *k, tri_dtype dtype)
{
    static const uint32_t below[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff};
    enum { N = 0x10000 };
    static uint16_t halves[N], rounded[N + 1];
    static float wide[N + 1], from[N + 1];

    for (uint32_t h = 0; h < N; h++)
        halves[h] = (uint16_t)h;
    k->widen(halves, wide + 1, N, dtype);
    for (uint32_t h = 0; h < N; h++)
        if (!same_float(wide[h + 1], trii_half_to_f32(dtype, halves[h])))
            fail_msg("%s: %s %#x becomes %g", k->name, tri_dtype_name(dtype), h,
                     (double)wide[h + 1]);
    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
        size_t n = N - i; /* no multiple of a vector */

        for (uint32_t h = 0; h < n; h++) {
            uint32_t bits = h << 16 | below[i];

            memcpy(&from[h + 1], &bits, sizeof(bits));
        }
        rounded[n] = 0xa5a5;
        k->narrow(from + 1, rounded, n, dtype);
        for (size_t h = 0; h < n; h++) {
            uint16_t wanted = trii_f32_to_half(dtype, from[h + 1]);

            if (rounded[h] != wanted &&
                !same_float(trii_half_to_f32(dtype, rounded[h]), trii_half_to_f32(dtype, wanted)))
                fail_msg("%s: %.9g as %s is %#x, not %#x", k->name, (double)from[h + 1],
                         tri_dtype_name(dtype), rounded[h], wanted);
        }
        assert_int_equal(rounded[n], 0xa5a5);
    }
}

static void halves_are_converted_as_one_by_one(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
        if (kernels[k].widen == NULL || kernels[k].needs > trii_cpu_isa())
            continue;
        check_conversions(&kernels[k], TRI_DTYPE_F16);
        check_conversions(&kernels[k], TRI_DTYPE_BF16);
    }
}

/* The tree itself, from its definition: sums that only it gives. */
static void the_order_is_the_balanced_tree(void **state)
{
    float values[5] = {1e8f, 1.0f, -1e8f, 1.0f, 3.0f};
    const void *src[5];
    float out;

    (void)state;
    for (int i = 0; i < 5; i++)
        src[i] = &values[i];
    trii_reduce(src, 5, &out, 1, TRI_DTYPE_F32, TRI_REDOP_SUM);
    assert_true(out == ((values[0] + values[1]) + (values[2] + values[3])) + values[4]);
    trii_reduce(src, 3, &out, 1, TRI_DTYPE_F32, TRI_REDOP_SUM);
    assert_true(out == (values[0] + values[1]) + values[2]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(kernels_give_the_bits_of_the_reference),
    cmocka_unit_test(halves_are_converted_as_one_by_one),
    cmocka_unit_test(the_order_is_the_balanced_tree),
};

TEST_MAIN(tests)
