/*
 * shared_loss.h - collectives of one loss that all ranks have alike.
 */
#ifndef TRII_SHARED_LOSS_H
#define TRII_SHARED_LOSS_H

#include "train/traffic/traffic.h"

/* Where all ranks have one and the same loss, not one each of several that add up, the gradient of
 * a sum is no sum: these are pairs, in which the gradient of either is the other. Gradients of
 * f(out) are whole and the same on all ranks below reduce_from and gather_from, and are made so
 * below copy_to and scatter_to. */
/* out = x; the gradient is the sum over ranks. */
tri_status trii_record_copy_to(trii_step *step, tri_group *group, trii_vid x,
                               trii_vid *out) TRI_MUST_CHECK;
/* out = the sum over ranks r of x_r; the gradient passes. */
tri_status trii_record_reduce_from(trii_step *step, tri_group *group, trii_vid x,
                                   trii_vid *out) TRI_MUST_CHECK;
/* out = this rank's part of x along dim, whose size the group's divides; the gradient is gathered
 * from all ranks. */
tri_status trii_record_scatter_to(trii_step *step, tri_group *group, trii_vid x, int dim,
                                  trii_vid *out) TRI_MUST_CHECK;
/* x of shape [..] -> [size, ..]: out[r] = x_r; the gradient is that of this rank's part. */
tri_status trii_record_gather_from(trii_step *step, tri_group *group, trii_vid x,
                                   trii_vid *out) TRI_MUST_CHECK;

#endif
