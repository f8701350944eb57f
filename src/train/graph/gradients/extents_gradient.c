/*
 * extents_gradient.c - gradients of products, logarithms of sums, cumulative sums and the largest
 * elements.
 */
#include <math.h>

#include "train/graph/gradients/composed.h"
#include "train/graph/gradients/gradient_rules.h"

tri_status trii_grad_prod(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    trii_vid in[2] = {g[0], trii_node_in(step, node, 0)};

    (void)needs;
    if (trii_step_creates_graph(step))
        return trii_composed_prod(step, node, g[0], &grad_in[0]);
    return trii_record_values(step, &trii_op_prod_backward, in, 2, &node->attrs, &grad_in[0]);
}

/* g e^(x - y); where nothing but -inf was added up, 0. */
tri_status trii_grad_logsumexp(trii_step *step, const trii_node *node, const trii_vid *g,
                               const bool *needs, trii_vid *grad_in)
{
    trii_vid y = TRII_NO_VALUE, spread = TRII_NO_VALUE, d = TRII_NO_VALUE;
    bool narrow = trii_type_of(step, node->first_out)->dtype == TRI_DTYPE_F32;
    trii_attrs attrs;
    tri_status status;

    (void)needs;
    attrs.n_i = 0;
    attrs.n_f = 2;
    attrs.f[0] = narrow ? -1e38 : -1e307;
    attrs.f[1] = (double)INFINITY;
    status = trii_record_values(step, &trii_op_clamp, &node->first_out, 1, &attrs, &y);
    if (status == TRI_OK)
        status = trii_rec_spread(step, node, y, &y);
    if (status == TRI_OK)
        status = trii_rec_spread(step, node, g[0], &spread);
    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_sub, trii_node_in(step, node, 0), y, &d);
    if (status == TRI_OK)
        status = trii_rec1(step, &trii_op_exp, d, &d);
    return status == TRI_OK ? trii_rec2(step, &trii_op_mul, spread, d, &grad_in[0]) : status;
}

tri_status trii_grad_cumsum(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    trii_attrs attrs;

    (void)needs;
    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = node->attrs.i[0];
    attrs.i[1] = !node->attrs.i[1];
    return trii_record_values(step, &trii_op_cumsum, g, 1, &attrs, &grad_in[0]);
}

tri_status trii_grad_topk(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    const trii_type x = *trii_type_of(step, trii_node_in(step, node, 0));

    (void)needs;
    if (x.ndim == 0) {
        grad_in[0] = g[0];
        return TRI_OK;
    }
    return trii_rec_scattered(step, &x, node->attrs.i[0], node->first_out + 1, g[0], &grad_in[0]);
}
