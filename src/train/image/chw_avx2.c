/*
 * chw_avx2.c - eight pixels of three channels at a time, as chw.c has them in its tables.
 *
 * A division takes as long as a look into a table. A quotient from a product with the reciprocal,
 * put right once by what is left over, is as good as always the nearest one; is_exact finds out
 * whether it is for all 256 values.
 */
#include "train/image/chw.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <string.h>

#include "base/compiler.h"

#define AVX2 TRII_TARGET("avx2,fma")

AVX2 static TRII_INLINE __m256 quotient(__m256 x, __m256 by, __m256 reciprocal)
{
    __m256 q = _mm256_mul_ps(x, reciprocal);

    return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, by, x), reciprocal, q);
}

/* Of the lower eight bytes. */
AVX2 static TRII_INLINE __m256 normalised(__m128i bytes, const trii_chw_channel *c)
{
    __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));

    x = quotient(x, _mm256_set1_ps(255.0f), _mm256_set1_ps(1.0f / 255.0f));
    x = _mm256_sub_ps(x, _mm256_set1_ps(c->mean));
    return quotient(x, _mm256_set1_ps(c->std), _mm256_set1_ps(1.0f / c->std));
}

AVX2 bool trii_chw_is_exact_avx2(const trii_chw_channel *c)
{
    for (int i = 0; i < TRII_CHW_VALUES; i += 8) {
        uint8_t values[16] = {0};
        float results[8];

        for (int k = 0; k < 8; k++)
            values[k] = (uint8_t)(i + k);
        _mm256_storeu_ps(results,
                         normalised(_mm_loadu_si128((const __m128i *)(const void *)values), c));
        if (memcmp(results, c->table + i, sizeof(results)) != 0)
            return false;
    }
    return true;
}

/* Pixels x to x + 7 of the result, from a row that has at least eight. */
AVX2 static TRII_INLINE void eight(const uint8_t *row, int64_t width, bool mirror,
                                   const trii_chw_channel *channels, int64_t plane, int64_t x,
                                   float *dst)
{
    /* Of bytes 0 to 15, and of 8 to 23, those of the first channel; O is none, also two further. */
    enum { O = -128 };
    const __m128i forward[2] = {_mm_setr_epi8(0, 3, 6, 9, 12, O, O, O, O, O, O, O, O, O, O, O),
                                _mm_setr_epi8(O, O, O, O, O, 7, 10, 13, O, O, O, O, O, O, O, O)};
    const __m128i backward[2] = {_mm_setr_epi8(O, O, O, 12, 9, 6, 3, 0, O, O, O, O, O, O, O, O),
                                 _mm_setr_epi8(13, 10, 7, O, O, O, O, O, O, O, O, O, O, O, O, O)};
    const __m128i *order = mirror ? backward : forward;
    const uint8_t *at = row + 3 * (mirror ? width - 8 - x : x);
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)at);
    __m128i last = _mm_loadu_si128((const __m128i *)(const void *)(at + 8));

    for (int c = 0; c < 3; c++) {
        __m128i further = _mm_set1_epi8((char)c);
        __m128i bytes = _mm_or_si128(_mm_shuffle_epi8(first, _mm_add_epi8(order[0], further)),
                                     _mm_shuffle_epi8(last, _mm_add_epi8(order[1], further)));

        _mm256_storeu_ps(dst + c * plane + x, normalised(bytes, &channels[c]));
    }
}

AVX2 static TRII_INLINE void rows(const uint8_t *pixels, int64_t height, int64_t width, bool mirror,
                                  const trii_chw_channel *channels, float *dst)
{
    for (int64_t y = 0; y < height; y++, pixels += 3 * width, dst += width) {
        int64_t x = 0;

        for (; x + 8 <= width; x += 8)
            eight(pixels, width, mirror, channels, height * width, x, dst);
        if (x < width) /* some of them once more */
            eight(pixels, width, mirror, channels, height * width, width - 8, dst);
    }
}

AVX2 void trii_chw_rows_avx2(const uint8_t *pixels, int64_t height, int64_t width, bool mirror,
                             const trii_chw_channel *channels, float *dst)
{
    if (mirror)
        rows(pixels, height, width, true, channels, dst);
    else
        rows(pixels, height, width, false, channels, dst);
}
#else
bool trii_chw_is_exact_avx2(const trii_chw_channel *c)
{
    (void)c;
    return false;
}

void trii_chw_rows_avx2(const uint8_t *pixels, int64_t height, int64_t width, bool mirror,
                        const trii_chw_channel *channels, float *dst)
{
    (void)pixels, (void)height, (void)width, (void)mirror, (void)channels, (void)dst;
}
#endif
