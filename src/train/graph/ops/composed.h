/*
 * composed.h - gradients that are recorded with create_graph. An operation whose gradient is one
 * kernel, which has no gradient itself, records it here as operations that can be differentiated to
 * any order. What forward left beside its result (statistics, sums of exponentials) is computed
 * again from the operands, since second gradients flow through it.
 */
#ifndef TRII_COMPOSED_H
#define TRII_COMPOSED_H

#include "train/graph/ops/shared_statistics.h"
#include "train/graph/ops/rules.h"

/* --- recording many operations: the first failure stays and ends it ------- */

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

/* --- gradients ------------------------------------------------------------ */

/* Of operands x w? b?, in each part of x along the dimensions of `mask`. */
typedef struct trii_norm_rule {
    int64_t mask;       /* normalised over */
    bool centred;       /* minus the mean; else rms */
    double eps;         /* added to the mean of squares */
    trii_vid mean, var; /* NO_VALUE: those of x; else constants, of the shape below */
    trii_type shared;   /* of w and b, as they are broadcast to x */
    /* NULL; else each mean is over the operands of all ranks that it reaches, `count` [1]
     * elements. */
    const trii_exchange *exchange;
    trii_vid count;
} trii_norm_rule;
tri_status trii_composed_norm(trii_step *step, const trii_node *node, const trii_norm_rule *rule,
                              trii_vid g, const bool *needs, trii_vid *grad_in) TRI_MUST_CHECK;
tri_status trii_composed_pow(trii_step *step, const trii_node *node, trii_vid g, bool of_exponent,
                             trii_vid *out) TRI_MUST_CHECK;
tri_status trii_composed_prod(trii_step *step, const trii_node *node, trii_vid g,
                              trii_vid *out) TRI_MUST_CHECK;
tri_status trii_composed_attention(trii_step *step, const trii_node *node, trii_vid g,
                                   const bool *needs, trii_vid *grad_in) TRI_MUST_CHECK;

#endif
