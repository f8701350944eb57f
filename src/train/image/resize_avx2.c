/*
 * resize_avx2.c - the two passes of a resize with AVX2, bit for bit as in resize.c.
 *
 * A weight has up to 23 bits, and multiplications of 16 bits are the fast ones: it is split into
 * high x 2^11 + low, and both sums, which are exact, are put together at the end. vpmaddwd
 * multiplies two pixels and adds them.
 */
#include "train/image/resize.h"

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

AVX2 static TRII_INLINE __m256i narrowed(__m256i low, __m256i high)
{
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low);

    sum = _mm256_add_epi32(sum, _mm256_set1_epi32(1 << (TRII_TAP_BITS - 1)));
    return _mm256_srai_epi32(sum, TRII_TAP_BITS);
}

/* Bytes 6i .. 6i + 5, two pixels, as pairs of one channel. */
#define PIXELS_OF(i)                                                                               \
    6 * (i), -1, 6 * (i) + 3, -1, 6 * (i) + 1, -1, 6 * (i) + 4, -1, 6 * (i) + 2, -1, 6 * (i) + 5,  \
        -1, -1, -1, -1, -1

/* One result of two rows, a half of the vector each: red, green, blue and 0, of 32 bits. */
AVX2 static TRII_INLINE __m256i result_of(const uint8_t *a, const uint8_t *b, int32_t n,
                                          const int32_t *weights)
{
    const __m256i first = _mm256_setr_epi8(PIXELS_OF(0), PIXELS_OF(0));
    const __m256i second = _mm256_setr_epi8(PIXELS_OF(1), PIXELS_OF(1));
    __m256i low = _mm256_setzero_si256(), high = low;

    for (int32_t k = 0; k < n; k += 4, weights += 4) {
        __m128i of_a = _mm_loadu_si128((const __m128i *)(const void *)(a + (ptrdiff_t)k * 3));
        __m128i of_b = _mm_loadu_si128((const __m128i *)(const void *)(b + (ptrdiff_t)k * 3));
        __m256i four = _mm256_inserti128_si256(_mm256_castsi128_si256(of_a), of_b, 1);
        __m256i x = _mm256_shuffle_epi8(four, first), y = _mm256_shuffle_epi8(four, second);

        low = _mm256_add_epi32(low, _mm256_madd_epi16(x, _mm256_set1_epi32(weights[0])));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(y, _mm256_set1_epi32(weights[1])));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(x, _mm256_set1_epi32(weights[2])));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(y, _mm256_set1_epi32(weights[3])));
    }
    return narrowed(low, high);
}

/* The same for four results: 12 bytes of each row, and four of no use. */
AVX2 static TRII_INLINE __m256i four_results(const uint8_t *a, const uint8_t *b,
                                             const trii_taps *taps, const int32_t *weights,
                                             int64_t stride)
{
    const __m256i close =
        _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, /* */
                         0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    __m256i r[4];

    for (int i = 0; i < 4; i++)
        r[i] = result_of(a + (ptrdiff_t)taps[i].begin * 3, b + (ptrdiff_t)taps[i].begin * 3,
                         taps[i].n, weights + i * stride);
    return _mm256_shuffle_epi8(
        _mm256_packus_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3])), close);
}

/* Two rows, or one given twice. */
AVX2 static void rows_3(const uint8_t *const src[2], int channels, const trii_taps *taps,
                        const int32_t *weights, int64_t stride, int64_t n, uint8_t *const dst[2])
{
    uint8_t *to[2] = {dst[0], dst[1]};
    int64_t i = 0;

    (void)channels;
    for (; i + 6 <= n; i += 4, weights += 4 * stride, to[0] += 12, to[1] += 12) {
        __m256i four = four_results(src[0], src[1], taps + i, weights, stride);

        _mm_storeu_si128((__m128i *)(void *)to[0], _mm256_castsi256_si128(four));
        _mm_storeu_si128((__m128i *)(void *)to[1], _mm256_extracti128_si256(four, 1));
    }
    for (; i < n; i++, weights += stride, to[0] += 3, to[1] += 3) {
        __m256i one = result_of(src[0] + (ptrdiff_t)taps[i].begin * 3,
                                src[1] + (ptrdiff_t)taps[i].begin * 3, taps[i].n, weights);
        int32_t pixel;

        one = _mm256_packs_epi32(one, one);
        one = _mm256_packus_epi16(one, one);
        pixel = _mm_cvtsi128_si32(_mm256_castsi256_si128(one));
        memcpy(to[0], &pixel, 3);
        pixel = _mm_cvtsi128_si32(_mm256_extracti128_si256(one, 1));
        memcpy(to[1], &pixel, 3);
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
    bytes = _mm256_packs_epi32(narrowed(low[0], high[0]), narrowed(low[1], high[1]));
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
    .prepare = split, .rows = rows_3, .column = column, .channels = 3};
#else
const trii_resize_kernels trii_resize_avx2;
#endif
