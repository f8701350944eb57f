/*
 * activations_gradient.c - gradients of non-linearities. Each is one element-wise operation of its
 * own, so that a device gives it one kernel; what it reads (x or y) is what is cheaper to keep.
 */
#include "train/graph/gradients/gradient_rules.h"

/* The gradient `op` of the operation: from its result, or from its operand. */
static tri_status from_result(trii_step *step, const trii_graph_op *op, const trii_node *node,
                              trii_vid g, trii_vid *out)
{
    return trii_rec2(step, op, g, node->first_out, out);
}

static tri_status from_operand(trii_step *step, const trii_graph_op *op, const trii_node *node,
                               trii_vid g, trii_vid *out)
{
    trii_vid in[2] = {g, trii_node_in(step, node, 0)};

    return trii_record_values(step, op, in, 2, &node->attrs, out);
}

#define GRADIENT(name, from)                                                                       \
    tri_status trii_grad_##name(trii_step *step, const trii_node *node, const trii_vid *g,         \
                                const bool *needs, trii_vid *grad_in)                              \
    {                                                                                              \
        (void)needs;                                                                               \
        return from(step, &trii_op_##name##_backward, node, g[0], &grad_in[0]);                    \
    }
GRADIENT(relu, from_result)
GRADIENT(leaky_relu, from_operand)
GRADIENT(sigmoid, from_result)
GRADIENT(tanh, from_result)
GRADIENT(gelu, from_operand)
GRADIENT(gelu_tanh, from_operand)
GRADIENT(silu, from_operand)
