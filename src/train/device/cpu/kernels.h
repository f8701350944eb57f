/*
 * kernels.h - the inner loops of the cpu device, one table per instruction set.
 *
 * All are single-threaded: the files of device/cpu divide the work among threads and hand out
 * ranges. Sizes may be zero. Pointers need no alignment. Nothing here allocates.
 *
 * Images are described by trii_images: plain NCHW, blocked nChw8c and nChw16c or, channels last,
 * NHWC. A *unit* is worked on at a time: one channel if plain, one block of channels otherwise.
 * They are f32, or bf16 computed in f32 and rounded once.
 */
#ifndef TRII_CPU_KERNELS_H
#define TRII_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/graph/ops/update.h"
#include "os/cpu.h"

/* Instructions of the element-wise interpreter: d[i] = f(a[i], b[i], c[i]; s). Those of
 * elementwise.def are called as the operation; there a number is s[0], rounded to f32. */
typedef enum trii_ew_code {
    TRII_EW_copy,
    TRII_EW_round_bf16, /* to the nearest even, in f32 */
    TRII_EW_round_f16,
    TRII_EW_mse_loss_backward, /* a * s[0] * (b - c), in double, s[0] as it is */
    TRII_EW_fill,              /* s[0] */
#define TRII_EW_KERNEL(name) TRII_EW_##name,
#include "train/graph/step/elementwise.def"
    TRII_EW_COUNT
} trii_ew_code;

typedef void (*trii_ew_fn)(float *d, const float *a, const float *b, const float *c, size_t n,
                           const double *s);

#define TRII_SUM_LANES 32 /* of every sum */
#define TRII_MAX_LANES 16 /* floats in the widest vector */

typedef struct trii_images {
    int64_t n, c, h, w;
    int block; /* adjacent channels that form a unit: 1 (plain), 8, 16; divides c */
    /* Elements from a pixel of the unit to the next: block, or c in channels last. */
    int64_t step;
    bool bf16;
} trii_images;

/* Elements from one unit to the next. */
static inline int64_t trii_images_unit(const trii_images *images)
{
    return images->step == images->block ? images->h * images->w * images->block : images->block;
}

/* Forward normalisation of one unit: y = x * alpha + beta (+ residual), then ReLU if wanted.
 * alpha, beta: [block]. x, y, residual point at the unit in image 0, in the images' type. */
typedef struct trii_norm_args {
    const void *x, *residual; /* residual NULL: none */
    void *y;
    const float *alpha, *beta;
    bool relu;
} trii_norm_args;

/* Which gradient reaches the normalisation: dy as it is, or through a ReLU after it. */
typedef enum trii_norm_mask {
    TRII_NORM_MASK_NONE,
    TRII_NORM_MASK_X, /* zero where x * alpha + beta <= 0: nothing was added before the ReLU */
    TRII_NORM_MASK_Y  /* zero where y <= 0 */
} trii_norm_mask;

typedef struct trii_norm_backward_args {
    const void *x, *dy, *y;           /* y: only for MASK_Y; all in the images' type */
    void *masked;                     /* NULL, or where dy after the mask is written (sums pass) */
    void *dx;                         /* apply pass */
    const float *alpha, *beta, *mean; /* [block] */
    const float *k_dy, *k_mean, *k_x; /* [block]: dx = k_dy * (dy - k_mean - (x - mean) * k_x) */
    trii_norm_mask mask;
} trii_norm_backward_args;

typedef struct trii_pooling {
    int64_t out_h, out_w;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    bool exclude_padding; /* average: divide by the elements inside the image */
    bool adaptive;        /* windows cover the image as evenly as whole pixels allow */
} trii_pooling;

/* Rows of the image that a window may reach. */
static inline int64_t trii_pooling_rows(const trii_images *images, const trii_pooling *pool)
{
    int64_t rows = pool->adaptive ? images->h / pool->out_h + 2 : pool->kernel_h;

    return rows < images->h ? rows : images->h;
}

/* c[m, n] = sum over k of a[m, k] * b[k, n] (+ bias[n]), or is added to; strides in elements. c is
 * row-major with row stride ldc. k * 2 * lanes floats of `pack` are needed, none where b_col = 1
 * and n is a multiple of lanes. */
typedef struct trii_gemm_args {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t b_row, b_col;
    const float *bias; /* NULL: none */
    float *c;
    int64_t ldc;
    float *pack;
    bool add; /* c +=; then there is no bias */
} trii_gemm_args;

/* The gradient of one row's normalisation, x^ = (x - mean) rstd. */
typedef struct trii_row_gradient {
    int64_t n;
    const float *g, *x, *w; /* w NULL: none */
    float *dx, *dw, *db;    /* dw and db NULL: not wanted */
    float mean, rstd;
} trii_row_gradient;

/* A tile of attention: a row for each key, a column for each query. */
#define TRII_TILE 64

typedef struct trii_tile {
    float *s;       /* [keys, TILE] scores; then weights */
    float *ds;      /* gradient: of the weights, then of the scores */
    int64_t keys;   /* existing rows */
    int64_t vector; /* columns, a multiple of the vector's lanes */
} trii_tile;

/* The mask of dropout (train/graph/ops/create.c): element e is word e % 4 of Philox at its counter,
 * whose first word is e / 4. A word below the limit gives 0, any other `keep`. */
typedef struct trii_mask_args {
    int64_t n;
    uint64_t key;
    uint32_t counter[4]; /* [0] and the upper bits of [1] come from the element */
    uint32_t limit;
    float keep;
} trii_mask_args;

/* Loops over images of one element type. */
typedef struct trii_image_kernels {
    /* Mean and biased variance of each channel of one unit: [block]. */
    void (*moments)(const void *x, const trii_images *images, float *mean, float *var);
    /* Sum of each channel of one unit: [block]. */
    void (*channel_sums)(const void *x, const trii_images *images, float *sum);
    void (*norm)(const trii_norm_args *args, const trii_images *images);
    /* sum_dy, sum_dy_x: [block], of dy and dy * (x - mean) after the mask. */
    void (*norm_backward_sums)(const trii_norm_backward_args *args, const trii_images *images,
                               double *sum_dy, double *sum_dy_x);
    void (*norm_backward)(const trii_norm_backward_args *args, const trii_images *images);

    /* One unit of one image each: x [h, w, step], y [out_h, out_w, step], of which the first
     * `block` are the unit's. */
    void (*max_pool)(const void *x, void *y, const trii_images *images, const trii_pooling *pool);
    /* dy [out_h, out_w, step] of a window goes to its first largest element. dx is overwritten.
     * rows: for bf16, in which sums are rounded once: trii_pooling_rows * w * block floats. */
    void (*max_pool_backward)(const void *x, const void *dy, void *dx, const trii_images *images,
                              const trii_pooling *pool, float *rows);
    void (*avg_pool)(const void *x, void *y, const trii_images *images, const trii_pooling *pool);
    void (*avg_pool_backward)(const void *dy, void *dx, const trii_images *images,
                              const trii_pooling *pool, float *rows);
} trii_image_kernels;

typedef struct trii_cpu_kernels {
    int lanes;
    trii_ew_fn ew[TRII_EW_COUNT];

    /* Sums in f64, the same bits in every table (sum_tree.h): element i of a row is added to
     * lanes[i % TRII_SUM_LANES]; as long as there are, four of a lane at once, a tree in f32. Rows
     * of n elements, `stride` apart: */
    void (*add_values)(const float *x, int64_t rows, int64_t stride, int64_t n, double *lanes);
    /* The same of each row alone, its lanes added as trii_queues_total does. */
    void (*row_totals)(const float *x, int64_t rows, int64_t stride, int64_t n, double *totals);
    /* So is the sum of a[i] * b[i], and of (a[i] - b[i])^2, which are added one by one. */
    double (*total_product)(const float *a, const float *b, int64_t n);
    double (*total_squared_difference)(const float *a, const float *b, int64_t n);
    /* sums[j] += x[i * stride + j], i < rows, j < cols; also four rows at once. */
    void (*add_rows)(const float *x, int64_t rows, int64_t stride, int64_t cols, double *sums);
    float (*max)(const float *x, size_t n); /* NaN wins; n >= 1 */

    /* y[i] from x[i], i < n: rounded to bf16, to the nearest even; and widened. */
    void (*to_bf16)(uint16_t *y, const float *x, size_t n);
    void (*from_bf16)(float *y, const uint16_t *x, size_t n);
    void (*to_f16)(uint16_t *y, const float *x, size_t n);
    void (*from_f16)(float *y, const uint16_t *x, size_t n);

    trii_image_kernels images[2]; /* f32, bf16 */

    /* Blocks begin .. end of four elements each; y is element 0, and the n-th is the last. */
    void (*random_mask)(float *y, const trii_mask_args *args, int64_t begin, int64_t end);

    void (*gemm)(const trii_gemm_args *args);

    /* Mean (0 unless centred) and mean of (x - mean)^2 of n >= 1 elements. */
    void (*row_moments)(const float *x, int64_t n, bool centred, double *mean, double *var);
    /* y = (x - mean) rstd w + b; w and b may be NULL. y may be x. */
    void (*row_normalise)(float *y, const float *x, const float *w, const float *b, int64_t n,
                          float mean, float rstd);
    /* Adds up dy = g w and dy x^; dw += g x^ and db += g unless they are NULL. */
    void (*row_gradient_sums)(const trii_row_gradient *r, double *sum, double *product);
    /* dx = rstd (dy - sum - x^ product); dx may be g. */
    void (*row_gradient)(const trii_row_gradient *r, float sum, float product);

    /* s = e^(s - max), where max [TILE] is raised to the tile's largest first; sum [TILE] becomes
     * sum times factor plus the new weights. factor [TILE]: e^(old max - new max). */
    void (*tile_softmax)(const trii_tile *tile, float *max, float *sum, float *factor);
    /* s = e^(s - lse), ds = s (ds - total) scale; lse and total [TILE]. */
    void (*tile_gradient)(const trii_tile *tile, const float *lse, const float *total, float scale);
    /* to[j * ld + i] = from[i * stride + j] * scale for i < rows, j < cols */
    void (*transpose)(float *to, int64_t ld, const float *from, int64_t stride, int64_t rows,
                      int64_t cols, float scale);
    trii_update_fn update[TRII_UPDATE_RULES][2]; /* f32, f64 */
} trii_cpu_kernels;

/* The table of an instruction set; a missing one (on other processor families) is the portable
 * one. */
const trii_cpu_kernels *trii_cpu_kernels_of(trii_isa isa);
/* Of trii_cpu_isa(). */
const trii_cpu_kernels *trii_cpu_kernels_get(void);
static inline const trii_image_kernels *trii_image_kernels_of(const trii_cpu_kernels *kernels,
                                                              const trii_images *images)
{
    return &kernels->images[images->bf16 ? 1 : 0];
}

extern const trii_cpu_kernels trii_cpu_kernels_portable;
#if defined(__x86_64__)
extern const trii_cpu_kernels trii_cpu_kernels_avx2;
extern const trii_cpu_kernels trii_cpu_kernels_avx512;
extern const trii_cpu_kernels trii_cpu_kernels_avx512_bf16;
#endif

#endif
