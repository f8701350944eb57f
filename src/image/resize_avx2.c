/*
 * resize_avx2.c - the two passes of a resize with AVX2, bit for bit as in resize.c.
 *
 * A weight has up to 23 bits, and multiplications of 16 bits are the fast ones: it is split into
 * high x 2^11 + low, and both sums, which are exact, are put together at the end. vpmaddwd
 * multiplies two pixels and adds them.
 */
#include "image/resize.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <string.h>

#include "base/compiler.h"

#define AVX2 TRII_TARGET("avx2")
#define LOW_BITS 11
#define LOW_MASK ((1 << LOW_BITS) - 1)

/* Four weights each: their low halves, then their high ones. */
static void split(int32_t *weights, size_t n)
{
    for (size_t i = 0; i + 4 <= n; i += 4) {
        int16_t halves[8];

        for (size_t k = 0; k < 4; k++) {
            halves[k] = (int16_t)(weights[i + k] & LOW_MASK);
            halves[4 + k] = (int16_t)(weights[i + k] >> LOW_BITS);
        }
        memcpy(weights + i, halves, sizeof(halves));
    }
}

AVX2 static TRII_INLINE __m128i narrowed(__m128i low, __m128i high)
{
    __m128i sum = _mm_add_epi32(_mm_slli_epi32(high, LOW_BITS), low);

    sum = _mm_add_epi32(sum, _mm_set1_epi32(1 << (TRII_TAP_BITS - 1)));
    return _mm_srai_epi32(sum, TRII_TAP_BITS);
}

AVX2 static TRII_INLINE __m256i narrowed_256(__m256i low, __m256i high)
{
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low);

    sum = _mm256_add_epi32(sum, _mm256_set1_epi32(1 << (TRII_TAP_BITS - 1)));
    return _mm256_srai_epi32(sum, TRII_TAP_BITS);
}

/* Four pixels at a time: the first two in the lower half of a vector, the others in the upper. */
AVX2 static void row_3(const uint8_t *src, int channels, const trii_taps *taps,
                       const int32_t *weights, int64_t stride, int64_t n, uint8_t *dst)
{
    const __m256i spread =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, /* */
                         6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const __m256i first_low = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m256i first_high = _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);

    (void)channels;
    for (int64_t i = 0; i < n; i++, weights += stride, dst += 3) {
        const uint8_t *at = src + (ptrdiff_t)taps[i].begin * 3;
        __m256i low = _mm256_setzero_si256(), high = low;
        __m128i result;
        int32_t pixel;

        for (int32_t k = 0; k < taps[i].n; k += 4) {
            __m256i x = _mm256_broadcastsi128_si256(
                _mm_loadu_si128((const __m128i *)(const void *)(at + (ptrdiff_t)k * 3)));
            __m256i w = _mm256_broadcastsi128_si256(
                _mm_loadu_si128((const __m128i *)(const void *)(weights + k)));

            x = _mm256_shuffle_epi8(x, spread);
            low = _mm256_add_epi32(low,
                                   _mm256_madd_epi16(x, _mm256_permutevar8x32_epi32(w, first_low)));
            high = _mm256_add_epi32(
                high, _mm256_madd_epi16(x, _mm256_permutevar8x32_epi32(w, first_high)));
        }
        result = narrowed(
            _mm_add_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)),
            _mm_add_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
        result = _mm_packs_epi32(result, result);
        pixel = _mm_cvtsi128_si32(_mm_packus_epi16(result, result));
        memcpy(dst, &pixel, i + 1 < n ? 4 : 3); /* the fourth byte is the next pixel's */
    }
}

/* 16 bytes from i on. */
AVX2 static TRII_INLINE void column_16(const uint8_t *src, size_t stride_bytes, int32_t n,
                                       const int32_t *weights, size_t i, uint8_t *dst)
{
    __m256i low[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i high[2] = {low[0], low[0]}, bytes;

    for (int32_t k = 0; k < n; k += 2) {
        const uint8_t *a = src + (size_t)k * stride_bytes + i;
        const uint8_t *b = k + 1 < n ? a + stride_bytes : a; /* whose weight is 0 */
        __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)a));
        __m256i y = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)b));
        int32_t other = k + 1 < n ? weights[k + 1] : 0;
        __m256i low_w = _mm256_set1_epi32((weights[k] & LOW_MASK) | (other & LOW_MASK) << 16);
        __m256i high_w = _mm256_set1_epi32((weights[k] >> LOW_BITS) | (other >> LOW_BITS) << 16);
        __m256i pairs[2] = {_mm256_unpacklo_epi16(x, y), _mm256_unpackhi_epi16(x, y)};

        for (int h = 0; h < 2; h++) {
            low[h] = _mm256_add_epi32(low[h], _mm256_madd_epi16(pairs[h], low_w));
            high[h] = _mm256_add_epi32(high[h], _mm256_madd_epi16(pairs[h], high_w));
        }
    }
    bytes = _mm256_packs_epi32(narrowed_256(low[0], high[0]), narrowed_256(low[1], high[1]));
    bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(bytes, bytes), 8);
    _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm256_castsi256_si128(bytes));
}

AVX2 static void column(const uint8_t *src, size_t stride_bytes, int32_t n, const int32_t *weights,
                        size_t bytes, uint8_t *dst)
{
    size_t i = 0;

    if (bytes < 16) {
        trii_resize_plain.column(src, stride_bytes, n, weights, bytes, dst);
        return;
    }
    for (; i + 16 <= bytes; i += 16)
        column_16(src, stride_bytes, n, weights, i, dst);
    if (i < bytes) /* some of them once more */
        column_16(src, stride_bytes, n, weights, bytes - 16, dst);
}

const trii_resize_kernels trii_resize_avx2 = {
    .prepare = split, .row = row_3, .column = column, .channels = 3};
#else
const trii_resize_kernels trii_resize_avx2;
#endif
