/*
 * codec.c - see codec.h: what both formats of files need.
 */
#include "train/image/codec.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

#define FIRST_BYTES ((size_t)64 << 10) /* of a file that is written */

void trii_image_clear(trii_image *image)
{
    if (image == NULL)
        return;
    if (image->capacity > 0) /* else they are not ours */
        trii_free(image->pixels);
    *image = (trii_image){0};
}

tri_status trii_image_room(trii_image *image, int64_t height, int64_t width, int channels)
{
    size_t bytes = (size_t)(height * width) * (size_t)channels;

    image->height = image->width = 0;
    if (bytes > image->capacity) {
        void *grown = trii_realloc(image->capacity > 0 ? image->pixels : NULL, bytes, 1,
                                   "pixels of an image");

        if (grown == NULL)
            return TRI_ERR_NO_MEMORY;
        image->pixels = grown;
        image->capacity = bytes;
    }
    image->height = height;
    image->width = width;
    image->channels = channels;
    return TRI_OK;
}

/* --- what decoders share -------------------------------------------------- */

static tri_status check_part(const trii_decoding *d)
{
    const trii_image_window *p = &d->part;

    if (p->top >= 0 && p->left >= 0 && p->height > 0 && p->width > 0 && p->height <= d->height &&
        p->width <= d->width && p->top <= d->height - p->height && p->left <= d->width - p->width)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "a part of %" PRId64 " x %" PRId64 " pixels from row %" PRId64
                     ", column %" PRId64 " on is not within the image, which has %" PRId64
                     " x %" PRId64,
                     p->height, p->width, p->top, p->left, d->height, d->width);
}

tri_status trii_decoding_begin(trii_decoding *d)
{
    tri_status status;

    if (d->height > TRII_IMAGE_MAX_PIXELS / d->width)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "an image of %" PRId64 " x %" PRId64 " pixels: at most %" PRId64
                         " are read (a few bytes may claim any size)",
                         d->height, d->width, TRII_IMAGE_MAX_PIXELS);
    if (d->image == NULL && d->resizer == NULL)
        return TRI_OK;
    d->part = d->window != NULL ? *d->window
                                : (trii_image_window){.height = d->height, .width = d->width};
    status = check_part(d);
    if (status != TRI_OK)
        return status;
    return d->resizer != NULL
               ? TRI_OK
               : trii_image_room(d->image, d->part.height, d->part.width, d->channels);
}

/* a * b / 255, rounded. */
static uint8_t share(int a, int b)
{
    int t = a * b + 128;

    return (uint8_t)(((t >> 8) + t) >> 8);
}

static uint8_t luminance(int red, int green, int blue)
{
    return (uint8_t)((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

void trii_pixels_convert(const uint8_t *src, trii_pixel_kind kind, int64_t n, uint8_t *dst,
                         int channels)
{
    static const int sizes[] = {[TRII_PIXEL_GREY] = 1,
                                [TRII_PIXEL_RGB] = 3,
                                [TRII_PIXEL_CMYK] = 4,
                                [TRII_PIXEL_GREY_16] = 2};
    int size = sizes[kind];

    if (size == channels) {
        memcpy(dst, src, (size_t)n * (size_t)channels);
        return;
    }
    for (int64_t i = 0; i < n; i++, src += size, dst += channels) {
        uint8_t red = src[0], green = src[0], blue = src[0];

        if (kind == TRII_PIXEL_GREY_16) /* Pillow's I;16: cut off, not divided */
            red = green = blue = src[0] != 0 ? 255 : src[1];
        if (kind == TRII_PIXEL_RGB) {
            green = src[1];
            blue = src[2];
        }
        if (kind == TRII_PIXEL_CMYK) {
            red = share(src[0], src[3]);
            green = share(src[1], src[3]);
            blue = share(src[2], src[3]);
        }
        if (channels == 1) {
            dst[0] = size <= 2 ? red : luminance(red, green, blue);
            continue;
        }
        dst[0] = red;
        dst[1] = green;
        dst[2] = blue;
    }
}

/* --- what encoders share -------------------------------------------------- */

tri_status trii_encoded_room(trii_encoded *file, size_t more)
{
    size_t capacity = file->capacity > 0 ? file->capacity : FIRST_BYTES;
    void *grown;

    if (file->bytes != NULL && more <= file->capacity - file->size)
        return TRI_OK;
    while (capacity - file->size < more)
        capacity *= 2;
    grown = trii_realloc(file->bytes, capacity, 1, "image file");
    if (grown == NULL)
        return TRI_ERR_NO_MEMORY;
    file->bytes = grown;
    file->capacity = capacity;
    return TRI_OK;
}

tri_status trii_encode_check(const char *call, const uint8_t *pixels, int64_t height, int64_t width,
                             int channels, int max_channels, int64_t max_size)
{
    tri_status status = trii_need(pixels, call, "pixels");

    if (status != TRI_OK)
        return status;
    if (channels != 1 && channels != 3 && channels != max_channels)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %d channels: 1 (grey)%s 3 (RGB)%s can be written", call, channels,
                         max_channels > 3 ? "," : " or", max_channels > 3 ? " or 4 (RGBA)" : "");
    if (height < 1 || width < 1 || height > max_size || width > max_size ||
        height > TRII_IMAGE_MAX_PIXELS / width)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %" PRId64 " x %" PRId64 " pixels: 1 to %" PRId64
                         " each way can be written, and at most %" PRId64 " in all",
                         call, height, width, max_size, TRII_IMAGE_MAX_PIXELS);
    return TRI_OK;
}
