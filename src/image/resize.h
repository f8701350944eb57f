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

/* One axis: `size` pixels, of which first to last (a part of a pixel counts, too) become n. */
typedef struct trii_axis {
    int64_t size, n;
    float first, last;
    int64_t room; /* weights of one result, at most, and filled up with 0 */
    trii_taps *taps;
    int32_t *weights;
} trii_axis;

/* A resize whose rows come one by one. */
typedef struct trii_resizer {
    const trii_resize_kernels *row_kernels, *column_kernels;
    trii_axis x, y;
    int channels;
    size_t row_bytes;    /* of the result */
    int64_t next;        /* row that is put next, */
    int64_t begin, end;  /* and those that are needed */
    double *exact;       /* weights of one result */
    uint8_t *last;       /* a row, with room after it */
    uint8_t *rows, *dst; /* after the first pass, and after the second */
} trii_resizer;

/* As trii_image_resize; kernels NULL: the best of this processor. dst and scratch are used until
 * the end. */
tri_status trii_resizer_begin(trii_resizer *r, const trii_resize_kernels *kernels, int64_t height,
                              int64_t width, int channels, const double *box, int64_t out_height,
                              int64_t out_width, uint8_t *dst,
                              trii_image_scratch *scratch) TRI_MUST_CHECK;
/* The next row; TRII_ROW_OVERREAD bytes after it can be read. */
void trii_resizer_put(trii_resizer *r, const uint8_t *row);
void trii_resizer_end(trii_resizer *r); /* all rows were put: writes dst */

/* trii_image_resize with these. */
tri_status trii_resize_with(const trii_resize_kernels *kernels, const uint8_t *src, int64_t height,
                            int64_t width, size_t stride_bytes, int channels, const double *box,
                            int64_t out_height, int64_t out_width, uint8_t *dst,
                            trii_image_scratch *scratch) TRI_MUST_CHECK;

#endif
