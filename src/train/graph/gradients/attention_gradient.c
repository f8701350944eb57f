/*
 * attention_gradient.c - the gradient of scaled dot-product attention.
 */
#include "train/graph/gradients/composed.h"
#include "train/graph/gradients/gradient_rules.h"

tri_status trii_grad_attention(trii_step *step, const trii_node *node, const trii_vid *g,
                               const bool *needs, trii_vid *grad_in)
{
    trii_vid in[8] = {g[0],
                      trii_node_in(step, node, 0),
                      trii_node_in(step, node, 1),
                      trii_node_in(step, node, 2),
                      node->first_out,
                      node->first_out + 1,
                      trii_node_in(step, node, 3),
                      trii_node_in(step, node, 4)};
    trii_vid first = TRII_NO_VALUE;
    tri_status status;

    if (g[0] == TRII_NO_VALUE)
        return TRI_OK;
    if (needs[3])
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "attn_mask has no gradient: use one that does not require it, or "
                         "tri_matmul and tri_softmax");
    if (trii_step_creates_graph(step))
        return trii_composed_attention(step, node, g[0], needs, grad_in);
    status = trii_record_values(step, &trii_op_attention_backward, in, 8, &node->attrs, &first);
    for (int i = 0; i < 3 && status == TRI_OK; i++)
        grad_in[i] = first + i;
    return status;
}
