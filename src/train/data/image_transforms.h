/*
 * image_transforms.h - how a list of transforms of images becomes one pass (transform.c): those
 * that move pixels move a view, whose bytes become numbers as they are written.
 */
#ifndef TRII_IMAGE_TRANSFORMS_H
#define TRII_IMAGE_TRANSFORMS_H

#include "train/data/image_view.h"

/* Most channels that normalize takes. */
#define TRII_MAX_CHANNELS 8

/* Whether it is a crop, a mirror or the like, whose `apply` does nothing but move a view. */
bool trii_transform_moves(const tri_transform *t);
/* What `apply` does to an image, done to the view of one. */
tri_status trii_transform_move(const tri_transform *t, trii_view *view, tri_draws *draws,
                               trii_view_work *work) TRI_MUST_CHECK;

/* Whether it turns each byte into a number, or such numbers of a channel into others. */
bool trii_transform_is_to_float(const tri_transform *t);
bool trii_transform_is_normalize(const tri_transform *t);
/* The numbers of a normalize, mean[channels] and std[channels]. */
void trii_normalize_numbers(const tri_transform *t, float *mean, float *std);

#endif
