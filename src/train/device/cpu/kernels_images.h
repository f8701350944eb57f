/*
 * kernels_images.h - loops over images, for f32 and for bf16 that is computed in f32; a template
 * over the instruction set, see vec.h.
 *
 * One unit of an image is `count` vectors, `step` elements apart, and a scalar tail. In blocked
 * layouts and channels last a lane is a channel (a block of 16 on vectors of 8 is two passes); in
 * plain order all lanes belong to one channel and are added up at the end. Blocks that are not a
 * multiple of the vector run through scalar loops.
 */

/* After at most so many additions a vector is added to doubles: keeps the rounding of long sums
 * small. */
#define SUM_RUN 512

typedef struct norm_view {
    int64_t n, stride;   /* images; elements from one to the next */
    int64_t count, step; /* vectors per image; elements between them */
    int64_t first;       /* vectors of the first image */
    int64_t tail;        /* elements after them (plain only) */
    bool plain;
} norm_view;

VEC_INLINE norm_view norm_view_of(const trii_images *images)
{
    int64_t hw = images->h * images->w;
    bool plain = images->step == 1, last = images->step != images->block;

    /* Channels last: the images follow each other, pixel by pixel. */
    return (norm_view){.n = last ? 1 : images->n,
                       .stride = images->c * hw,
                       .count = plain  ? hw / VEC_LANES
                                : last ? images->n * hw
                                       : hw,
                       .step = plain ? VEC_LANES : images->step,
                       .first = plain ? hw / VEC_LANES : hw,
                       .tail = plain ? hw % VEC_LANES : 0,
                       .plain = plain};
}

/* Channels per pass over the unit, and passes. */
VEC_INLINE int norm_passes(const trii_images *images)
{
    return images->step == 1 ? 1 : images->block / VEC_LANES;
}

VEC_INLINE double lanes_total(const double *s)
{
    double total = 0;

    for (int l = 0; l < VEC_LANES; l++)
        total += s[l];
    return total;
}

VEC_INLINE vec norm_lanes(const float *p, const norm_view *view, int pass)
{
    return view->plain ? vec_set(p[0]) : vec_load(p + pass * VEC_LANES);
}

typedef struct norm_lane_args {
    vec alpha, beta, mean, k_dy, k_mean, k_x;
} norm_lane_args;

typedef struct window {
    int64_t h0, h1, w0, w1; /* inside the image */
    int64_t elems;          /* divisor of an average */
} window;

VEC_INLINE window window_of(const trii_images *images, const trii_pooling *pool, int64_t oh,
                            int64_t ow)
{
    int64_t h0 = oh * pool->stride_h - pool->pad_h, w0 = ow * pool->stride_w - pool->pad_w;
    int64_t h1 = h0 + pool->kernel_h, w1 = w0 + pool->kernel_w;
    window win;

    if (pool->adaptive) {
        win.h0 = oh * images->h / pool->out_h;
        win.w0 = ow * images->w / pool->out_w;
        win.h1 = ((oh + 1) * images->h + pool->out_h - 1) / pool->out_h;
        win.w1 = ((ow + 1) * images->w + pool->out_w - 1) / pool->out_w;
        win.elems = (win.h1 - win.h0) * (win.w1 - win.w0);
        return win;
    }
    /* With ceil_mode a window may start inside the padded image and end beyond it; the average
     * counts padding, but nothing beyond it. */
    int64_t h_end = images->h + pool->pad_h, w_end = images->w + pool->pad_w;

    win.elems = ((h1 < h_end ? h1 : h_end) - h0) * ((w1 < w_end ? w1 : w_end) - w0);
    win.h0 = h0 > 0 ? h0 : 0;
    win.w0 = w0 > 0 ? w0 : 0;
    win.h1 = h1 < images->h ? h1 : images->h;
    win.w1 = w1 < images->w ? w1 : images->w;
    if (pool->exclude_padding)
        win.elems = (win.h1 - win.h0) * (win.w1 - win.w0);
    return win;
}

typedef struct pool_sums {
    float *rows;
    int64_t row, ring;  /* floats of a row; rows of the ring: row h of the image is h % ring */
    int64_t done, open; /* rows of the image that have been written; that have been reached */
} pool_sums;

VEC_FN void to_bf16(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;

    for (; i + VEC_LANES <= n; i += VEC_LANES)
        vec_store_bf16(y + i, vec_load(x + i));
    for (; i < n; i++)
        y[i] = trii_f32_to_bf16(x[i]);
}

#define ELEM float
#define ELEM_FN(name) name
#define ELEM_LOAD vec_load
#define ELEM_STORE vec_store
#define ELEM_GET(x) (x)
#define ELEM_PUT(x) (x)
#define ELEM_CONST(p) ((const ELEM *)(p))
#define ELEM_AT(p) ((ELEM *)(p))
#include "train/device/cpu/kernels_norm.h"
#include "train/device/cpu/kernels_pool.h"
#undef ELEM
#undef ELEM_FN
#undef ELEM_LOAD
#undef ELEM_STORE
#undef ELEM_GET
#undef ELEM_PUT

#define ELEM uint16_t
#define ELEM_FN(name) name##_bf16
#define ELEM_LOAD vec_load_bf16
#define ELEM_STORE vec_store_bf16
#define ELEM_GET(x) trii_bf16_to_f32(x)
#define ELEM_PUT(x) trii_f32_to_bf16(x)
#include "train/device/cpu/kernels_norm.h"
#include "train/device/cpu/kernels_pool.h"

VEC_FN void from_bf16(float *y, const uint16_t *x, size_t n)
{
    size_t i = 0;

    for (; i + VEC_LANES <= n; i += VEC_LANES)
        vec_store(y + i, vec_load_bf16(x + i));
    for (; i < n; i++)
        y[i] = trii_bf16_to_f32(x[i]);
}

VEC_FN void to_f16(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;

    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_h h = vec_to_f16(vec_load(x + i));

        memcpy(y + i, &h, sizeof(h));
    }
    for (; i < n; i++)
        y[i] = trii_f32_to_f16(x[i]);
}

VEC_FN void from_f16(float *y, const uint16_t *x, size_t n)
{
    size_t i = 0;

    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_h h;

        memcpy(&h, x + i, sizeof(h));
        vec_store(y + i, vec_from_f16(h));
    }
    for (; i < n; i++)
        y[i] = trii_f16_to_f32(x[i]);
}
