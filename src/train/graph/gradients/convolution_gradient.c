/*
 * convolution_gradient.c - the gradient of a convolution.
 */
#include "train/graph/gradients/gradient_rules.h"

tri_status trii_grad_conv(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    trii_vid x = trii_node_in(step, node, 0), w = trii_node_in(step, node, 1);
    const trii_type *type_x = trii_type_of(step, x), *type_w = trii_type_of(step, w);
    trii_attrs attrs;
    tri_status status = TRI_OK;

    attrs.n_i = 11;
    attrs.n_f = 0;
    for (int i = 0; i < 7; i++)
        attrs.i[i] = node->attrs.i[i];
    for (int d = 0; d < 4; d++)
        attrs.i[7 + d] = type_x->shape[d];
    if (needs[0])
        status = trii_record_values(step, &trii_op_conv_backward_data, (trii_vid[]){g[0], w}, 2,
                                    &attrs, &grad_in[0]);
    for (int d = 0; d < 4; d++)
        attrs.i[7 + d] = type_w->shape[d];
    if (status == TRI_OK && needs[1])
        status = trii_record_values(step, &trii_op_conv_backward_weight, (trii_vid[]){g[0], x}, 2,
                                    &attrs, &grad_in[1]);
    if (status == TRI_OK && needs[2]) {
        attrs.n_i = 2;
        attrs.i[0] = 1 << 0 | 1 << 2 | 1 << 3;
        attrs.i[1] = 0;
        status = trii_record_values(step, &trii_op_sum, g, 1, &attrs, &grad_in[2]);
    }
    return status;
}
