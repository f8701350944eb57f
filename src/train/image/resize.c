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
#include "train/image/pixels.h"
#include "train/image/resize.h"
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
    return (double)(a->last - a->first) / (double)a->all;
}

static void count_taps(trii_axis *a)
{
    int64_t taps = (int64_t)ceil(fmax(ratio_of(a), 1.0)) * 2 + 1;

    a->room = (taps + TRII_TAP_GROUP - 1) / TRII_TAP_GROUP * TRII_TAP_GROUP;
}

static bool is_same(const trii_axis *a)
{
    return a->size == a->all && a->first == 0 && a->last == (float)a->size;
}

/* The pixels that make a result, begin .. end - 1; returns where its middle is. The order of
 * operations, here and below, is Pillow's: it decides the last bits of a weight. */
static double span(const trii_axis *a, int64_t result, int64_t *begin_out, int64_t *end_out)
{
    double ratio = ratio_of(a), support = fmax(ratio, 1.0);
    double centre = (double)a->first + ((double)result + 0.5) * ratio;
    int64_t begin = (int64_t)(centre - support + 0.5);
    int64_t end = (int64_t)(centre + support + 0.5);

    *begin_out = begin < 0 ? 0 : begin;
    *end_out = end > a->size ? a->size : end;
    return centre;
}

static trii_axis axis_of(int64_t size, float first, float last, int64_t all, int64_t from,
                         int64_t n)
{
    trii_axis a = {.size = size, .first = first, .last = last, .all = all, .from = from, .n = n};
    int64_t other;

    count_taps(&a);
    a.begin = from;
    a.end = from + n;
    if (!is_same(&a)) {
        (void)span(&a, from, &a.begin, &other);
        (void)span(&a, from + n - 1, &other, &a.end);
    }
    return a;
}

static void weigh(const trii_axis *a, double *exact)
{
    double inverse = 1.0 / fmax(ratio_of(a), 1.0);
    int32_t *weights = a->weights;

    for (int64_t i = 0; i < a->n; i++, weights += a->room) {
        int64_t begin, end;
        double centre = span(a, a->from + i, &begin, &end), sum = 0;

        for (int64_t k = 0; k < end - begin; k++) {
            double away = fabs(((double)(k + begin) - centre + 0.5) * inverse);

            exact[k] = away < 1.0 ? 1.0 - away : 0.0;
            sum += exact[k];
        }
        for (int64_t k = 0; k < a->room; k++) {
            double weight = k < end - begin ? exact[k] : 0.0;

            weights[k] = (int32_t)(0.5 + (sum != 0 ? weight / sum : weight) * (1 << TRII_TAP_BITS));
        }
        a->taps[i] = (trii_taps){.begin = (int32_t)(begin - a->begin), .n = (int32_t)(end - begin)};
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

/* Bytes of the pixels that are needed of a row. */
static size_t row_of(const trii_resizer *r)
{
    return (size_t)(r->x.end - r->x.begin) * (size_t)r->channels;
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
    at += row_of(r) + TRII_ROW_OVERREAD;
    r->rows = (uint8_t *)memory + at;
    if (!is_same(&r->y))
        at += (size_t)(r->y.end - r->y.begin) * r->row_bytes;
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
                              int64_t out_width, const trii_image_window *part, uint8_t *dst,
                              trii_image_scratch *scratch)
{
    const trii_image_window all = {.height = out_height, .width = out_width};
    const double whole[4] = {0, 0, (double)width, (double)height};
    tri_status status = trii_resize_check(height, width, channels, out_height, out_width, box);

    if (status != TRI_OK)
        return status;
    if (box == NULL)
        box = whole;
    if (part == NULL)
        part = &all;
    *r = (trii_resizer){
        .x = axis_of(width, (float)box[0], (float)box[2], out_width, part->left, part->width),
        .y = axis_of(height, (float)box[1], (float)box[3], out_height, part->top, part->height),
        .channels = channels,
        .row_bytes = (size_t)part->width * (size_t)channels};
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
    if (is_same(&r->y))
        r->rows = dst;
    else
        weigh(&r->y, r->exact);
    return TRI_OK;
}

static void put_two(trii_resizer *r, const uint8_t *a, const uint8_t *b, uint8_t *to_a,
                    uint8_t *to_b)
{
    const uint8_t *const src[2] = {a, b};
    uint8_t *const dst[2] = {to_a, to_b};

    r->row_kernels->rows(src, r->channels, r->x.taps, r->x.weights, r->x.room, r->x.n, dst);
}

/* A row that has no second one. */
static void put_held(trii_resizer *r)
{
    uint8_t *to = r->rows + (size_t)(r->next - 1) * r->row_bytes;

    if (r->held != NULL)
        put_two(r, r->held, r->held, to, to);
    r->held = NULL;
}

void trii_resizer_put(trii_resizer *r, const uint8_t *row)
{
    uint8_t *to = r->rows + (size_t)r->next++ * r->row_bytes;

    if (is_same(&r->x)) {
        memcpy(to, row, r->row_bytes);
    } else if (r->held == NULL) {
        r->held = row;
    } else {
        put_two(r, r->held, row, to - r->row_bytes, to);
        r->held = NULL;
    }
    if (r->next == r->y.end - r->y.begin) /* its memory may go with its decoder */
        put_held(r);
}

void trii_resizer_put_all(trii_resizer *r, const uint8_t *rows, size_t stride_bytes)
{
    for (int64_t left = r->y.end - r->y.begin; left > 0; left--, rows += stride_bytes) {
        if ((size_t)(left - 1) * stride_bytes >= TRII_ROW_OVERREAD) {
            trii_resizer_put(r, rows);
            continue;
        }
        put_held(r); /* there is memory for one row */
        trii_resizer_put(r, memcpy(r->last, rows, row_of(r)));
    }
}

void trii_resizer_end(trii_resizer *r)
{
    if (is_same(&r->y))
        return;
    for (int64_t y = 0; y < r->y.n; y++)
        r->column_kernels->column(r->rows + (size_t)r->y.taps[y].begin * r->row_bytes, r->row_bytes,
                                  r->y.taps[y].n, r->y.weights + y * r->y.room, r->row_bytes,
                                  r->dst + (size_t)y * r->row_bytes);
}

/* NOLINTNEXTLINE(readability-function-size): a picture, a part of it and a size are many numbers */
tri_status trii_resize_with(const trii_resize_kernels *kernels, const uint8_t *src, int64_t height,
                            int64_t width, size_t stride_bytes, int channels, const double *box,
                            int64_t out_height, int64_t out_width, uint8_t *dst,
                            trii_image_scratch *scratch)
{
    trii_resizer r;
    tri_status status = trii_resizer_begin(&r, kernels, height, width, channels, box, out_height,
                                           out_width, NULL, dst, scratch);

    if (status != TRI_OK)
        return status;
    trii_resizer_put_all(
        &r, src + (size_t)r.y.begin * stride_bytes + (size_t)r.x.begin * (size_t)channels,
        stride_bytes);
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
