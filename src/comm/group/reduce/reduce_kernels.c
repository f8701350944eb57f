/*
 * reduce_kernels.c - see reduce_kernels.h. Everything is written once, in C, inlined into one
 * function per instruction set and vectorised by the compiler.
 *
 * Sums of 2, 3, 4 and 8 ranks in f32, and in f16 and bf16 where the processor has vectors for them,
 * stay in registers: each element is loaded once from every source and stored once to every
 * destination. Everything else goes block by block through accumulators that stay in the
 * first-level cache.
 */
/* build: vector leaf */
#include "comm/group/reduce/reduce_kernels.h"

#include <string.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "comm/group/group_limits.h"
#include "comm/group/reduce/reduce.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BLOCK 512 /* elements of an accumulator */

/* Sixteen floats, anywhere; the compiler splits them where registers are smaller. */
typedef float vec TRII_VECTOR(64, 4);

typedef struct half_functions {
    void (*widen)(const uint16_t *src, float *dst, size_t n);
    void (*narrow)(const float *src, uint16_t *dst, size_t n);
    /* Sums in registers: how many leading elements it has done. */
    size_t (*sum)(const trii_reduce_args *args, float factor);
} half_functions;

/* --- f32 sums in registers ------------------------------------------------ */

/* One function per number of sources, so that the addresses stay in registers. The factor is
 * exact (avg over a power of two) or 1. */
#define SUM_2(AT, s) (AT(s[0]) + AT(s[1]))
#define SUM_3(AT, s) (SUM_2(AT, s) + AT(s[2]))
#define SUM_4(AT, s) (SUM_2(AT, s) + (AT(s[2]) + AT(s[3])))
#define SUM_8(AT, s) (SUM_4(AT, s) + ((AT(s[4]) + AT(s[5])) + (AT(s[6]) + AT(s[7]))))
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
                PUT(first, SUM_##N(AT, s) * factor);                                               \
            return i;                                                                              \
        }                                                                                          \
        for (; i + 16 <= count; i += 16) {                                                         \
            vec sum = SUM_##N(AT, s) * factor;                                                     \
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

/* The function for the number of sources; 0 elements if there is none. */
#define DEFINE_CHOICE(NAME, TYPE)                                                                  \
    static TRII_INLINE size_t NAME(const trii_reduce_args *args, float factor)                     \
    {                                                                                              \
        const TYPE *const *src = (const TYPE *const *)args->src;                                   \
        TYPE *const *dst = (TYPE *const *)args->dst;                                               \
                                                                                                   \
        switch (args->n_src) {                                                                     \
        case 2:                                                                                    \
            return NAME##_2(src, dst, args->n_dst, args->count, factor);                           \
        case 3:                                                                                    \
            return NAME##_3(src, dst, args->n_dst, args->count, factor);                           \
        case 4:                                                                                    \
            return NAME##_4(src, dst, args->n_dst, args->count, factor);                           \
        case 8:                                                                                    \
            return NAME##_8(src, dst, args->n_dst, args->count, factor);                           \
        default:                                                                                   \
            return 0;                                                                              \
        }                                                                                          \
    }

DEFINE_CHOICE(sum, float)

/* Whether it is a sum, or an average that multiplies by an exact factor. */
static TRII_INLINE bool is_sum(const trii_reduce_args *args, float *factor_out)
{
    bool power_of_two = (args->n_src & (args->n_src - 1)) == 0;

    *factor_out = args->op == TRI_REDOP_AVG ? 1.0f / (float)args->n_src : 1.0f;
    return args->op == TRI_REDOP_SUM || (args->op == TRI_REDOP_AVG && power_of_two);
}

/* How many leading elements it has done; 0 if it is no such sum. */
static TRII_INLINE size_t register_sum(const trii_reduce_args *args, const half_functions *half)
{
    float factor;

    if (!is_sum(args, &factor))
        return 0;
    if (trii_dtype_is_half(args->dtype) && half->sum != NULL)
        return half->sum(args, factor);
    return args->dtype == TRI_DTYPE_F32 ? sum(args, factor) : 0;
}

/* --- pairs of blocks ------------------------------------------------------ */

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

/* dtype: of the accumulators, so never f16 or bf16. `integers`, a constant, says whether it may be
 * another than f32 and f64: that takes 7 KB for each instruction set. */
static TRII_INLINE void pair(const void *a, const void *b, void *out, size_t n, tri_dtype dtype,
                             tri_redop op, bool integers)
{
    if (!integers) {
        if (dtype == TRI_DTYPE_F32)
            pair_float(a, b, out, n, op);
        else
            pair_double(a, b, out, n, op);
        return;
    }
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

/* --- blocks --------------------------------------------------------------- */

/* Accumulators of the tree: level l holds what waits for its right brother. */
typedef struct block_space {
    TRII_ALIGNED(64) unsigned char left[TRII_TREE_LEVELS][BLOCK * 8];
    TRII_ALIGNED(64) unsigned char right[TRII_TREE_LEVELS][BLOCK * 8];
} block_space;

static TRII_INLINE void widen(const void *src, void *dst, size_t n, tri_dtype dtype,
                              const half_functions *half)
{
    const char *restrict from = src;
    float *restrict to = dst;

    if (dtype == TRI_DTYPE_F16) {
        half->widen(src, to, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t h;

        memcpy(&h, from + 2 * i, sizeof(h));
        to[i] = trii_bf16_to_f32(h);
    }
}

/* Elements [at, at + n) of a source as accumulators: where they lie, or widened into space. */
static TRII_INLINE const void *leaf(const trii_reduce_args *args, const half_functions *half, int r,
                                    size_t at, size_t n, void *space)
{
    const char *src = (const char *)args->src[r] + at * tri_dtype_size(args->dtype);

    if (trii_dtype_is_half(args->dtype)) {
        widen(src, space, n, args->dtype, half);
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
                                    size_t at, size_t n, tri_dtype acc, tri_redop op, bool integers,
                                    block_space *space)
{
    const void *stack[TRII_TREE_LEVELS] = {NULL};
    int height[TRII_TREE_LEVELS];
    int depth = 0;

    for (int r = 0; r < args->n_src; r++) {
        stack[depth] = leaf(args, half, r, at, n, space->right[depth]);
        height[depth++] = 0;
        while (depth > 1 && (height[depth - 1] == height[depth - 2] || r == args->n_src - 1)) {
            /* The result takes the place of the left one; never of one that is being read. */
            void *out = stack[depth - 2] == space->left[depth - 2] ? space->right[depth - 2]
                                                                   : space->left[depth - 2];

            pair(stack[depth - 2], stack[depth - 1], out, n, acc, op, integers);
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

static TRII_INLINE void reduce(const trii_reduce_args *args, const half_functions *half,
                               bool integers)
{
    bool is_half = trii_dtype_is_half(args->dtype);
    tri_dtype acc = is_half ? TRI_DTYPE_F32 : args->dtype;
    tri_redop op = args->dtype == TRI_DTYPE_BOOL ? bool_op(args->op) : args->op;
    size_t size = tri_dtype_size(args->dtype);
    block_space space;
    uint16_t rounded[BLOCK];

    for (size_t at = register_sum(args, half), n; at < args->count; at += n) {
        const void *result;

        n = args->count - at < BLOCK ? args->count - at : BLOCK;
        result = tree(args, half, at, n, acc, op, integers, &space);
        if (args->op == TRI_REDOP_AVG) {
            void *own = space.left[TRII_TREE_LEVELS - 1];

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

/* --- one function per instruction set ------------------------------------- */

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
    reduce(args, &(half_functions){widen_portable, narrow_portable, NULL}, true);
}

void trii_widen_portable(const uint16_t *src, float *dst, size_t n, tri_dtype dtype)
{
    widen(src, dst, n, dtype, &(half_functions){widen_portable, NULL, NULL});
}

void trii_narrow_portable(const float *src, uint16_t *dst, size_t n, tri_dtype dtype)
{
    narrow(src, dst, n, dtype, &(half_functions){NULL, narrow_portable, NULL});
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

/* Halves as floats in one register, added and rounded back. */
#define DEFINE_HALF_SUM(TARGET, NAME, LANES, VECTOR, LOAD, STORE, N)                               \
    TARGET static size_t NAME##_##N(const uint16_t *const *src, uint16_t *const *dst, int n_dst,   \
                                    size_t count, float factor)                                    \
    {                                                                                              \
        const uint16_t *s[N];                                                                      \
        size_t i = 0;                                                                              \
                                                                                                   \
        memcpy(s, src, sizeof(s));                                                                 \
        for (; i + (LANES) <= count; i += (LANES)) {                                               \
            VECTOR sum = SUM_##N(LOAD, s) * factor;                                                \
                                                                                                   \
            for (int r = 0; r < n_dst; r++)                                                        \
                STORE(dst[r] + i, sum);                                                            \
        }                                                                                          \
        return i;                                                                                  \
    }
#define DEFINE_HALF_SUMS(TARGET, NAME, LANES, VECTOR, LOAD, STORE)                                 \
    DEFINE_HALF_SUM(TARGET, NAME, LANES, VECTOR, LOAD, STORE, 2)                                   \
    DEFINE_HALF_SUM(TARGET, NAME, LANES, VECTOR, LOAD, STORE, 3)                                   \
    DEFINE_HALF_SUM(TARGET, NAME, LANES, VECTOR, LOAD, STORE, 4)                                   \
    DEFINE_HALF_SUM(TARGET, NAME, LANES, VECTOR, LOAD, STORE, 8)                                   \
    DEFINE_CHOICE(NAME, uint16_t)
#define AT_8(p) ((const __m128i *)(const void *)((p) + i))
#define AT_16(p) ((const __m256i *)(const void *)((p) + i))

/* Arithmetic on __m256 and __m512 by operators is the compilers' own. */
#define LOAD_BF16_8(p)                                                                             \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(AT_8(p))), 16))
#define LOAD_F16_8(p) _mm256_cvtph_ps(_mm_loadu_si128(AT_8(p)))
#define LOAD_F16_16(p) _mm512_cvtph_ps(_mm256_loadu_si256(AT_16(p)))

AVX2 static TRII_INLINE void put_bf16_8(uint16_t *to, __m256 v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));

    u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    u = _mm256_blendv_epi8(u, _mm256_set1_epi32(0x7fc00000), nan);
    u = _mm256_srli_epi32(u, 16);
    u = _mm256_permute4x64_epi64(_mm256_packus_epi32(u, u), 0x08);
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(u));
}

AVX2 static TRII_INLINE void put_f16_8(uint16_t *to, __m256 v)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* The upper halves of 16 words rounded to the nearest even; what is below them is anything. */
AVX512 static TRII_INLINE __m512i round_bf16(__m512 v)
{
    __m512i u = _mm512_castps_si512(v), rounded;
    __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

    rounded = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
    rounded = _mm512_mask_add_epi32(rounded, odd, u, _mm512_set1_epi32(0x8000));
    return _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc00000));
}

AVX512 static TRII_INLINE void put_f16_16(uint16_t *to, __m512 v)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

DEFINE_HALF_SUMS(AVX2, bf16_avx2, 8, __m256, LOAD_BF16_8, put_bf16_8)
DEFINE_HALF_SUMS(AVX2, f16_avx2, 8, __m256, LOAD_F16_8, put_f16_8)
/* 32 bf16 are the upper and the lower halves of 16 words: nothing is moved between lanes. */
#define UPPER(p)                                                                                   \
    _mm512_castsi512_ps(                                                                           \
        _mm512_and_si512(_mm512_loadu_si512((p) + i), _mm512_set1_epi32((int)0xffff0000u)))
#define LOWER(p) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512((p) + i), 16))
#define DEFINE_BF16_SUM(N)                                                                         \
    AVX512 static size_t bf16_avx512_##N(const uint16_t *const *src, uint16_t *const *dst,         \
                                         int n_dst, size_t count, float factor)                    \
    {                                                                                              \
        const uint16_t *s[N];                                                                      \
        size_t i = 0;                                                                              \
                                                                                                   \
        memcpy(s, src, sizeof(s));                                                                 \
        for (; i + 32 <= count; i += 32) {                                                         \
            __m512 upper = SUM_##N(UPPER, s), lower = SUM_##N(LOWER, s);                           \
            __m512i both;                                                                          \
                                                                                                   \
            if (factor != 1) {                                                                     \
                upper *= factor;                                                                   \
                lower *= factor;                                                                   \
            }                                                                                      \
            both = _mm512_ternarylogic_epi32(round_bf16(upper),                                    \
                                             _mm512_srli_epi32(round_bf16(lower), 16),             \
                                             _mm512_set1_epi32((int)0xffff0000u), 0xec);           \
            for (int r = 0; r < n_dst; r++)                                                        \
                _mm512_storeu_si512(dst[r] + i, both);                                             \
        }                                                                                          \
        return i;                                                                                  \
    }

DEFINE_BF16_SUM(2)
DEFINE_BF16_SUM(3)
DEFINE_BF16_SUM(4)
DEFINE_BF16_SUM(8)
DEFINE_CHOICE(bf16_avx512, uint16_t)
DEFINE_HALF_SUMS(AVX512, f16_avx512, 16, __m512, LOAD_F16_16, put_f16_16)

static size_t half_sum_avx2(const trii_reduce_args *args, float factor)
{
    return args->dtype == TRI_DTYPE_F16 ? f16_avx2(args, factor) : bf16_avx2(args, factor);
}

static size_t half_sum_avx512(const trii_reduce_args *args, float factor)
{
    return args->dtype == TRI_DTYPE_F16 ? f16_avx512(args, factor) : bf16_avx512(args, factor);
}

AVX2 void trii_reduce_avx2(const trii_reduce_args *args)
{
    reduce(args, &(half_functions){widen_f16c, narrow_f16c, half_sum_avx2}, true);
}

AVX2 void trii_widen_avx2(const uint16_t *src, float *dst, size_t n, tri_dtype dtype)
{
    widen(src, dst, n, dtype, &(half_functions){widen_f16c, NULL, NULL});
}

AVX2 void trii_narrow_avx2(const float *src, uint16_t *dst, size_t n, tri_dtype dtype)
{
    narrow(src, dst, n, dtype, &(half_functions){NULL, narrow_f16c, NULL});
}

/* Sums of integers wait for memory: wider registers add nothing to them. */
AVX512 void trii_reduce_avx512(const trii_reduce_args *args)
{
    if (trii_dtype_is_float(args->dtype))
        reduce(args, &(half_functions){widen_f16c, narrow_f16c, half_sum_avx512}, false);
    else
        trii_reduce_avx2(args);
}
#endif
