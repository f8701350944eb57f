/*
 * second_order.h - gradients of the operations that gradients are made of, for tri_gradients with
 * create_graph. Each is the .grad of a table entry called _backward in the file of its family.
 */
#ifndef TRII_SECOND_ORDER_H
#define TRII_SECOND_ORDER_H

#include "train/graph/ops/rules.h"

#define TRII_SECOND(name)                                                                          \
    tri_status trii_second_##name(trii_step *step, const trii_node *node, const trii_vid *gg,      \
                                  const bool *needs, trii_vid *grad_in)

/* For operations that are linear in the first operand and piecewise constant in the others: relu,
 * clamp, maximum.. */
TRII_SECOND(flat);
TRII_SECOND(sigmoid);
TRII_SECOND(tanh);
TRII_SECOND(gelu);
TRII_SECOND(gelu_tanh);
TRII_SECOND(silu);
TRII_SECOND(rsqrt);
TRII_SECOND(pow_scalar);
TRII_SECOND(elu);
TRII_SECOND(softplus);
TRII_SECOND(hardswish);
TRII_SECOND(root);
TRII_SECOND(smooth_l1);
TRII_SECOND(bce);
TRII_SECOND(mse_loss);
TRII_SECOND(softmax);
TRII_SECOND(log_softmax);
TRII_SECOND(cross_entropy);
TRII_SECOND(sum_to);
TRII_SECOND(amax);
TRII_SECOND(slice);
TRII_SECOND(index_select);
TRII_SECOND(embedding);
TRII_SECOND(conv_data);
TRII_SECOND(conv_weight);

/* The gradient of a gradient of a mean over windows is that mean. */
tri_status trii_second_pooling(trii_step *step, const trii_node *node, const trii_graph_op *op,
                               int n_i, trii_vid gg, trii_vid *grad_in) TRI_MUST_CHECK;

#endif
