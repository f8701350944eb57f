/*
 * softmax_gradient.c - gradients of softmax and its logarithm.
 */
#include "train/graph/gradients/gradient_rules.h"

static tri_status record_backward(trii_step *step, const trii_graph_op *op, const trii_node *node,
                                  trii_vid g, trii_vid *out)
{
    trii_vid in[2] = {g, node->first_out};

    return trii_record_values(step, op, in, 2, &node->attrs, out);
}

tri_status trii_grad_softmax(trii_step *step, const trii_node *node, const trii_vid *g,
                             const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return record_backward(step, &trii_op_softmax_backward, node, g[0], &grad_in[0]);
}

tri_status trii_grad_log_softmax(trii_step *step, const trii_node *node, const trii_vid *g,
                                 const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return record_backward(step, &trii_op_log_softmax_backward, node, g[0], &grad_in[0]);
}
