/*
 * codec.h - what the two formats of files have in common. For this room only.
 */
#ifndef TRII_IMAGE_CODEC_H
#define TRII_IMAGE_CODEC_H

#include "train/image/resize.h"

/* Kinds of pixels that files have. */
typedef enum trii_pixel_kind {
    TRII_PIXEL_GREY,
    TRII_PIXEL_RGB,
    TRII_PIXEL_CMYK,   /* inverted, as Adobe's programs write it: 255 is no ink */
    TRII_PIXEL_GREY_16 /* most significant byte first */
} trii_pixel_kind;

/* A file that is to be decoded, or only its size to be read (image and resizer are NULL). */
typedef struct trii_decoding {
    const unsigned char *bytes;
    size_t n;
    const trii_image_window *window; /* NULL = whole */
    int channels;
    trii_image *image;
    trii_resizer *resizer;  /* of the part; then only JPEG can be decoded */
    int64_t height, width;  /* of the whole image: set by the codec */
    trii_image_window part; /* what is wanted of it: set by trii_decoding_begin */
} trii_decoding;

tri_status trii_jpeg_decode(trii_decoding *d) TRI_MUST_CHECK;
tri_status trii_png_decode(trii_decoding *d) TRI_MUST_CHECK;

/* Once height and width are known: checks them and the window, and makes room for the pixels. */
tri_status trii_decoding_begin(trii_decoding *d) TRI_MUST_CHECK;
/* Where a row of the part belongs, 0 .. part.height - 1. */
static inline uint8_t *trii_decoding_row(const trii_decoding *d, int64_t row)
{
    return d->image->pixels + (size_t)(row * d->part.width) * (size_t)d->channels;
}
/* n pixels as they are in a file to `channels` of a result; src and dst are not the same. */
void trii_pixels_convert(const uint8_t *src, trii_pixel_kind kind, int64_t n, uint8_t *dst,
                         int channels);

/* A file in memory that is being written. */
typedef struct trii_encoded {
    unsigned char *bytes;
    size_t size, capacity;
} trii_encoded;

/* Room for `more` bytes after those that it has. */
tri_status trii_encoded_room(trii_encoded *file, size_t more) TRI_MUST_CHECK;
/* Whether there is such an image; `call` is for the line. */
tri_status trii_encode_check(const char *call, const uint8_t *pixels, int64_t height, int64_t width,
                             int channels, int max_channels, int64_t max_size) TRI_MUST_CHECK;

#endif
