/*
 * composed.h - gradients that are recorded with create_graph. An operation whose gradient is one
 * kernel, which has no gradient itself, records it here as operations that can be differentiated to
 * any order. What forward left beside its result (statistics, sums of exponentials) is computed
 * again from the operands, since second gradients flow through it.
 */
#ifndef TRII_COMPOSED_H
#define TRII_COMPOSED_H

#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/ops/composer.h"
#include "train/graph/ops/shared_statistics.h"

/* The words of the rules in elementwise.def; c is the composer. */
#define RECORD1(op, a) trii_compose1(c, &trii_op_##op, a)
#define RECORD2(op, a, b) trii_compose2(c, &trii_op_##op, a, b)
#define RECORD_F(op, a, number) trii_compose_number(c, &trii_op_##op, a, number)

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
