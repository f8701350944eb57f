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

static double ratio_of(const trii_axis *a)
{
    return (double)(a->last - a->first) / (double)a->n;
}

static void count_taps(trii_axis *a)
{
    int64_t taps = (int64_t)ceil(fmax(ratio_of(a), 1.0)) * 2 + 1;

    a->room = (taps + TRII_TAP_GROUP - 1) / TRII_TAP_GROUP * TRII_TAP_GROUP;
}

static bool is_same(const trii_axis *a)
{
    return a->size == a->n && a->first == 0 && a->last == (float)a->size;
}

/* The order of operations is Pillow's: it decides the last bits of a weight. */
static void weigh(const trii_axis *a, double *exact)
{
    double ratio = ratio_of(a), support = fmax(ratio, 1.0), inverse = 1.0 / support;
    int32_t *weights = a->weights;

    for (int64_t i = 0; i < a->n; i++, weights += a->room) {
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
        for (int64_t k = 0; k < a->room; k++) {
            double weight = k < end - begin ? exact[k] : 0.0;

            weights[k] = (int32_t)(0.5 + (sum != 0 ? weight / sum : weight) * (1 << TRII_TAP_BITS));
        }
        a->taps[i] = (trii_taps){.begin = (int32_t)begin, .n = (int32_t)(end - begin)};
    }
}

/* --- resize --------------------------------------------------------------- */

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

/* Where the parts of the memory begin, one after the other; returns the bytes of all. */
static size_t lay_out(trii_resizer *r, char *memory)
{
    trii_axis *const axes[2] = {&r->x, &r->y};
    size_t at = 0;

    r->exact = (double *)(void *)memory;
    at += (size_t)(r->x.room > r->y.room ? r->x.room : r->y.room) * sizeof(double);
    for (int i = 0; i < 2; i++) {
        axes[i]->taps = (trii_taps *)(void *)(memory + at);
        at += (size_t)axes[i]->n * sizeof(trii_taps);
        axes[i]->weights = (int32_t *)(void *)(memory + at);
        at += (size_t)(axes[i]->n * axes[i]->room) * sizeof(int32_t);
    }
    r->last = (uint8_t *)memory + at;
    at += (size_t)r->x.size * (size_t)r->channels + TRII_ROW_OVERREAD;
    r->rows = (uint8_t *)memory + at;
    if (!is_same(&r->y))
        at += (size_t)r->y.size * r->row_bytes;
    return at;
}

static tri_status get_room(trii_resizer *r, trii_image_scratch *scratch)
{
    size_t bytes = lay_out(r, NULL);

    if (bytes > scratch->capacity) {
        void *grown = trii_realloc(scratch->memory, bytes, 1, "memory to resize an image");

        if (grown == NULL)
            return TRI_ERR_NO_MEMORY;
        scratch->memory = grown;
        scratch->capacity = bytes;
    }
    (void)lay_out(r, scratch->memory);
    return TRI_OK;
}

static void choose_kernels(trii_resizer *r, const trii_resize_kernels *kernels)
{
    if (kernels == NULL)
        kernels = trii_cpu_isa() >= TRII_ISA_AVX2 ? &trii_resize_avx2 : &trii_resize_plain;
    r->row_kernels = r->column_kernels = kernels;
    if (kernels->channels != 0 && kernels->channels != r->channels)
        r->row_kernels = &trii_resize_plain;
}

/* NOLINTNEXTLINE(readability-function-size): a picture, a part of it and a size are many numbers */
tri_status trii_resizer_begin(trii_resizer *r, const trii_resize_kernels *kernels, int64_t height,
                              int64_t width, int channels, const double *box, int64_t out_height,
                              int64_t out_width, uint8_t *dst, trii_image_scratch *scratch)
{
    tri_status status = trii_resize_check(height, width, channels, out_height, out_width, box);

    if (status != TRI_OK)
        return status;
    *r = (trii_resizer){.x = {.size = width, .n = out_width, .last = (float)width},
                        .y = {.size = height, .n = out_height, .last = (float)height},
                        .channels = channels,
                        .row_bytes = (size_t)out_width * (size_t)channels,
                        .end = height};
    if (box != NULL) {
        r->x.first = (float)box[0];
        r->x.last = (float)box[2];
        r->y.first = (float)box[1];
        r->y.last = (float)box[3];
    }
    count_taps(&r->x);
    count_taps(&r->y);
    choose_kernels(r, kernels);
    status = get_room(r, scratch);
    if (status != TRI_OK)
        return status;
    r->dst = dst;
    if (!is_same(&r->x)) {
        weigh(&r->x, r->exact);
        if (r->row_kernels->prepare != NULL)
            r->row_kernels->prepare(r->x.weights, (size_t)(r->x.n * r->x.room));
    }
    if (is_same(&r->y)) {
        r->rows = dst;
    } else {
        weigh(&r->y, r->exact);
        r->begin = r->y.taps[0].begin;
        r->end = r->y.taps[out_height - 1].begin + r->y.taps[out_height - 1].n;
    }
    return TRI_OK;
}

void trii_resizer_put(trii_resizer *r, const uint8_t *row)
{
    int64_t y = r->next++;
    uint8_t *to = r->rows + (size_t)(y - r->begin) * r->row_bytes;

    if (y < r->begin || y >= r->end)
        return;
    if (is_same(&r->x))
        memcpy(to, row, r->row_bytes);
    else
        r->row_kernels->row(row, r->channels, r->x.taps, r->x.weights, r->x.room, r->x.n, to);
}

void trii_resizer_end(trii_resizer *r)
{
    if (is_same(&r->y))
        return;
    for (int64_t y = 0; y < r->y.n; y++)
        r->column_kernels->column(r->rows + (size_t)(r->y.taps[y].begin - r->begin) * r->row_bytes,
                                  r->row_bytes, r->y.taps[y].n, r->y.weights + y * r->y.room,
                                  r->row_bytes, r->dst + (size_t)y * r->row_bytes);
}

/* NOLINTNEXTLINE(readability-function-size): a picture, a part of it and a size are many numbers */
tri_status trii_resize_with(const trii_resize_kernels *kernels, const uint8_t *src, int64_t height,
                            int64_t width, size_t stride_bytes, int channels, const double *box,
                            int64_t out_height, int64_t out_width, uint8_t *dst,
                            trii_image_scratch *scratch)
{
    trii_resizer r;
    tri_status status = trii_resizer_begin(&r, kernels, height, width, channels, box, out_height,
                                           out_width, dst, scratch);

    if (status != TRI_OK)
        return status;
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *row = src + (size_t)y * stride_bytes;

        /* What follows the last rows may not be the caller's. */
        if ((size_t)(height - 1 - y) * stride_bytes < TRII_ROW_OVERREAD)
            row = memcpy(r.last, row, (size_t)width * (size_t)channels);
        trii_resizer_put(&r, row);
    }
    trii_resizer_end(&r);
    return TRI_OK;
}

/* NOLINTNEXTLINE(readability-function-size): a picture, a part of it and a size are many numbers */
tri_status trii_image_resize(const uint8_t *src, int64_t height, int64_t width, size_t stride_bytes,
                             int channels, const double *box, int64_t out_height, int64_t out_width,
                             uint8_t *dst, trii_image_scratch *scratch)
{
    return trii_resize_with(NULL, src, height, width, stride_bytes, channels, box, out_height,
                            out_width, dst, scratch);
}
