/*
 * reduce_kernels.c - see reduce_kernels.h. Everything is written once, in C, inlined into one
 * function per instruction set and vectorised by the compiler.
 *
 * Sums of 2, 3, 4 and 8 ranks in f32 stay in registers: each element is loaded once from every
 * source and stored once to every destination. Everything else goes block by block through
 * accumulators that stay in the first-level cache.
 */
#include "group/reduce/reduce_kernels.h"

#include <string.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "group/reduce/reduce.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BLOCK 512 /* elements of an accumulator */
#define DEPTH 12  /* of the tree: ranks up to 2^(DEPTH - 1) */

/* Sixteen floats, anywhere; the compiler splits them where registers are smaller. */
typedef float vec TRII_VECTOR(64, 4);

typedef struct half_functions {
    void (*widen)(const uint16_t *src, float *dst, size_t n);
    void (*narrow)(const float *src, uint16_t *dst, size_t n);
} half_functions;

/* --- f32 sums in registers ------------------------------------------------------------------- */

/* One function per number of sources, so that the addresses stay in registers. The factor is
 * exact (avg over a power of two) or 1. */
#define SUM_2(s) (AT(s[0]) + AT(s[1]))
#define SUM_3(s) (SUM_2(s) + AT(s[2]))
#define SUM_4(s) (SUM_2(s) + (AT(s[2]) + AT(s[3])))
#define SUM_8(s) (SUM_4(s) + ((AT(s[4]) + AT(s[5])) + (AT(s[6]) + AT(s[7]))))
#define AT(p) (*(const vec *)((p) + i))
#define PUT(p, v) (*(vec *)((p) + i) = (v))

#define DEFINE_SUM(N)                                                                              \
    static TRII_INLINE size_t sum_##N(const float *const *src, float *const *dst, int n_dst,       \
                                      size_t count, float factor)                                  \
    {                                                                                              \
        const float *s[N];                                                                         \
        float *first = dst[0], *last = dst[n_dst - 1];                                             \
        size_t i = 0;                                                                              \
                                                                                                   \
        memcpy(s, src, sizeof(s));                                                                 \
        if (n_dst == 1) {                                                                          \
            for (; i + 16 <= count; i += 16)                                                       \
                PUT(first, SUM_##N(s) * factor);                                                   \
            return i;                                                                              \
        }                                                                                          \
        for (; i + 16 <= count; i += 16) {                                                         \
            vec sum = SUM_##N(s) * factor;                                                         \
                                                                                                   \
            PUT(first, sum);                                                                       \
            PUT(last, sum);                                                                        \
            for (int r = 1; r < n_dst - 1; r++)                                                    \
                PUT(dst[r], sum);                                                                  \
        }                                                                                          \
        return i;                                                                                  \
    }

DEFINE_SUM(2)
DEFINE_SUM(3)
DEFINE_SUM(4)
DEFINE_SUM(8)

/* How many leading elements it has done; 0 if it is no such sum. */
static TRII_INLINE size_t register_sum(const trii_reduce_args *args)
{
    bool power_of_two = (args->n_src & (args->n_src - 1)) == 0;
    float factor = args->op == TRI_REDOP_AVG ? 1.0f / (float)args->n_src : 1.0f;
    const float *const *src = (const float *const *)args->src;
    float *const *dst = (float *const *)args->dst;

    if (args->dtype != TRI_DTYPE_F32 ||
        (args->op != TRI_REDOP_SUM && (args->op != TRI_REDOP_AVG || !power_of_two)))
        return 0;
    switch (args->n_src) {
    case 2:
        return sum_2(src, dst, args->n_dst, args->count, factor);
    case 3:
        return sum_3(src, dst, args->n_dst, args->count, factor);
    case 4:
        return sum_4(src, dst, args->n_dst, args->count, factor);
    case 8:
        return sum_8(src, dst, args->n_dst, args->count, factor);
    default:
        return 0;
    }
}

/* --- pairs of blocks -------------------------------------------------------------------------- */

#define EACH(expression)                                                                           \
    for (size_t i = 0; i < n; i++)                                                                 \
    out[i] = (expression)

#define FLOAT_MIN(a, b) ((a) != (a) ? (a) : (b) != (b) ? (b) : (b) < (a) ? (b) : (a))
#define FLOAT_MAX(a, b) ((a) != (a) ? (a) : (b) != (b) ? (b) : (b) > (a) ? (b) : (a))

#define DEFINE_FLOAT_PAIR(T)                                                                       \
    static TRII_INLINE void pair_##T(const T *restrict a, const T *restrict b, T *restrict out,    \
                                     size_t n, tri_redop op)                                       \
    {                                                                                              \
        switch (op) {                                                                              \
        case TRI_REDOP_PRODUCT:                                                                    \
            EACH(a[i] * b[i]);                                                                     \
            break;                                                                                 \
        case TRI_REDOP_MIN:                                                                        \
            EACH(FLOAT_MIN(a[i], b[i]));                                                           \
            break;                                                                                 \
        case TRI_REDOP_MAX:                                                                        \
            EACH(FLOAT_MAX(a[i], b[i]));                                                           \
            break;                                                                                 \
        default:                                                                                   \
            EACH(a[i] + b[i]);                                                                     \
            break;                                                                                 \
        }                                                                                          \
    }

/* Sums and products in the unsigned type of 32 or 64 bits: they wrap, nothing overflows. */
#define DEFINE_INT_PAIR(T, W)                                                                      \
    static TRII_INLINE void pair_##T(const T *restrict a, const T *restrict b, T *restrict out,    \
                                     size_t n, tri_redop op)                                       \
    {                                                                                              \
        switch (op) {                                                                              \
        case TRI_REDOP_PRODUCT:                                                                    \
            EACH((T)((W)a[i] * (W)b[i]));                                                          \
            break;                                                                                 \
        case TRI_REDOP_MIN:                                                                        \
            EACH(b[i] < a[i] ? b[i] : a[i]);                                                       \
            break;                                                                                 \
        case TRI_REDOP_MAX:                                                                        \
            EACH(b[i] > a[i] ? b[i] : a[i]);                                                       \
            break;                                                                                 \
        case TRI_REDOP_BAND:                                                                       \
            EACH((T)(a[i] & b[i]));                                                                \
            break;                                                                                 \
        case TRI_REDOP_BOR:                                                                        \
            EACH((T)(a[i] | b[i]));                                                                \
            break;                                                                                 \
        case TRI_REDOP_BXOR:                                                                       \
            EACH((T)(a[i] ^ b[i]));                                                                \
            break;                                                                                 \
        default:                                                                                   \
            EACH((T)((W)a[i] + (W)b[i]));                                                          \
            break;                                                                                 \
        }                                                                                          \
    }

DEFINE_FLOAT_PAIR(float)
DEFINE_FLOAT_PAIR(double)
DEFINE_INT_PAIR(uint8_t, uint32_t)
DEFINE_INT_PAIR(int8_t, uint32_t)
DEFINE_INT_PAIR(int16_t, uint32_t)
DEFINE_INT_PAIR(int32_t, uint32_t)
DEFINE_INT_PAIR(int64_t, uint64_t)

/* dtype: of the accumulators, so never f16 or bf16. */
static TRII_INLINE void pair(const void *a, const void *b, void *out, size_t n, tri_dtype dtype,
                             tri_redop op)
{
    switch (dtype) {
    case TRI_DTYPE_F32:
        pair_float(a, b, out, n, op);
        break;
    case TRI_DTYPE_F64:
        pair_double(a, b, out, n, op);
        break;
    case TRI_DTYPE_I8:
        pair_int8_t(a, b, out, n, op);
        break;
    case TRI_DTYPE_I16:
        pair_int16_t(a, b, out, n, op);
        break;
    case TRI_DTYPE_I32:
        pair_int32_t(a, b, out, n, op);
        break;
    case TRI_DTYPE_I64:
        pair_int64_t(a, b, out, n, op);
        break;
    default: /* u8, bool */
        pair_uint8_t(a, b, out, n, op);
        break;
    }
}

/* --- blocks ------------------------------------------------------------------------------------
 */

/* Accumulators of the tree: level l holds what waits for its right brother. */
typedef struct block_space {
    TRII_ALIGNED(64) unsigned char left[DEPTH][BLOCK * 8];
    TRII_ALIGNED(64) unsigned char right[DEPTH][BLOCK * 8];
} block_space;

/* Elements [at, at + n) of a source as accumulators: where they lie, or widened into space. */
static TRII_INLINE const void *leaf(const trii_reduce_args *args, const half_functions *half, int r,
                                    size_t at, size_t n, void *space)
{
    const char *src = (const char *)args->src[r] + at * tri_dtype_size(args->dtype);

    if (args->dtype == TRI_DTYPE_F16) {
        half->widen((const uint16_t *)(const void *)src, space, n);
        return space;
    }
    if (args->dtype == TRI_DTYPE_BF16) {
        float *restrict out = space;

        for (size_t i = 0; i < n; i++) {
            uint16_t h;

            memcpy(&h, src + 2 * i, sizeof(h));
            out[i] = trii_bf16_to_f32(h);
        }
        return space;
    }
    if ((uintptr_t)src % tri_dtype_size(args->dtype) == 0)
        return src;
    memcpy(space, src, n * tri_dtype_size(args->dtype));
    return space;
}

/* The tree without recursion: a stack of finished subtrees, joined whenever the upper two are
 * of the same size, at the end from the right: that is the balanced tree split at the largest
 * power of two. Returns where the result lies. */
static TRII_INLINE const void *tree(const trii_reduce_args *args, const half_functions *half,
                                    size_t at, size_t n, tri_dtype acc, tri_redop op,
                                    block_space *space)
{
    const void *stack[DEPTH] = {NULL};
    int height[DEPTH];
    int depth = 0;

    for (int r = 0; r < args->n_src; r++) {
        stack[depth] = leaf(args, half, r, at, n, space->right[depth]);
        height[depth++] = 0;
        while (depth > 1 && (height[depth - 1] == height[depth - 2] || r == args->n_src - 1)) {
            /* The result takes the place of the left one; never of one that is being read. */
            void *out = stack[depth - 2] == space->left[depth - 2] ? space->right[depth - 2]
                                                                   : space->left[depth - 2];

            pair(stack[depth - 2], stack[depth - 1], out, n, acc, op);
            stack[depth - 2] = out;
            height[depth - 2]++;
            depth--;
        }
    }
    return stack[0];
}

static TRII_INLINE void divide(void *block, size_t n, tri_dtype acc, int by)
{
    if (acc == TRI_DTYPE_F64) {
        double *p = block;

        for (size_t i = 0; i < n; i++)
            p[i] /= (double)by;
    } else {
        float *p = block;

        for (size_t i = 0; i < n; i++)
            p[i] /= (float)by;
    }
}

/* Rounds a block of f32 to the type of the call. */
static TRII_INLINE void narrow(const void *src, void *dst, size_t n, tri_dtype dtype,
                               const half_functions *half)
{
    const float *restrict from = src;
    uint16_t *restrict to = dst;

    if (dtype == TRI_DTYPE_F16) {
        half->narrow(from, to, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits, rounded;

        memcpy(&bits, &from[i], sizeof(bits));
        rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
        to[i] = (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded) >> 16);
    }
}

static TRII_INLINE tri_redop bool_op(tri_redop op)
{
    if (op == TRI_REDOP_PRODUCT || op == TRI_REDOP_MIN || op == TRI_REDOP_BAND)
        return TRI_REDOP_BAND;
    return op == TRI_REDOP_BXOR ? TRI_REDOP_BXOR : TRI_REDOP_BOR;
}

static TRII_INLINE void reduce(const trii_reduce_args *args, const half_functions *half)
{
    bool is_half = args->dtype == TRI_DTYPE_F16 || args->dtype == TRI_DTYPE_BF16;
    tri_dtype acc = is_half ? TRI_DTYPE_F32 : args->dtype;
    tri_redop op = args->dtype == TRI_DTYPE_BOOL ? bool_op(args->op) : args->op;
    size_t size = tri_dtype_size(args->dtype);
    block_space space;
    uint16_t rounded[BLOCK];

    for (size_t at = register_sum(args), n; at < args->count; at += n) {
        const void *result;

        n = args->count - at < BLOCK ? args->count - at : BLOCK;
        result = tree(args, half, at, n, acc, op, &space);
        if (args->op == TRI_REDOP_AVG) {
            void *own = space.left[DEPTH - 1];

            memcpy(own, result, n * tri_dtype_size(acc));
            divide(own, n, acc, args->n_src);
            result = own;
        }
        if (is_half) {
            narrow(result, rounded, n, args->dtype, half);
            result = rounded;
        }
        for (int r = 0; r < args->n_dst; r++)
            memmove((char *)args->dst[r] + at * size, result, n * size);
    }
}

/* --- one function per instruction set -----------------------------------------------------------
 */

static void widen_portable(const uint16_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = trii_f16_to_f32(src[i]);
}

static void narrow_portable(const float *src, uint16_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = trii_f32_to_f16(src[i]);
}

void trii_reduce_portable(const trii_reduce_args *args)
{
    reduce(args, &(half_functions){widen_portable, narrow_portable});
}

#if defined(__x86_64__)
#define AVX2 TRII_TARGET("avx2,fma,f16c")
#define AVX512 TRII_TARGET("avx512f,avx512bw,avx512dq,avx512vl,f16c")

AVX2 static void widen_f16c(const uint16_t *src, float *dst, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(src + i))));
    widen_portable(src + i, dst + i, n - i);
}

AVX2 static void narrow_f16c(const float *src, uint16_t *dst, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    narrow_portable(src + i, dst + i, n - i);
}

AVX2 void trii_reduce_avx2(const trii_reduce_args *args)
{
    reduce(args, &(half_functions){widen_f16c, narrow_f16c});
}

AVX512 void trii_reduce_avx512(const trii_reduce_args *args)
{
    reduce(args, &(half_functions){widen_f16c, narrow_f16c});
}
#endif
