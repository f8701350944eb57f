/*
 * layer_norm_gradient.c - gradients of layer and rms normalisation.
 */
#include "train/graph/gradients/composed.h"
#include "train/graph/gradients/gradient_rules.h"

static tri_status record_backward(trii_step *step, const trii_node *node, trii_vid g, trii_vid mean,
                                  trii_vid rstd, const bool *needs, trii_vid *grad_in)
{
    trii_vid in[5] = {g, trii_node_in(step, node, 0), trii_node_in(step, node, 1), mean, rstd};
    trii_vid first = TRII_NO_VALUE;
    trii_attrs attrs;
    tri_status status;

    attrs.n_i = 3;
    attrs.n_f = 0;
    attrs.i[0] = node->attrs.i[0];
    attrs.i[1] = needs[1];
    attrs.i[2] = node->n_in > 2 && needs[2];
    status = trii_record_values(step, &trii_op_row_norm_backward, in, 5, &attrs, &first);
    if (status != TRI_OK)
        return status;
    grad_in[0] = first++;
    if (attrs.i[1] != 0)
        grad_in[1] = first++;
    if (attrs.i[2] != 0)
        grad_in[2] = first;
    return TRI_OK;
}

static tri_status composed(trii_step *step, const trii_node *node, bool centred, trii_vid g,
                           const bool *needs, trii_vid *grad_in)
{
    const trii_type *x = trii_type_of(step, trii_node_in(step, node, 0));
    int n_dims = (int)node->attrs.i[0];
    trii_norm_rule rule = {
        .centred = centred, .eps = node->attrs.f[0], .mean = TRII_NO_VALUE, .var = TRII_NO_VALUE};
    trii_type stats;

    for (int d = x->ndim - n_dims; d < x->ndim; d++)
        rule.mask |= INT64_C(1) << d;
    trii_row_types(x, n_dims, &stats, &rule.shared);
    return trii_composed_norm(step, node, &rule, g, needs, grad_in);
}

tri_status trii_grad_layer_norm(trii_step *step, const trii_node *node, const trii_vid *g,
                                const bool *needs, trii_vid *grad_in)
{
    if (g[0] == TRII_NO_VALUE)
        return TRI_OK; /* nobody reads y */
    if (trii_step_creates_graph(step))
        return composed(step, node, true, g[0], needs, grad_in);
    return record_backward(step, node, g[0], node->first_out + 1, node->first_out + 2, needs,
                           grad_in);
}

tri_status trii_grad_rms_norm(trii_step *step, const trii_node *node, const trii_vid *g,
                              const bool *needs, trii_vid *grad_in)
{
    if (g[0] == TRII_NO_VALUE)
        return TRI_OK;
    if (trii_step_creates_graph(step))
        return composed(step, node, false, g[0], needs, grad_in);
    return record_backward(step, node, g[0], TRII_NO_VALUE, node->first_out + 1, needs, grad_in);
}
