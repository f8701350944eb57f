/*
 * image_view.h - a part of an image, mirrored or not, that no pixel has been copied for: crops and
 * mirrors move the view, and what is seen is written once, at the end. The image may be a file, of
 * which only the part that is seen is decoded, and resized.
 */
#ifndef TRII_IMAGE_VIEW_H
#define TRII_IMAGE_VIEW_H

#include <trireme/data.h>

#include "base/compiler.h"
#include "train/image/pixels.h"

/* Memory that one thread needs to look at images, used again from one to the next; {0} at first. */
typedef struct trii_view_work {
    trii_image decoded;
    struct {
        unsigned char *bytes;
        size_t room;
    } buffers[2]; /* what is resized or copied, by turns */
    int turn;
    trii_image_scratch scratch;
} trii_view_work;
void trii_view_work_fini(trii_view_work *work);

typedef struct trii_view {
    const void *file; /* NULL, or its bytes, of which no pixel is decoded yet */
    size_t file_bytes;
    trii_image_window window;              /* of the file: it is shown with the size below */
    int64_t resized_height, resized_width; /* 0 = it is not resized */
    const unsigned char *pixels;
    size_t plane, row, step; /* bytes from one channel, row, column to the next */
    size_t size;             /* bytes of an element */
    int64_t channels;
    int64_t top, left;      /* where in `pixels` the view begins; may lie outside */
    int64_t height, width;  /* of the view */
    int64_t y0, y1, x0, x1; /* the part of `pixels` that can be seen; around it are zeros */
    bool mirror;            /* left and right, within the view */
} trii_view;

/* All of an image [C, H, W]. */
trii_view trii_view_of(const tri_field *field, const void *x);
/* All of the image in a file, decoded with 1 or 3 channels. Reads the size only. Errors: those of
 * trii_image_size. */
tri_status trii_view_open(const void *file, size_t bytes, int channels,
                          trii_view *view_out) TRI_MUST_CHECK;
/* From now on it shows height x width from (top, left) of what it shows, with zeros around. */
void trii_view_crop(trii_view *view, int64_t top, int64_t left, int64_t height, int64_t width);
/* From now on it shows what it shows with this size: bilinear, as trii_image_resize. Of bytes. What
 * is in a file is resized when it is decoded, so that a crop comes first.
 * Errors: INVALID_ARG, NO_MEMORY, those of decoding. */
tri_status trii_view_resize(trii_view *view, int64_t height, int64_t width,
                            trii_view_work *work) TRI_MUST_CHECK;
/* Decodes what is seen, if it is in a file; before the two below. Errors: those of decoding. */
tri_status trii_view_decode(trii_view *view, trii_view_work *work) TRI_MUST_CHECK;
/* What is seen, as [C, H, W] of the same element type. */
void trii_view_copy(const trii_view *view, void *to);
/* The same of bytes, each as (byte / 255 - mean[c]) / std[c], rounded as by to_float and
 * normalize. Errors: NO_MEMORY. */
tri_status trii_view_to_float(const trii_view *view, const float *mean, const float *std, float *to,
                              trii_view_work *work) TRI_MUST_CHECK;

#endif
