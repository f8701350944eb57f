/*
 * pixels.h - images as pixels: decoded from JPEG and PNG files, resized, turned into floats,
 * encoded. Colours
 * and bits: trireme/image.h. All functions may be called by any thread, and block only to compute.
 */
#ifndef TRII_PIXELS_H
#define TRII_PIXELS_H

#include <trireme/image.h>

/* As much as Pillow takes before it calls a file a decompression bomb. */
#define TRII_IMAGE_MAX_PIXELS INT64_C(178956970)

typedef tri_image trii_image; /* of 3 channels or 1, when it was decoded */

void trii_image_clear(trii_image *image); /* as tri_image_clear */
/* An image of that size, whose pixels are undefined; on failure it has size 0. Errors: NO_MEMORY.
 */
tri_status trii_image_room(trii_image *image, int64_t height, int64_t width,
                           int channels) TRI_MUST_CHECK;

/* A part of an image, in pixels of the whole one. */
typedef struct trii_image_window {
    int64_t top, left, height, width;
} trii_image_window;

/* What it is, is seen by its content, never by a name. Reads the header only. Errors: FORMAT
 * (damaged; empty; no image), UNSUPPORTED (an image of another kind; one of too many pixels),
 * NO_MEMORY. None of the lines names a file: the caller prepends that. */
tri_status trii_image_size(const void *bytes, size_t n, int64_t *height_out,
                           int64_t *width_out) TRI_MUST_CHECK;

/* The image, or the window of it (NULL: all), with these channels, 3 or 1: the same bits as the
 * part of the whole one has, at less cost. On failure the image has size 0 and keeps its memory. A
 * file that is cut off fails whatever the window. Errors: as above, INVALID_ARG (no such window).
 */
tri_status trii_image_decode(const void *bytes, size_t n, const trii_image_window *window,
                             int channels, trii_image *image_inout) TRI_MUST_CHECK;

/* Files in memory, of 1 (grey), 3 (RGB) or, PNG only, 4 channels (RGBA); release with trii_free.
 * Quality: 1 to 100, as libjpeg's; the chroma is halved both ways, as by Pillow. Errors:
 * INVALID_ARG, NO_MEMORY. */
tri_status trii_png_encode(const uint8_t *pixels, int64_t height, int64_t width, int channels,
                           unsigned char **own_bytes_out, size_t *size_out) TRI_MUST_CHECK;
tri_status trii_jpeg_encode(const uint8_t *pixels, int64_t height, int64_t width, int channels,
                            int quality, unsigned char **own_bytes_out,
                            size_t *size_out) TRI_MUST_CHECK;

/* Whether trii_image_resize can do that. Errors: INVALID_ARG. */
tri_status trii_resize_check(int64_t height, int64_t width, int channels, int64_t out_height,
                             int64_t out_width, const double *box) TRI_MUST_CHECK;

/* Working memory of trii_image_resize, used again from call to call; {0} at the start. */
typedef struct trii_image_scratch {
    void *memory;
    size_t capacity;
} trii_image_scratch;
void trii_image_scratch_clear(trii_image_scratch *scratch);

/* The box (left, top, right, bottom; NULL: all) of src [height, width, channels], rows
 * `stride_bytes` apart, as dst [out_height, out_width, channels] without gaps: bilinear, and where
 * it shrinks, over all pixels that a result covers (torchvision's antialias). 1 to 4 channels.
 * Errors: INVALID_ARG, NO_MEMORY. */
tri_status trii_image_resize(const uint8_t *src, int64_t height, int64_t width, size_t stride_bytes,
                             int channels, const double *box, int64_t out_height, int64_t out_width,
                             uint8_t *dst, trii_image_scratch *scratch) TRI_MUST_CHECK;

/* A part of what a window of an image becomes by a resize. */
typedef struct trii_resizing {
    trii_image_window window;
    int64_t height, width; /* of all of the result */
    trii_image_window part;
} trii_resizing;

/* trii_image_decode of a window, trii_image_resize of that and a cut of the result, with the same
 * bits, in dst without gaps; what the part does not need is left out, and a JPEG's pixels are
 * resized row by row as they are decoded. image: memory for other files. Errors: as those. */
tri_status trii_image_decode_resized(const void *bytes, size_t n, const trii_resizing *resizing,
                                     int channels, uint8_t *dst, trii_image_scratch *scratch,
                                     trii_image *image) TRI_MUST_CHECK;

/* pixels [height, width, channels] to dst [channels, height, width]: (x / 255 - mean[c]) / std[c],
 * in f32, as ToTensor and Normalize compute it; mirrored left to right if wanted. mean and std
 * NULL: x / 255. 1 to 4 channels. */
void trii_image_to_chw(const uint8_t *pixels, int64_t height, int64_t width, int channels,
                       bool mirror, const float *mean, const float *std, float *dst);

#endif
