/*
 * composer.h - recording many operations: the first failure stays and ends it.
 */
#ifndef TRII_COMPOSER_H
#define TRII_COMPOSER_H

#include "train/graph/ops/rules.h"

typedef struct trii_composer {
    trii_step *step;
    tri_status status;
} trii_composer;

trii_vid trii_compose(trii_composer *c, const trii_graph_op *op, const trii_vid *in, int n_in,
                      const trii_attrs *attrs);
trii_vid trii_compose1(trii_composer *c, const trii_graph_op *op, trii_vid a);
trii_vid trii_compose2(trii_composer *c, const trii_graph_op *op, trii_vid a, trii_vid b);
/* The operation with one number. */
trii_vid trii_compose_number(trii_composer *c, const trii_graph_op *op, trii_vid a, double number);
/* Over the dimensions of the mask, which stay as ones; divided by `divisor`. */
trii_vid trii_compose_sum(trii_composer *c, trii_vid a, int64_t mask, double divisor);
trii_vid trii_compose_sum_to(trii_composer *c, trii_vid a, const trii_type *like);
trii_vid trii_compose_reshape(trii_composer *c, trii_vid a, const int64_t *shape, int ndim);
trii_vid trii_compose_expand(trii_composer *c, trii_vid a, const int64_t *shape, int ndim);
trii_vid trii_compose_cast(trii_composer *c, trii_vid a, tri_dtype dtype);
/* A constant of this type. */
trii_vid trii_compose_fill(trii_composer *c, const trii_type *type, double value);
/* `value` where the mask is true (or with `inverted` where it is false), else x. */
trii_vid trii_compose_masked(trii_composer *c, trii_vid x, trii_vid mask, bool inverted,
                             double value);
/* The type in which a gradient is computed: f32 for 16 bits. */
tri_dtype trii_compose_dtype(const trii_type *type);
/* 1 - x */
trii_vid trii_compose_one_less(trii_composer *c, trii_vid x);
/* In f32 if it has 16 bits, which are too few for a difference. */
trii_vid trii_compose_wide(trii_composer *c, trii_vid x);

#endif
