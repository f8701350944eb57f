/*
 * image_transforms.c - transforms of images [C, H, W], with torchvision's names and meaning.
 */
#include "data/image_transforms.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "data/dataset.h"

/* Indices of tri_transform.numbers, by kind of transform. */
enum { HEIGHT, WIDTH, PADDING };
enum { PROBABILITY };
enum { CHANNELS, MEAN, STD = MEAN + TRII_MAX_CHANNELS };
enum { KIND = 19 }; /* of those that move a view */

static tri_status check_image(const tri_transform *self, const tri_field *field)
{
    if (field->ndim != 3)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "transform %s: field %d has %d dimensions, images [C, H, W] have 3",
                         self->name, self->field, field->ndim);
    return TRI_OK;
}

/* --- crops ---------------------------------------------------------------- */

static tri_status too_small(const tri_transform *self, int64_t height, int64_t width)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "transform %s: an image of %" PRId64 " x %" PRId64
                     " with a padding of %" PRId64 " is smaller than %" PRId64 " x %" PRId64,
                     self->name, height, width, (int64_t)self->numbers[PADDING],
                     (int64_t)self->numbers[HEIGHT], (int64_t)self->numbers[WIDTH]);
}

static bool fits(const tri_transform *self, int64_t height, int64_t width)
{
    double around = 2 * self->numbers[PADDING];

    return (double)height + around >= self->numbers[HEIGHT] &&
           (double)width + around >= self->numbers[WIDTH];
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
    field->shape[1] = (int64_t)size[HEIGHT];
    field->shape[2] = (int64_t)size[WIDTH];
    return TRI_OK;
}

static tri_status random_crop_shape(const tri_transform *self, tri_field *field)
{
    int64_t height = field->shape[1], width = field->shape[2];
    tri_status status = crop_shape(self, field);

    if (status == TRI_OK && height >= 0 && width >= 0 && !fits(self, height, width))
        return too_small(self, height, width);
    return status;
}

static tri_status random_crop(const tri_transform *self, trii_view *view, tri_draws *draws)
{
    int64_t height = (int64_t)self->numbers[HEIGHT], width = (int64_t)self->numbers[WIDTH];
    int64_t padding = (int64_t)self->numbers[PADDING], top, left;

    if (!fits(self, view->height, view->width))
        return too_small(self, view->height, view->width);
    top = tri_draws_below(draws, view->height + 2 * padding - height + 1);
    left = tri_draws_below(draws, view->width + 2 * padding - width + 1);
    trii_view_crop(view, top - padding, left - padding, height, width);
    return TRI_OK;
}

/* Half of the margin; half a pixel is rounded to the even side. Of what is smaller than the part,
 * half of the zeros around it, rounded down. */
static int64_t before_middle(int64_t size, int64_t part)
{
    if (size < part)
        return -((part - size) / 2);
    return (size - part + ((size - part) % 4 == 3)) / 2;
}

static tri_status center_crop(const tri_transform *self, trii_view *view, tri_draws *draws)
{
    int64_t height = (int64_t)self->numbers[HEIGHT], width = (int64_t)self->numbers[WIDTH];

    (void)draws;
    trii_view_crop(view, before_middle(view->height, height), before_middle(view->width, width),
                   height, width);
    return TRI_OK;
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

static tri_status horizontal_flip(const tri_transform *self, trii_view *view, tri_draws *draws)
{
    if (tri_draws_uniform(draws) < self->numbers[PROBABILITY])
        view->mirror = !view->mirror;
    return TRI_OK;
}

/* --- what moves a view ---------------------------------------------------- */

enum { RANDOM_CROP, CENTER_CROP, HORIZONTAL_FLIP };

static const struct {
    const char *name;
    tri_status (*shape)(const tri_transform *self, tri_field *field);
    tri_status (*move)(const tri_transform *self, trii_view *view, tri_draws *draws);
} kinds[] = {
    [RANDOM_CROP] = {"random_crop", random_crop_shape, random_crop},
    [CENTER_CROP] = {"center_crop", crop_shape, center_crop},
    [HORIZONTAL_FLIP] = {"random_horizontal_flip", flip_shape, horizontal_flip},
};

static tri_status apply_move(const tri_transform *self, const tri_field *in, const void *x,
                             tri_draws *draws, tri_sample *out)
{
    trii_view view = trii_view_of(in, x);
    tri_status status = trii_transform_move(self, &view, draws);
    void *y;

    if (status != TRI_OK)
        return status;
    y = tri_sample_room(out, 0, in->dtype,
                        (const int64_t[]){view.channels, view.height, view.width}, 3);
    if (y == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_view_copy(&view, y);
    return TRI_OK;
}

bool trii_transform_moves(const tri_transform *t)
{
    return t->apply == apply_move;
}

tri_status trii_transform_move(const tri_transform *t, trii_view *view, tri_draws *draws)
{
    return kinds[(int)t->numbers[KIND]].move(t, view, draws);
}

static tri_transform make_move(int kind, double first, double second, double third)
{
    return (tri_transform){.name = kinds[kind].name,
                           .shape = kinds[kind].shape,
                           .apply = apply_move,
                           .numbers = {first, second, third, [KIND] = kind}};
}

tri_transform tri_transform_random_crop(int64_t height, int64_t width, int64_t padding)
{
    return make_move(RANDOM_CROP, (double)height, (double)width, (double)padding);
}

tri_transform tri_transform_center_crop(int64_t height, int64_t width)
{
    return make_move(CENTER_CROP, (double)height, (double)width, 0);
}

tri_transform tri_transform_random_horizontal_flip(double p)
{
    return make_move(HORIZONTAL_FLIP, p, 0, 0);
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

    if (mean == NULL || std == NULL || channels < 1 || channels > TRII_MAX_CHANNELS)
        return t; /* without channels: no data set has such images */
    t.numbers[CHANNELS] = channels;
    memcpy(t.numbers + MEAN, mean, (size_t)channels * sizeof(*mean));
    memcpy(t.numbers + STD, std, (size_t)channels * sizeof(*std));
    return t;
}

bool trii_transform_is_to_float(const tri_transform *t)
{
    return t->apply == to_float;
}

bool trii_transform_is_normalize(const tri_transform *t)
{
    return t->apply == normalize;
}

void trii_normalize_numbers(const tri_transform *t, float *mean, float *std)
{
    for (int c = 0; c < (int)t->numbers[CHANNELS]; c++) {
        mean[c] = (float)t->numbers[MEAN + c];
        std[c] = (float)t->numbers[STD + c];
    }
}
