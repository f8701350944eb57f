/*
 * image_view.h - a part of an image, mirrored or not, that no pixel has been copied for: crops and
 * mirrors move the view, and what is seen is written once, at the end.
 */
#ifndef TRII_IMAGE_VIEW_H
#define TRII_IMAGE_VIEW_H

#include <trireme/data.h>

#include "base/compiler.h"

typedef struct trii_view {
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
/* From now on it shows height x width from (top, left) of what it shows, with zeros around. */
void trii_view_crop(trii_view *view, int64_t top, int64_t left, int64_t height, int64_t width);
/* What is seen, as [C, H, W] of the same element type. */
void trii_view_copy(const trii_view *view, void *to);
/* The same of bytes, each as (byte / 255 - mean[c]) / std[c], rounded as by to_float and
 * normalize. */
void trii_view_to_float(const trii_view *view, const float *mean, const float *std, float *to);

#endif
