/*
 * reductions_gradient.c - gradients of sums, means and maxima.
 */
#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/ops/reduce_rules.h"

/* Spreads the gradient of a reduction over its operand. */
tri_status trii_rec_spread(trii_step *step, const trii_node *node, trii_vid g, trii_vid *out)
{
    const trii_type in = *trii_type_of(step, trii_node_in(step, node, 0));
    trii_type kept;
    tri_status status;

    trii_reduced_type(&in, node->attrs.i[0], true, &kept);
    if (!trii_type_same_shape(trii_type_of(step, g), &kept)) {
        status = trii_rec_reshape(step, g, kept.shape, kept.ndim, &g);
        if (status != TRI_OK)
            return status;
    }
    return trii_rec_expand(step, g, in.shape, in.ndim, out);
}

tri_status trii_grad_sum(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec_spread(step, node, g[0], &grad_in[0]);
}

tri_status trii_grad_mean(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    const trii_type *in = trii_type_of(step, trii_node_in(step, node, 0));
    double count = (double)trii_reduced_count(in, node->attrs.i[0]);
    trii_vid scaled = TRII_NO_VALUE;
    tri_status status = trii_rec_scaled(step, g[0], 1 / count, &scaled);

    (void)needs;
    return status == TRI_OK ? trii_rec_spread(step, node, scaled, &grad_in[0]) : status;
}

tri_status trii_grad_amax(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    trii_vid in[3] = {g[0], trii_node_in(step, node, 0), node->first_out};

    (void)needs;
    return trii_record_values(step, &trii_op_amax_backward, in, 3, &node->attrs, &grad_in[0]);
}
