/*
 * comparing_gradient.c - gradients of what chooses elements by a condition.
 */
#include "train/graph/gradients/gradient_rules.h"

static tri_status rec_masked(trii_step *step, trii_vid x, trii_vid mask, bool inverted,
                             trii_vid *out)
{
    trii_vid in[2] = {x, mask};
    trii_attrs attrs;

    attrs.n_i = attrs.n_f = 1;
    attrs.i[0] = inverted;
    attrs.f[0] = 0;
    return trii_record_values(step, &trii_op_masked_fill, in, 2, &attrs, out);
}

tri_status trii_grad_where(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    trii_vid condition = trii_node_in(step, node, 0);
    tri_status status = TRI_OK;

    for (int i = 1; i <= 2 && status == TRI_OK; i++) {
        trii_vid d = TRII_NO_VALUE;

        if (!needs[i])
            continue;
        status = rec_masked(step, g[0], condition, i == 1, &d);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, d, trii_type_of(step, trii_node_in(step, node, i)),
                                     &grad_in[i]);
    }
    return status;
}

tri_status trii_grad_masked_fill(trii_step *step, const trii_node *node, const trii_vid *g,
                                 const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return rec_masked(step, g[0], trii_node_in(step, node, 1), node->attrs.i[0] != 0, &grad_in[0]);
}
