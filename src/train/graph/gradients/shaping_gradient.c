/*
 * shaping_gradient.c - gradients of what changes shapes.
 */
#include "train/graph/gradients/gradient_rules.h"

tri_status trii_grad_reshape(trii_step *step, const trii_node *node, const trii_vid *g,
                             const bool *needs, trii_vid *grad_in)
{
    const trii_type type = *trii_type_of(step, trii_node_in(step, node, 0));

    (void)needs;
    return trii_rec_reshape(step, g[0], type.shape, type.ndim, &grad_in[0]);
}

tri_status trii_grad_expand(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    const trii_type type = *trii_type_of(step, trii_node_in(step, node, 0));

    (void)needs;
    return trii_rec_sum_to(step, g[0], &type, &grad_in[0]);
}

tri_status trii_grad_permute(trii_step *step, const trii_node *node, const trii_vid *g,
                             const bool *needs, trii_vid *grad_in)
{
    trii_attrs attrs;

    (void)needs;
    attrs.n_i = node->attrs.n_i;
    attrs.n_f = 0;
    for (int d = 0; d < attrs.n_i; d++)
        attrs.i[node->attrs.i[d]] = d;
    return trii_record_values(step, &trii_op_permute, g, 1, &attrs, &grad_in[0]);
}

tri_status trii_grad_flip(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_record_values(step, &trii_op_flip, g, 1, &node->attrs, &grad_in[0]);
}
