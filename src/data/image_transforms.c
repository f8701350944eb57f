/*
 * image_transforms.c - transforms of images [C, H, W], with torchvision's names and meaning.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "data/dataset.h"

#define MAX_CHANNELS 8
/* Indices of tri_transform.numbers, by kind of transform. */
enum { HEIGHT, WIDTH, PADDING };
enum { PROBABILITY };
enum { CHANNELS, MEAN, STD = MEAN + MAX_CHANNELS };

static tri_status check_image(const tri_transform *self, const tri_field *field)
{
    if (field->ndim != 3)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "transform %s: field %d has %d dimensions, images [C, H, W] have 3",
                         self->name, self->field, field->ndim);
    return TRI_OK;
}

/* --- crops ---------------------------------------------------------------- */

static tri_status too_small(const tri_transform *self, const tri_field *field)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "transform %s: an image of %" PRId64 " x %" PRId64
                     " with a padding of %" PRId64 " is smaller than %" PRId64 " x %" PRId64,
                     self->name, field->shape[1], field->shape[2], (int64_t)self->numbers[PADDING],
                     (int64_t)self->numbers[HEIGHT], (int64_t)self->numbers[WIDTH]);
}

static bool fits(const tri_transform *self, const tri_field *field)
{
    double around = 2 * self->numbers[PADDING];

    return (double)field->shape[1] + around >= self->numbers[HEIGHT] &&
           (double)field->shape[2] + around >= self->numbers[WIDTH];
}

static tri_status crop_shape(const tri_transform *self, tri_field *field)
{
    const double *size = self->numbers;
    tri_status status = check_image(self, field);

    if (status != TRI_OK)
        return status;
    for (int i = HEIGHT; i <= PADDING; i++) {
        if (!(size[i] >= (i == PADDING ? 0 : 1)) || size[i] > 1 << 24)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "transform %s: %g x %g pixels, with a padding of %g", self->name,
                             size[HEIGHT], size[WIDTH], size[PADDING]);
    }
    if (field->shape[1] >= 0 && field->shape[2] >= 0 && !fits(self, field))
        return too_small(self, field);
    field->shape[1] = (int64_t)size[HEIGHT];
    field->shape[2] = (int64_t)size[WIDTH];
    return TRI_OK;
}

/* The part begins at (top, left) of the image; outside of the image are zeros. */
static tri_status cut(const tri_transform *self, const tri_field *in, const void *x, int64_t top,
                      int64_t left, tri_sample *out)
{
    int64_t height = (int64_t)self->numbers[HEIGHT], width = (int64_t)self->numbers[WIDTH];
    int64_t first = left < 0 ? -left : 0, end = in->shape[2] - left;
    size_t size = tri_dtype_size(in->dtype);
    char *y = tri_sample_room(out, 0, in->dtype, (const int64_t[]){in->shape[0], height, width}, 3);

    if (y == NULL)
        return TRI_ERR_NO_MEMORY;
    end = end > width ? width : end;
    for (int64_t c = 0; c < in->shape[0]; c++) {
        for (int64_t h = 0; h < height; h++, y += (size_t)width * size) {
            int64_t row = top + h;

            if (row < 0 || row >= in->shape[1] || first >= end) {
                memset(y, 0, (size_t)width * size);
                continue;
            }
            memset(y, 0, (size_t)first * size);
            memcpy(y + (size_t)first * size,
                   (const char *)x +
                       (size_t)((c * in->shape[1] + row) * in->shape[2] + left + first) * size,
                   (size_t)(end - first) * size);
            memset(y + (size_t)end * size, 0, (size_t)(width - end) * size);
        }
    }
    return TRI_OK;
}

static tri_status random_crop(const tri_transform *self, const tri_field *in, const void *x,
                              tri_draws *draws, tri_sample *out)
{
    int64_t padding = (int64_t)self->numbers[PADDING], top, left;

    if (!fits(self, in))
        return too_small(self, in);
    top = tri_draws_below(draws, in->shape[1] + 2 * padding - (int64_t)self->numbers[HEIGHT] + 1);
    left = tri_draws_below(draws, in->shape[2] + 2 * padding - (int64_t)self->numbers[WIDTH] + 1);
    return cut(self, in, x, top - padding, left - padding, out);
}

tri_transform tri_transform_random_crop(int64_t height, int64_t width, int64_t padding)
{
    return (tri_transform){.name = "random_crop",
                           .shape = crop_shape,
                           .apply = random_crop,
                           .numbers = {(double)height, (double)width, (double)padding}};
}

/* Half of the margin; half a pixel is rounded to the even side. */
static int64_t before_middle(int64_t size, int64_t part)
{
    return (size - part + ((size - part) % 4 == 3)) / 2;
}

static tri_status center_crop(const tri_transform *self, const tri_field *in, const void *x,
                              tri_draws *draws, tri_sample *out)
{
    int64_t height = (int64_t)self->numbers[HEIGHT], width = (int64_t)self->numbers[WIDTH];

    (void)draws;
    if (!fits(self, in))
        return too_small(self, in);
    return cut(self, in, x, before_middle(in->shape[1], height), before_middle(in->shape[2], width),
               out);
}

tri_transform tri_transform_center_crop(int64_t height, int64_t width)
{
    return (tri_transform){.name = "center_crop",
                           .shape = crop_shape,
                           .apply = center_crop,
                           .numbers = {(double)height, (double)width}};
}

/* --- mirrors -------------------------------------------------------------- */

static tri_status flip_shape(const tri_transform *self, tri_field *field)
{
    double p = self->numbers[PROBABILITY];

    if (!(p >= 0 && p <= 1))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "transform %s: a probability of %g: must be 0 to 1",
                         self->name, p);
    return check_image(self, field);
}

static tri_status horizontal_flip(const tri_transform *self, const tri_field *in, const void *x,
                                  tri_draws *draws, tri_sample *out)
{
    size_t size = tri_dtype_size(in->dtype), width = (size_t)in->shape[2];
    size_t rows = (size_t)(in->shape[0] * in->shape[1]);
    char *y = tri_sample_room(out, 0, in->dtype, in->shape, in->ndim);
    const char *from = x;

    if (y == NULL)
        return TRI_ERR_NO_MEMORY;
    if (tri_draws_uniform(draws) >= self->numbers[PROBABILITY]) {
        memcpy(y, x, rows * width * size);
        return TRI_OK;
    }
    for (size_t r = 0; r < rows; r++, from += width * size, y += width * size) {
        for (size_t w = 0; w < width; w++)
            memcpy(y + w * size, from + (width - 1 - w) * size, size);
    }
    return TRI_OK;
}

tri_transform tri_transform_random_horizontal_flip(double p)
{
    return (tri_transform){.name = "random_horizontal_flip",
                           .shape = flip_shape,
                           .apply = horizontal_flip,
                           .numbers = {p}};
}

/* --- numbers -------------------------------------------------------------- */

static tri_status float_shape(const tri_transform *self, tri_field *field)
{
    if (field->dtype != TRI_DTYPE_U8)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "transform %s: field %d is %s, not u8", self->name,
                         self->field, tri_dtype_name(field->dtype));
    field->dtype = TRI_DTYPE_F32;
    return TRI_OK;
}

static tri_status to_float(const tri_transform *self, const tri_field *in, const void *x,
                           tri_draws *draws, tri_sample *out)
{
    size_t n = trii_field_bytes(in);
    float *y = tri_sample_room(out, 0, TRI_DTYPE_F32, in->shape, in->ndim);
    const uint8_t *from = x;

    (void)self;
    (void)draws;
    if (y == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)from[i] / 255.0f;
    return TRI_OK;
}

tri_transform tri_transform_to_float(void)
{
    return (tri_transform){.name = "to_float", .shape = float_shape, .apply = to_float};
}

static tri_status normalize_shape(const tri_transform *self, tri_field *field)
{
    int channels = (int)self->numbers[CHANNELS];

    if (field->dtype != TRI_DTYPE_F32 || field->ndim < 1 || channels < 1 ||
        field->shape[0] != channels)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "transform %s: field %d is %s with %d dimensions, the first %" PRId64
                         "; not f32 with %d channels (to_float goes before it)",
                         self->name, self->field, tri_dtype_name(field->dtype), field->ndim,
                         field->ndim > 0 ? field->shape[0] : 0, channels);
    for (int c = 0; c < channels; c++) {
        if (!(self->numbers[STD + c] > 0))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "transform %s: std[%d] is %g: must be above 0",
                             self->name, c, self->numbers[STD + c]);
    }
    return TRI_OK;
}

static tri_status normalize(const tri_transform *self, const tri_field *in, const void *x,
                            tri_draws *draws, tri_sample *out)
{
    size_t plane = trii_field_bytes(in) / sizeof(float) / (size_t)self->numbers[CHANNELS];
    float *y = tri_sample_room(out, 0, TRI_DTYPE_F32, in->shape, in->ndim);
    const float *from = x;

    (void)draws;
    if (y == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int c = 0; c < (int)self->numbers[CHANNELS]; c++, y += plane, from += plane) {
        float mean = (float)self->numbers[MEAN + c], std = (float)self->numbers[STD + c];

        for (size_t i = 0; i < plane; i++)
            y[i] = (from[i] - mean) / std;
    }
    return TRI_OK;
}

tri_transform tri_transform_normalize(const double *mean, const double *std, int channels)
{
    tri_transform t = {.name = "normalize", .shape = normalize_shape, .apply = normalize};

    if (mean == NULL || std == NULL || channels < 1 || channels > MAX_CHANNELS)
        return t; /* without channels: no data set has such images */
    t.numbers[CHANNELS] = channels;
    memcpy(t.numbers + MEAN, mean, (size_t)channels * sizeof(*mean));
    memcpy(t.numbers + STD, std, (size_t)channels * sizeof(*std));
    return t;
}
