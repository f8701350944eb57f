/*
 * resize.h - the two passes of a resize, for each instruction set. For this room only.
 */
#ifndef TRII_IMAGE_RESIZE_H
#define TRII_IMAGE_RESIZE_H

#include "image/pixels.h"

#define TRII_TAP_BITS 22

/* The pixels that make one result: n of them from `begin` on. */
typedef struct trii_taps {
    int32_t begin, n;
} trii_taps;

#define TRII_TAP_GROUP 4     /* weights of one result are a multiple of it, filled up with 0 */
#define TRII_ROW_OVERREAD 16 /* bytes after a row that `row` may read, whatever they are */

typedef struct trii_resize_kernels {
    /* weights[n] as `row` wants them; NULL: as they are. */
    void (*prepare)(int32_t *weights, size_t n);
    /* n results along a row of pixels; weights[n][stride]. */
    void (*row)(const uint8_t *src, int channels, const trii_taps *taps, const int32_t *weights,
                int64_t stride, int64_t n, uint8_t *dst);
    /* One row of results, from n rows `stride_bytes` apart; weights[n], not prepared. */
    void (*column)(const uint8_t *src, size_t stride_bytes, int32_t n, const int32_t *weights,
                   size_t bytes, uint8_t *dst);
    int channels; /* that `row` can do; 0: all */
} trii_resize_kernels;

extern const trii_resize_kernels trii_resize_plain; /* what the others are tested against */
extern const trii_resize_kernels trii_resize_avx2;

/* trii_image_resize with these. */
tri_status trii_resize_with(const trii_resize_kernels *kernels, const uint8_t *src, int64_t height,
                            int64_t width, size_t stride_bytes, int channels, const double *box,
                            int64_t out_height, int64_t out_width, uint8_t *dst,
                            trii_image_scratch *scratch) TRI_MUST_CHECK;

#endif
