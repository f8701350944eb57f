/*
 * resize.h - the two passes of a resize, for each instruction set. For this room only.
 */
#ifndef TRII_IMAGE_RESIZE_H
#define TRII_IMAGE_RESIZE_H

#include "train/image/pixels.h"

#define TRII_TAP_BITS 22

/* The pixels that make one result: n of them from `begin` on. */
typedef struct trii_taps {
    int32_t begin, n;
} trii_taps;

#define TRII_TAP_GROUP 4     /* weights of one result are a multiple of it, filled up with 0 */
#define TRII_ROW_OVERREAD 16 /* bytes after a row that `rows` may read, whatever they are */

typedef struct trii_resize_kernels {
    /* weights[n] as `rows` wants them; NULL: as they are. */
    void (*prepare)(int32_t *weights, size_t n);
    /* n results along each of two rows of pixels, which may be the same; weights[n][stride]. */
    void (*rows)(const uint8_t *const src[2], int channels, const trii_taps *taps,
                 const int32_t *weights, int64_t stride, int64_t n, uint8_t *const dst[2]);
    /* One row of results, from n rows `stride_bytes` apart; weights[n], not prepared. */
    void (*column)(const uint8_t *src, size_t stride_bytes, int32_t n, const int32_t *weights,
                   size_t bytes, uint8_t *dst);
    int channels; /* that `rows` can do; 0: all */
} trii_resize_kernels;

extern const trii_resize_kernels trii_resize_plain; /* what the others are tested against */
extern const trii_resize_kernels trii_resize_avx2;

/* One axis: `size` pixels, of which first to last (a part of a pixel counts, too) become `all`
 * results; n of these are wanted, `from` being the first one. They need the pixels begin .. end -
 * 1, and a tap's `begin` counts from there. */
typedef struct trii_axis {
    int64_t size, all, from, n;
    float first, last;
    int64_t begin, end;
    int64_t room; /* weights of one result, at most, and filled up with 0 */
    trii_taps *taps;
    int32_t *weights;
} trii_axis;

/* A resize whose rows come one by one, of the pixels that are needed: x.begin .. x.end - 1 of the
 * rows y.begin .. y.end - 1. */
typedef struct trii_resizer {
    const trii_resize_kernels *row_kernels, *column_kernels;
    trii_axis x, y;
    int channels;
    size_t row_bytes;    /* of the result */
    int64_t next;        /* row that is put next, of those that are needed */
    const uint8_t *held; /* the row before that, which waits for it; NULL: none */
    double *exact;       /* weights of one result */
    uint8_t *last;       /* a row, with room after it */
    uint8_t *rows, *dst; /* after the first pass, and after the second */
} trii_resizer;

/* As trii_image_resize; kernels NULL: the best of this processor. part: of the result, which alone
 * is written (NULL: all). dst and scratch are used until the end. */
tri_status trii_resizer_begin(trii_resizer *r, const trii_resize_kernels *kernels, int64_t height,
                              int64_t width, int channels, const double *box, int64_t out_height,
                              int64_t out_width, const trii_image_window *part, uint8_t *dst,
                              trii_image_scratch *scratch) TRI_MUST_CHECK;
/* The next row, of which TRII_ROW_OVERREAD bytes more can be read; it stays until the call after
 * it, the last one only during its own. */
void trii_resizer_put(trii_resizer *r, const uint8_t *row);
/* All rows, `stride_bytes` apart; nothing is read after the last pixel. */
void trii_resizer_put_all(trii_resizer *r, const uint8_t *rows, size_t stride_bytes);
void trii_resizer_end(trii_resizer *r); /* all rows were put: writes dst */

/* trii_image_resize with these. */
tri_status trii_resize_with(const trii_resize_kernels *kernels, const uint8_t *src, int64_t height,
                            int64_t width, size_t stride_bytes, int channels, const double *box,
                            int64_t out_height, int64_t out_width, uint8_t *dst,
                            trii_image_scratch *scratch) TRI_MUST_CHECK;

#endif
