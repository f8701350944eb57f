/*
 * resize.c - resize with bilinear weights, to the bit as Pillow up to version 12: two passes with
 * u8 between them, rows first; weights are whole numbers of 22 bits. A pass that changes nothing is
 * left out.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "image/pixels.h"
#include "image/resize.h"
#include "os/cpu.h"

#define MAX_SIDE (INT64_C(1) << 24)

void trii_image_scratch_clear(trii_image_scratch *scratch)
{
    if (scratch == NULL)
        return;
    trii_free(scratch->memory);
    *scratch = (trii_image_scratch){0};
}

/* --- weights -------------------------------------------------------------- */

/* One axis: `size` pixels, of which first to last (a part of a pixel counts, too) become n. */
typedef struct axis {
    int64_t size, n;
    float first, last;
    int64_t taps; /* weights of one result, at most, and filled up with 0 */
} axis;

static double ratio_of(const axis *a)
{
    return (double)(a->last - a->first) / (double)a->n;
}

static void count_taps(axis *a)
{
    int64_t taps = (int64_t)ceil(fmax(ratio_of(a), 1.0)) * 2 + 1;

    a->taps = (taps + TRII_TAP_GROUP - 1) / TRII_TAP_GROUP * TRII_TAP_GROUP;
}

static bool is_same(const axis *a)
{
    return a->size == a->n && a->first == 0 && a->last == (float)a->size;
}

/* The order of operations is Pillow's: it decides the last bits of a weight. */
static void weigh(const axis *a, trii_taps *taps, int32_t *weights, double *exact)
{
    double ratio = ratio_of(a), support = fmax(ratio, 1.0), inverse = 1.0 / support;

    for (int64_t i = 0; i < a->n; i++, weights += a->taps) {
        double centre = (double)a->first + ((double)i + 0.5) * ratio, sum = 0;
        int64_t begin = (int64_t)(centre - support + 0.5);
        int64_t end = (int64_t)(centre + support + 0.5);

        begin = begin < 0 ? 0 : begin;
        end = end > a->size ? a->size : end;
        for (int64_t k = 0; k < end - begin; k++) {
            double away = fabs(((double)(k + begin) - centre + 0.5) * inverse);

            exact[k] = away < 1.0 ? 1.0 - away : 0.0;
            sum += exact[k];
        }
        for (int64_t k = 0; k < a->taps; k++) {
            double weight = k < end - begin ? exact[k] : 0.0;

            weights[k] = (int32_t)(0.5 + (sum != 0 ? weight / sum : weight) * (1 << TRII_TAP_BITS));
        }
        taps[i] = (trii_taps){.begin = (int32_t)begin, .n = (int32_t)(end - begin)};
    }
}

/* --- resize --------------------------------------------------------------- */

typedef struct plan {
    axis x, y;
    int channels;
    trii_taps *x_taps, *y_taps;
    int32_t *x_weights, *y_weights;
    double *exact;
    uint8_t *last;    /* a row, with room after it */
    uint8_t *between; /* the rows that the second pass reads, after the first */
} plan;

/* Where the parts of the memory begin, one after the other; returns the bytes of all. */
static size_t lay_out(plan *p, char *memory)
{
    size_t at = 0, x = (size_t)p->x.n, y = (size_t)p->y.n;
    size_t most = (size_t)(p->x.taps > p->y.taps ? p->x.taps : p->y.taps);

    p->exact = (double *)(void *)(memory + at);
    at += most * sizeof(double);
    p->x_taps = (trii_taps *)(void *)(memory + at);
    at += x * sizeof(trii_taps);
    p->y_taps = (trii_taps *)(void *)(memory + at);
    at += y * sizeof(trii_taps);
    p->x_weights = (int32_t *)(void *)(memory + at);
    at += x * (size_t)p->x.taps * sizeof(int32_t);
    p->y_weights = (int32_t *)(void *)(memory + at);
    at += y * (size_t)p->y.taps * sizeof(int32_t);
    p->last = (uint8_t *)memory + at;
    at += (size_t)p->x.size * (size_t)p->channels + TRII_ROW_OVERREAD;
    p->between = (uint8_t *)memory + at;
    if (!is_same(&p->x) && !is_same(&p->y))
        at += (size_t)p->y.size * x * (size_t)p->channels;
    return at;
}

tri_status trii_resize_check(int64_t height, int64_t width, int channels, int64_t out_height,
                             int64_t out_width, const double *box)
{
    if (height < 1 || width < 1 || out_height < 1 || out_width < 1 || height > MAX_SIDE ||
        width > MAX_SIDE || out_height > MAX_SIDE || out_width > MAX_SIDE ||
        height > TRII_IMAGE_MAX_PIXELS / width || out_height > TRII_IMAGE_MAX_PIXELS / out_width ||
        height > TRII_IMAGE_MAX_PIXELS / out_width)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "resize: from %" PRId64 " x %" PRId64 " to %" PRId64 " x %" PRId64
                         " pixels: sizes are at least 1, and images of at most %" PRId64 " pixels",
                         height, width, out_height, out_width, TRII_IMAGE_MAX_PIXELS);
    if (channels < 1 || channels > 4)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "resize: %d channels: an image has 1 to 4", channels);
    if (box != NULL && !(box[0] >= 0 && box[1] >= 0 && box[2] > box[0] && box[3] > box[1] &&
                         box[2] <= (double)width && box[3] <= (double)height))
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "resize: the box from (%g, %g) to (%g, %g) is empty, or not within %" PRId64
            " x %" PRId64 " pixels (left, top; right, bottom)",
            box[0], box[1], box[2], box[3], width, height);
    return TRI_OK;
}

static tri_status get_room(plan *p, trii_image_scratch *scratch)
{
    size_t bytes = lay_out(p, NULL);

    if (bytes > scratch->capacity) {
        void *grown = trii_realloc(scratch->memory, bytes, 1, "memory to resize an image");

        if (grown == NULL)
            return TRI_ERR_NO_MEMORY;
        scratch->memory = grown;
        scratch->capacity = bytes;
    }
    (void)lay_out(p, scratch->memory);
    return TRI_OK;
}

/* Rows first .. end-1 of src, to dst. */
static void resize_rows(plan *p, const trii_resize_kernels *kernels, const uint8_t *src,
                        size_t stride_bytes, int64_t first, int64_t end, uint8_t *dst)
{
    size_t bytes = (size_t)p->x.size * (size_t)p->channels;
    size_t row_bytes = (size_t)p->x.n * (size_t)p->channels;

    if (kernels->channels != 0 && kernels->channels != p->channels)
        kernels = &trii_resize_plain;
    weigh(&p->x, p->x_taps, p->x_weights, p->exact);
    if (kernels->prepare != NULL)
        kernels->prepare(p->x_weights, (size_t)(p->x.n * p->x.taps));
    for (int64_t y = first; y < end; y++, dst += row_bytes) {
        const uint8_t *from = src + (size_t)y * stride_bytes;

        /* What follows the last rows may not be the caller's. */
        if ((size_t)(p->y.size - 1 - y) * stride_bytes < TRII_ROW_OVERREAD)
            from = memcpy(p->last, from, bytes);
        kernels->row(from, p->channels, p->x_taps, p->x_weights, p->x.taps, p->x.n, dst);
    }
}

tri_status trii_resize_with(const trii_resize_kernels *kernels, const uint8_t *src, int64_t height,
                            int64_t width, size_t stride_bytes, int channels, const double *box,
                            int64_t out_height, int64_t out_width, uint8_t *dst,
                            trii_image_scratch *scratch)
{
    plan p = {.x = {.size = width, .n = out_width, .last = (float)width},
              .y = {.size = height, .n = out_height, .last = (float)height},
              .channels = channels};
    tri_status status = trii_resize_check(height, width, channels, out_height, out_width, box);
    size_t row_bytes = (size_t)out_width * (size_t)channels;
    int64_t first = 0, end = height;

    if (status != TRI_OK)
        return status;
    if (box != NULL) {
        p.x.first = (float)box[0];
        p.x.last = (float)box[2];
        p.y.first = (float)box[1];
        p.y.last = (float)box[3];
    }
    count_taps(&p.x);
    count_taps(&p.y);
    status = get_room(&p, scratch);
    if (status != TRI_OK)
        return status;
    if (!is_same(&p.y)) {
        weigh(&p.y, p.y_taps, p.y_weights, p.exact);
        first = p.y_taps[0].begin;
        end = p.y_taps[out_height - 1].begin + p.y_taps[out_height - 1].n;
    }
    if (!is_same(&p.x)) {
        uint8_t *to = is_same(&p.y) ? dst : p.between;

        resize_rows(&p, kernels, src, stride_bytes, first, end, to);
        src = to;
        stride_bytes = row_bytes;
    } else {
        src += (size_t)first * stride_bytes;
    }
    if (!is_same(&p.y)) {
        for (int64_t y = 0; y < out_height; y++)
            kernels->column(src + (size_t)(p.y_taps[y].begin - first) * stride_bytes, stride_bytes,
                            p.y_taps[y].n, p.y_weights + y * p.y.taps, row_bytes,
                            dst + (size_t)y * row_bytes);
    } else if (is_same(&p.x)) {
        for (int64_t y = 0; y < height; y++)
            memcpy(dst + (size_t)y * row_bytes, src + (size_t)y * stride_bytes, row_bytes);
    }
    return TRI_OK;
}

tri_status trii_image_resize(const uint8_t *src, int64_t height, int64_t width, size_t stride_bytes,
                             int channels, const double *box, int64_t out_height, int64_t out_width,
                             uint8_t *dst, trii_image_scratch *scratch)
{
    const trii_resize_kernels *kernels =
        trii_cpu_isa() >= TRII_ISA_AVX2 ? &trii_resize_avx2 : &trii_resize_plain;

    return trii_resize_with(kernels, src, height, width, stride_bytes, channels, box, out_height,
                            out_width, dst, scratch);
}
