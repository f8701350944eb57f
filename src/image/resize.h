/*
 * resize.h - the two passes of a resize, for each instruction set. For this room only.
 */
#ifndef TRII_IMAGE_RESIZE_H
#define TRII_IMAGE_RESIZE_H

#include <stddef.h>
#include <stdint.h>

#define TRII_TAP_BITS 22

/* The pixels that make one result: n of them from `begin` on. */
typedef struct trii_taps {
    int32_t begin, n;
} trii_taps;

/* n results along a row of pixels; weights[n][stride]. */
void trii_resize_row(const uint8_t *src, int channels, const trii_taps *taps,
                     const int32_t *weights, int64_t stride, int64_t n, uint8_t *dst);
/* One row of results, from n rows `stride_bytes` apart; weights[n]. */
void trii_resize_column(const uint8_t *src, size_t stride_bytes, int32_t n, const int32_t *weights,
                        size_t bytes, uint8_t *dst);

#endif
