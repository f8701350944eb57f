/*
 * resize_plain.c - the two passes of a resize in plain C: the reference for the others.
 */
#include "train/image/resize.h"

static uint8_t rounded(int32_t sum)
{
    int32_t value = sum >> TRII_TAP_BITS;

    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void one_row(const uint8_t *src, int channels, const trii_taps *taps, const int32_t *weights,
                    int64_t stride, int64_t n, uint8_t *dst)
{
    for (int64_t i = 0; i < n; i++, weights += stride, dst += channels) {
        for (int c = 0; c < channels; c++) {
            const uint8_t *at = src + taps[i].begin * channels + c;
            int32_t sum = 1 << (TRII_TAP_BITS - 1);

            for (int32_t k = 0; k < taps[i].n; k++)
                sum += at[(ptrdiff_t)k * channels] * weights[k];
            dst[c] = rounded(sum);
        }
    }
}

static void rows(const uint8_t *const src[2], int channels, const trii_taps *taps,
                 const int32_t *weights, int64_t stride, int64_t n, uint8_t *const dst[2])
{
    one_row(src[0], channels, taps, weights, stride, n, dst[0]);
    if (dst[1] != dst[0])
        one_row(src[1], channels, taps, weights, stride, n, dst[1]);
}

static void column(const uint8_t *src, size_t stride_bytes, int32_t n, const int32_t *weights,
                   size_t bytes, uint8_t *dst)
{
    for (size_t i = 0; i < bytes; i++) {
        int32_t sum = 1 << (TRII_TAP_BITS - 1);

        for (int32_t k = 0; k < n; k++)
            sum += src[(size_t)k * stride_bytes + i] * weights[k];
        dst[i] = rounded(sum);
    }
}

const trii_resize_kernels trii_resize_plain = {.rows = rows, .column = column};
