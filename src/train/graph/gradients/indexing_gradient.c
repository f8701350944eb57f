/*
 * indexing_gradient.c - gradients of what reads or adds elements by index.
 */
#include "train/graph/gradients/gradient_rules.h"

static tri_status rec_zeros(trii_step *step, const trii_type *type, trii_vid *out)
{
    trii_attrs attrs;

    trii_fill_attrs(type, 0, &attrs);
    return trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, out);
}

tri_status trii_rec_scattered(trii_step *step, const trii_type *like, int64_t dim, trii_vid index,
                              trii_vid src, trii_vid *out)
{
    trii_vid in[3] = {TRII_NO_VALUE, index, src};
    trii_type type = *like;
    trii_attrs attrs;
    tri_status status;

    type.dtype = trii_type_of(step, src)->dtype;
    status = rec_zeros(step, &type, &in[0]);
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = dim;
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_scatter_add, in, 3, &attrs, out);
    return status == TRI_OK ? trii_rec_cast(step, *out, like->dtype, out) : status;
}

tri_status trii_grad_gather(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    const trii_type x = *trii_type_of(step, trii_node_in(step, node, 0));

    (void)needs;
    return trii_rec_scattered(step, &x, node->attrs.i[0], trii_node_in(step, node, 1), g[0],
                              &grad_in[0]);
}

/* Elements of src that were not added have a gradient of zeros. */
tri_status trii_grad_scatter_add(trii_step *step, const trii_node *node, const trii_vid *g,
                                 const bool *needs, trii_vid *grad_in)
{
    const trii_type index = *trii_type_of(step, trii_node_in(step, node, 1));
    const trii_type src = *trii_type_of(step, trii_node_in(step, node, 2));
    trii_vid in[2] = {g[0], trii_node_in(step, node, 1)};
    trii_attrs attrs;
    tri_status status;

    if (needs[0])
        grad_in[0] = g[0];
    if (!needs[2])
        return TRI_OK;
    status = trii_record_values(step, &trii_op_gather, in, 2, &node->attrs, &grad_in[2]);
    if (status != TRI_OK || trii_type_same_shape(&index, &src))
        return status;
    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = 0;
    for (int d = 0; d < src.ndim; d++) {
        trii_attrs_add(&attrs, 0);
        trii_attrs_add(&attrs, src.shape[d] - index.shape[d]);
    }
    return trii_record_values(step, &trii_op_pad, &grad_in[2], 1, &attrs, &grad_in[2]);
}

tri_status trii_grad_index_select(trii_step *step, const trii_node *node, const trii_vid *g,
                                  const bool *needs, trii_vid *grad_in)
{
    const trii_type x = *trii_type_of(step, trii_node_in(step, node, 0));
    trii_vid in[2] = {g[0], trii_node_in(step, node, 1)};
    trii_attrs attrs;
    tri_status status;

    (void)needs;
    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = node->attrs.i[0];
    attrs.i[1] = x.shape[attrs.i[0]];
    status = trii_record_values(step, &trii_op_index_select_backward, in, 2, &attrs, &grad_in[0]);
    return status == TRI_OK ? trii_rec_cast(step, grad_in[0], x.dtype, &grad_in[0]) : status;
}

tri_status trii_grad_embedding(trii_step *step, const trii_node *node, const trii_vid *g,
                               const bool *needs, trii_vid *grad_in)
{
    trii_vid in[2] = {g[0], trii_node_in(step, node, 1)};
    const trii_type weight = *trii_type_of(step, trii_node_in(step, node, 0));
    trii_attrs attrs;
    tri_status status;

    (void)needs;
    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = node->attrs.i[0];
    attrs.i[1] = weight.shape[0];
    status = trii_record_values(step, &trii_op_embedding_backward, in, 2, &attrs, &grad_in[0]);
    return status == TRI_OK ? trii_rec_cast(step, grad_in[0], weight.dtype, &grad_in[0]) : status;
}
