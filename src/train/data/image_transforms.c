/*
 * image_transforms.c - transforms of images [C, H, W], with torchvision's names and meaning.
 */
#include "train/data/image_transforms.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/option.h"
#include "train/data/dataset.h"

#define MAX_SIDE (1 << 24)
/* Indices of tri_transform.numbers, by kind of transform. */
enum { HEIGHT, WIDTH, PADDING };
enum { SCALE_MIN = WIDTH + 1, SCALE_MAX, RATIO_MIN, RATIO_MAX };
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
        if (!(size[i] >= (i == PADDING ? 0 : 1)) || size[i] > MAX_SIDE)
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

static tri_status random_crop(const tri_transform *self, trii_view *view, tri_draws *draws,
                              trii_view_work *work)
{
    int64_t height = (int64_t)self->numbers[HEIGHT], width = (int64_t)self->numbers[WIDTH];
    int64_t padding = (int64_t)self->numbers[PADDING], top, left;

    if (!fits(self, view->height, view->width))
        return too_small(self, view->height, view->width);
    top = tri_draws_below(draws, view->height + 2 * padding - height + 1);
    left = tri_draws_below(draws, view->width + 2 * padding - width + 1);
    (void)work;
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

static tri_status center_crop(const tri_transform *self, trii_view *view, tri_draws *draws,
                              trii_view_work *work)
{
    int64_t height = (int64_t)self->numbers[HEIGHT], width = (int64_t)self->numbers[WIDTH];

    (void)draws;
    (void)work;
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

static tri_status horizontal_flip(const tri_transform *self, trii_view *view, tri_draws *draws,
                                  trii_view_work *work)
{
    (void)work;
    if (tri_draws_uniform(draws) < self->numbers[PROBABILITY])
        view->mirror = !view->mirror;
    return TRI_OK;
}

/* --- sizes ---------------------------------------------------------------- */

static tri_status size_shape(const tri_transform *self, tri_field *field, int n)
{
    const double *size = self->numbers;
    tri_status status = check_image(self, field);

    if (status == TRI_OK && field->dtype != TRI_DTYPE_U8)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "transform %s: field %d is %s, not u8 (to_float comes after it)",
                           self->name, self->field, tri_dtype_name(field->dtype));
    for (int i = 0; i < n && status == TRI_OK; i++) {
        if (!(size[i] >= 1) || size[i] > MAX_SIDE)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "transform %s: a side of %g pixels: 1 to %d",
                               self->name, size[i], MAX_SIDE);
    }
    return status;
}

/* torchvision's int(short_side * long / short). */
static void sides_of(int64_t short_side, int64_t *height, int64_t *width)
{
    int64_t h = *height, w = *width;

    *height = h <= w ? short_side : short_side * h / w;
    *width = w <= h ? short_side : short_side * w / h;
}

static tri_status resize_shape(const tri_transform *self, tri_field *field)
{
    tri_status status = size_shape(self, field, 1);

    if (status != TRI_OK)
        return status;
    if (field->shape[1] >= 1 && field->shape[2] >= 1)
        sides_of((int64_t)self->numbers[HEIGHT], &field->shape[1], &field->shape[2]);
    else
        field->shape[1] = field->shape[2] = -1;
    return TRI_OK;
}

static tri_status resize(const tri_transform *self, trii_view *view, tri_draws *draws,
                         trii_view_work *work)
{
    int64_t height = view->height, width = view->width;

    (void)draws;
    if (height < 1 || width < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "transform %s: an image without pixels", self->name);
    sides_of((int64_t)self->numbers[HEIGHT], &height, &width);
    return trii_view_resize(view, height, width, work);
}

static tri_status resize_to_shape(const tri_transform *self, tri_field *field)
{
    tri_status status = size_shape(self, field, 2);

    if (status == TRI_OK) {
        field->shape[1] = (int64_t)self->numbers[HEIGHT];
        field->shape[2] = (int64_t)self->numbers[WIDTH];
    }
    return status;
}

static tri_status resize_to(const tri_transform *self, trii_view *view, tri_draws *draws,
                            trii_view_work *work)
{
    (void)draws;
    return trii_view_resize(view, (int64_t)self->numbers[HEIGHT], (int64_t)self->numbers[WIDTH],
                            work);
}

static tri_status resized_crop_shape(const tri_transform *self, tri_field *field)
{
    const double *n = self->numbers;

    if (!(n[SCALE_MIN] > 0 && n[SCALE_MIN] <= n[SCALE_MAX] && n[SCALE_MAX] <= 1 &&
          n[RATIO_MIN] > 0 && n[RATIO_MIN] <= n[RATIO_MAX] && n[RATIO_MAX] < 1e6))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "transform %s: a scale of %g to %g and a ratio of %g to %g: above 0, not "
                         "falling, and the scale at most 1",
                         self->name, n[SCALE_MIN], n[SCALE_MAX], n[RATIO_MIN], n[RATIO_MAX]);
    return resize_to_shape(self, field);
}

static float between(tri_draws *draws, double low, double high)
{
    return (float)tri_draws_uniform(draws) * ((float)high - (float)low) + (float)low;
}

/* What torchvision takes after ten parts that do not fit: the largest of an allowed proportion,
 * from the middle. */
static void crop_middle(const tri_transform *self, trii_view *view)
{
    double ratio = (double)view->width / (double)view->height;
    int64_t height = view->height, width = view->width;

    if (ratio < self->numbers[RATIO_MIN])
        height = (int64_t)rint((double)width / self->numbers[RATIO_MIN]);
    else if (ratio > self->numbers[RATIO_MAX])
        width = (int64_t)rint((double)height * self->numbers[RATIO_MAX]);
    height = height < 1 ? 1 : height;
    width = width < 1 ? 1 : width;
    trii_view_crop(view, (view->height - height) / 2, (view->width - width) / 2, height, width);
}

static tri_status random_resized_crop(const tri_transform *self, trii_view *view, tri_draws *draws,
                                      trii_view_work *work)
{
    const double *n = self->numbers;
    double area = (double)view->height * (double)view->width;
    int64_t top, left;
    bool found = false;

    if (view->height < 1 || view->width < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "transform %s: an image without pixels", self->name);
    for (int k = 0; k < 10 && !found; k++) {
        double part = area * (double)between(draws, n[SCALE_MIN], n[SCALE_MAX]);
        double ratio = (double)expf(between(draws, log(n[RATIO_MIN]), log(n[RATIO_MAX])));
        int64_t width = (int64_t)rint(sqrt(part * ratio)),
                height = (int64_t)rint(sqrt(part / ratio));

        if (width < 1 || width > view->width || height < 1 || height > view->height)
            continue;
        found = true;
        top = tri_draws_below(draws, view->height - height + 1);
        left = tri_draws_below(draws, view->width - width + 1);
        trii_view_crop(view, top, left, height, width);
    }
    if (!found)
        crop_middle(self, view);
    return trii_view_resize(view, (int64_t)n[HEIGHT], (int64_t)n[WIDTH], work);
}

/* --- what moves a view ---------------------------------------------------- */

enum { RANDOM_CROP, CENTER_CROP, HORIZONTAL_FLIP, RESIZE, RESIZE_TO, RESIZED_CROP };

static const struct {
    const char *name;
    tri_status (*shape)(const tri_transform *self, tri_field *field);
    tri_status (*move)(const tri_transform *self, trii_view *view, tri_draws *draws,
                       trii_view_work *work);
} kinds[] = {
    [RANDOM_CROP] = {"random_crop", random_crop_shape, random_crop},
    [CENTER_CROP] = {"center_crop", crop_shape, center_crop},
    [HORIZONTAL_FLIP] = {"random_horizontal_flip", flip_shape, horizontal_flip},
    [RESIZE] = {"resize", resize_shape, resize},
    [RESIZE_TO] = {"resize_to", resize_to_shape, resize_to},
    [RESIZED_CROP] = {"random_resized_crop", resized_crop_shape, random_resized_crop},
};

static tri_status apply_move(const tri_transform *self, const tri_field *in, const void *x,
                             tri_draws *draws, tri_sample *out)
{
    trii_view view = trii_view_of(in, x);
    trii_view_work work = {.turn = 0};
    tri_status status = trii_transform_move(self, &view, draws, &work);
    void *y = NULL;

    if (status == TRI_OK) {
        y = tri_sample_room(out, 0, in->dtype,
                            (const int64_t[]){view.channels, view.height, view.width}, 3);
        status = y != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status == TRI_OK)
        trii_view_copy(&view, y);
    trii_view_work_fini(&work);
    return status;
}

bool trii_transform_moves(const tri_transform *t)
{
    return t->apply == apply_move;
}

tri_status trii_transform_move(const tri_transform *t, trii_view *view, tri_draws *draws,
                               trii_view_work *work)
{
    return kinds[(int)t->numbers[KIND]].move(t, view, draws, work);
}

static tri_transform make_move(int kind, double first, double second, double third)
{
    return (tri_transform){.name = kinds[kind].name,
                           .shape = kinds[kind].shape,
                           .apply = apply_move,
                           .numbers = {first, second, third, [KIND] = kind}};
}

tri_transform tri_transform_resize(int64_t short_side)
{
    return make_move(RESIZE, (double)short_side, 0, 0);
}

tri_transform tri_transform_resize_to(int64_t height, int64_t width)
{
    return make_move(RESIZE_TO, (double)height, (double)width, 0);
}

tri_transform
tri_transform_random_resized_crop(int64_t height, int64_t width,
                                  const tri_transform_random_resized_crop_options *opt)
{
    static const tri_transform_random_resized_crop_options defaults;
    tri_transform t = make_move(RESIZED_CROP, (double)height, (double)width, 0);

    if (TRII_CHECK_RESERVED(tri_transform_random_resized_crop_options, opt) != TRI_OK)
        return t; /* without a scale: no data set takes it */
    if (opt == NULL)
        opt = &defaults;
    t.numbers[SCALE_MIN] = trii_option(opt->scale_min, 0.08);
    t.numbers[SCALE_MAX] = trii_option(opt->scale_max, 1);
    t.numbers[RATIO_MIN] = trii_option(opt->ratio_min, 3.0 / 4.0);
    t.numbers[RATIO_MAX] = trii_option(opt->ratio_max, 4.0 / 3.0);
    return t;
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
