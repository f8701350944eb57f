/*
 * image.h - pictures: JPEG and PNG files read, resized, written.
 *
 *     tri_image photo = {0}, small = {0};
 *
 *     TRI_TRY(tri_image_read("photo.jpg", NULL, &photo));
 *     TRI_TRY(tri_image_resize(&photo, NULL, 64, 64, &small));
 *     TRI_TRY(tri_image_write_png(&small, "small.png"));
 *     tri_image_clear(&photo);
 *     tri_image_clear(&small);
 *
 * Pixels are bytes, as files have them: [height, width, channels], rows from the top, without gaps.
 * Data sets of image folders, and tensors [C, H, W], are in data.h.
 *
 * A file is known by its content, never by its name. The pixels are those of Pillow 12 and
 * torchvision, bit for bit: convert("RGB") of grey files, palettes, 16 bits, CMYK; alpha is dropped
 * and the EXIF orientation ignored; resize is BILINEAR, which averages where it shrinks. A JPEG
 * with some damaged data is read as Pillow reads it; a file that is cut off is an error.
 *
 * All functions block only for their work and the file, and may be called by any thread, on an
 * image by one at a time.
 */
#ifndef TRIREME_IMAGE_H
#define TRIREME_IMAGE_H

#include <trireme/status.h>

TRI_BEGIN_DECLS

/* {0} is an empty one. What fills an image in takes that or an earlier image, whose memory is used
 * again; after a failure it has size 0. An image of your own has `capacity` 0: its pixels are
 * borrowed, and never written to or freed. */
typedef struct tri_image {
    uint8_t *pixels; /* [height, width, channels] */
    int64_t height, width;
    int channels;    /* 1: grey; 3: red, green, blue; 4: with alpha */
    size_t capacity; /* bytes that the library has allocated for `pixels` */
    TRI_RESERVED(4);
} tri_image;

/* Frees the pixels that the library has allocated; the image is {0} again. NULL allowed. */
TRI_API void tri_image_clear(tri_image *image);

typedef struct tri_image_options {
    int channels; /* 0 = 3; or 1: grey, by the weights of convert("L") */
    /* The part of the image that is wanted, in its pixels; height and width 0: all of it. The same
     * pixels as in the whole, for less work. */
    int64_t top, left, height, width;
    TRI_RESERVED(4);
} tri_image_options;

/* The image in a file's bytes[n]; opt NULL: all of it, in 3 channels. Errors: FORMAT (damaged, cut
 * off, no image), UNSUPPORTED (another format, which the line names; more than 178,956,970 pixels,
 * where Pillow suspects a decompression bomb), INVALID_ARG (no such part), NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_image_decode(const void *bytes, size_t n,
                                                   const tri_image_options *opt,
                                                   tri_image *image_out);
/* The same of a file, which must not shrink meanwhile. Errors: also NOT_FOUND, IO; lines name it.
 */
TRI_API TRI_MUST_CHECK tri_status tri_image_read(const char *path, const tri_image_options *opt,
                                                 tri_image *image_out);

/* The image, of 1 to 4 channels, or box[4] of it (left, top, right, bottom; in pixels and parts of
 * them; NULL: all), in another size. image_out is another image than `image`. Errors: INVALID_ARG,
 * NO_MEMORY. */
TRI_API TRI_MUST_CHECK tri_status tri_image_resize(const tri_image *image, const double *box,
                                                   int64_t height, int64_t width,
                                                   tri_image *image_out);

/* A file of 1, 3 or 4 channels, which appears whole or not at all and replaces one of that name; it
 * is not synced. The same image gives the same bytes with the same libpng and zlib. Errors:
 * INVALID_ARG, NO_MEMORY, NOT_FOUND (the folder), IO. */
TRI_API TRI_MUST_CHECK tri_status tri_image_write_png(const tri_image *image, const char *path);
/* The same, of 1 or 3 channels. quality: 1 to 100, libjpeg's; 75 is Pillow's default. */
TRI_API TRI_MUST_CHECK tri_status tri_image_write_jpeg(const tri_image *image, int quality,
                                                       const char *path);

TRI_END_DECLS

#endif
