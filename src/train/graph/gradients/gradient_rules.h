/*
 * gradient_rules.h - the gradients of operations, as functions that record operations, and what
 * these functions share. An operation (ops/) names its rule by number and knows no more of it; the
 * walk back (backward_walk.c) finds the function here.
 */
#ifndef TRII_GRADIENT_RULES_H
#define TRII_GRADIENT_RULES_H

#include "train/graph/ops/rules.h"

/* Records the gradients: g[o] is the gradient of output o or TRII_NO_VALUE; writes grad_in[i] for
 * inputs with needs[i], else leaves TRII_NO_VALUE. `node` and pointers to values stay valid during
 * the call (room for 64 nodes is reserved). */
typedef tri_status trii_gradient_rule(trii_step *step, const trii_node *node, const trii_vid *g,
                                      const bool *needs, trii_vid *grad_in);

#define TRII_GRADIENT(name) trii_gradient_rule trii_grad_##name;
#include "train/graph/step/gradient_list.h"
#undef TRII_GRADIENT

/* By number; NULL at TRII_GRADIENT_NONE. */
extern trii_gradient_rule *const trii_gradient_rules[];

/* Spreads the gradient of a reduction over its operand. */
tri_status trii_rec_spread(trii_step *step, const trii_node *node, trii_vid g,
                           trii_vid *out) TRI_MUST_CHECK;
/* Zeros like `like`, with src added where index says along the dimension. */
tri_status trii_rec_scattered(trii_step *step, const trii_type *like, int64_t dim, trii_vid index,
                              trii_vid src, trii_vid *out) TRI_MUST_CHECK;
/* a + b, gradients of one value: if one is the gradient of a slice, it is added in place. */
tri_status trii_rec_accumulated(trii_step *step, trii_vid a, trii_vid b,
                                trii_vid *out) TRI_MUST_CHECK;

#endif
