/*
 * decode.c - which format a file has, and who decodes it.
 */
#include <string.h>

#include "base/err.h"
#include "train/image/codec.h"

typedef struct format {
    const char *name;
    size_t offset, n;
    const char *magic;
    tri_status (*decode)(trii_decoding *d);
} format;

static const format formats[] = {
    {"JPEG", 0, 3, "\xff\xd8\xff", trii_jpeg_decode},
    {"PNG", 0, 8, "\x89PNG\r\n\x1a\n", trii_png_decode},
    {"GIF", 0, 4, "GIF8", NULL},
    {"WebP", 8, 4, "WEBP", NULL},
    {"BMP", 0, 2, "BM", NULL},
    {"TIFF", 0, 4, "II*\0", NULL},
    {"TIFF", 0, 4, "MM\0*", NULL},
    {"AVIF or HEIF", 4, 4, "ftyp", NULL},
    {"JPEG 2000", 4, 4, "jP  ", NULL},
    {"JPEG XL", 0, 2, "\xff\x0a", NULL},
    {"JPEG XL", 4, 4, "JXL ", NULL},
    {"Photoshop", 0, 4, "8BPS", NULL},
    {"PGM", 0, 2, "P5", NULL},
    {"PPM", 0, 2, "P6", NULL},
};

static tri_status no_image(const unsigned char *bytes, size_t n)
{
    char first[40] = "";

    for (size_t i = 0; i < n && i < 8; i++)
        snprintf(first + strlen(first), sizeof(first) - strlen(first), "%s%02x", i > 0 ? " " : "",
                 bytes[i]);
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "no image: it begins with the bytes %s, and JPEG (ff d8 ff) or PNG (89 50 4e "
                     "47) is needed",
                     first);
}

static const format *format_of(const unsigned char *bytes, size_t n)
{
    for (size_t f = 0; f < TRII_COUNT_OF(formats); f++) {
        const format *it = &formats[f];

        if (n >= it->offset + it->n && memcmp(bytes + it->offset, it->magic, it->n) == 0)
            return it;
    }
    return NULL;
}

static tri_status decode(trii_decoding *d)
{
    const format *it = format_of(d->bytes, d->n);

    if (d->n == 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "no image: it is empty (0 bytes)");
    if (it == NULL)
        return no_image(d->bytes, d->n);
    if (it->decode == NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "a %s image: only JPEG and PNG are read, so please convert it", it->name);
    return it->decode(d);
}

tri_status trii_image_size(const void *bytes, size_t n, int64_t *height_out, int64_t *width_out)
{
    trii_decoding d = {.bytes = bytes, .n = n, .channels = 3};
    tri_status status = decode(&d);

    if (status != TRI_OK)
        return status;
    *height_out = d.height;
    *width_out = d.width;
    return TRI_OK;
}

tri_status trii_image_decode(const void *bytes, size_t n, const trii_image_window *window,
                             int channels, trii_image *image_inout)
{
    trii_decoding d = {
        .bytes = bytes, .n = n, .window = window, .channels = channels, .image = image_inout};
    tri_status status;

    image_inout->height = image_inout->width = 0;
    if (channels != 1 && channels != 3)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%d channels: an image is decoded to 3 (RGB) or 1 "
                         "(grey)",
                         channels);
    status = decode(&d);
    if (status != TRI_OK)
        image_inout->height = image_inout->width = 0;
    return status;
}

/* What a resizer of a window needs, in pixels of the whole image. */
static trii_image_window needed(const trii_resizer *r, const trii_image_window *window)
{
    return (trii_image_window){.top = window->top + r->y.begin,
                               .left = window->left + r->x.begin,
                               .height = r->y.end - r->y.begin,
                               .width = r->x.end - r->x.begin};
}

tri_status trii_image_decode_resized(const void *bytes, size_t n, const trii_resizing *resizing,
                                     int channels, uint8_t *dst, trii_image_scratch *scratch,
                                     trii_image *image)
{
    const trii_image_window *from = &resizing->window;
    const format *it = format_of(bytes, n);
    trii_image_window need;
    trii_resizer resizer;
    tri_status status =
        trii_resizer_begin(&resizer, NULL, from->height, from->width, channels, NULL,
                           resizing->height, resizing->width, &resizing->part, dst, scratch);

    if (status != TRI_OK)
        return status;
    need = needed(&resizer, from);
    if (it != NULL && it->decode == trii_jpeg_decode) {
        trii_decoding d = {
            .bytes = bytes, .n = n, .window = &need, .channels = channels, .resizer = &resizer};

        status = trii_jpeg_decode(&d);
    } else {
        status = trii_image_decode(bytes, n, &need, channels, image);
        if (status == TRI_OK)
            trii_resizer_put_all(&resizer, image->pixels, (size_t)image->width * (size_t)channels);
    }
    if (status == TRI_OK)
        trii_resizer_end(&resizer);
    return status;
}
