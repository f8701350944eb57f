/*
 * reduce_rules.h - what the files of reductions share. Attributes i: bit mask of the reduced
 * dimensions, keepdim.
 */
#ifndef TRII_REDUCE_RULES_H
#define TRII_REDUCE_RULES_H

#include "train/graph/ops/rules.h"

void trii_reduced_type(const trii_type *in, int64_t mask, bool keepdim, trii_type *out);
/* Elements that go into one result. */
int64_t trii_reduced_count(const trii_type *in, int64_t mask);
/* Strides into the reduced tensor (0 for reduced dimensions) for a walk over `in`. */
void trii_reduced_strides(const trii_type *in, int64_t mask, int64_t *stride);
/* The shape rule of a floating-point reduction. */
tri_status trii_reduce_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out);
/* The mask of a user's list of dimensions; NULL: all. */
tri_status trii_reduce_mask(const int64_t *dims, int n_dims, int ndim,
                            int64_t *mask_out) TRI_MUST_CHECK;
/* A public reduction. */
tri_tensor *trii_record_reduced(const trii_graph_op *op, tri_tensor *x, const int64_t *dims,
                                int n_dims, bool keepdim);

/* topk's third attribute. NaN is larger than any number for the first two, and smaller for the
 * last: that is torch.min's, whose result is NaN where there is one. */
typedef enum trii_topk_order {
    TRII_TOPK_LARGEST,
    TRII_TOPK_SMALLEST,
    TRII_TOPK_SMALLEST_OR_NAN
} trii_topk_order;

/* pair_losses.c: the mean, the sum, or the elements themselves. */
tri_status trii_check_reduction(tri_reduction reduction) TRI_MUST_CHECK;
tri_status trii_rec_loss(trii_step *step, trii_vid elements, tri_reduction reduction,
                         trii_vid *out) TRI_MUST_CHECK;

#endif
