/*
 * along.h - collectives along any dimension. Those of traffic.h give and take the parts of the
 * ranks along a leading dimension, as they lie in memory; these move the elements as well.
 */
#ifndef TRII_ALONG_H
#define TRII_ALONG_H

#include "train/traffic/traffic.h"

typedef tri_status (*trii_gather_fn)(trii_step *step, tri_group *group, trii_vid x, trii_vid *out);

/* The parts of all ranks one after the other along dim; by trii_record_all_gather or
 * trii_record_gather_from (shared_loss.h). */
tri_status trii_record_gather_along(trii_step *step, tri_group *group, trii_gather_fn gather,
                                    trii_vid x, int dim, trii_vid *out) TRI_MUST_CHECK;
/* out = op over ranks r of this rank's part of x_r along dim. */
tri_status trii_record_reduce_scatter_along(trii_step *step, tri_group *group, trii_vid x,
                                            tri_redop op, int dim, trii_vid *out) TRI_MUST_CHECK;
/* Parts along dimension 0. */
tri_status trii_record_all_to_all_rows(trii_step *step, tri_group *group, trii_vid x,
                                       trii_vid *out) TRI_MUST_CHECK;
/* The same with `to`[r] rows for rank r, and `from`[r] of the result from it. */
tri_status trii_record_all_to_all_v_rows(trii_step *step, tri_group *group, trii_vid x,
                                         const int64_t *to, const int64_t *from,
                                         trii_vid *out) TRI_MUST_CHECK;
/* INVALID_ARG, with this name: the group's size does not divide that of dim. */
tri_status trii_divides(const trii_type *x, int dim, const tri_group *group,
                        const char *name) TRI_MUST_CHECK;

#endif
