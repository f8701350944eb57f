/*
 * slicing_gradient.c - gradients of slices, windows, padding and triangles.
 */
#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/ops/own_part.h"

tri_status trii_grad_slice(trii_step *step, const trii_node *node, const trii_vid *g,
                           const bool *needs, trii_vid *grad_in)
{
    const trii_type *x = trii_type_of(step, trii_node_in(step, node, 0));
    trii_attrs attrs = node->attrs;

    (void)needs;
    for (int d = 0; d < x->ndim; d++)
        trii_attrs_add(&attrs, x->shape[d]);
    return trii_record_values(step, &trii_op_slice_backward, g, 1, &attrs, &grad_in[0]);
}

tri_status trii_grad_own_part(trii_step *step, const trii_node *node, const trii_vid *g,
                              const bool *needs, trii_vid *grad_in)
{
    const trii_part_gradient *own = trii_part_gradient_of(node);

    (void)needs;
    return own->record(own, step, g[0], &grad_in[0]);
}

tri_status trii_grad_pad(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    const trii_type *x = trii_type_of(step, trii_node_in(step, node, 0));
    trii_attrs attrs;

    (void)needs;
    attrs.n_i = 3 * x->ndim;
    attrs.n_f = 0;
    trii_pad_slice(x, node->attrs.i, attrs.i);
    return trii_record_values(step, &trii_op_slice, g, 1, &attrs, &grad_in[0]);
}

tri_status trii_grad_tril(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_record_values(step, &trii_op_tril, g, 1, &node->attrs, &grad_in[0]);
}

tri_status trii_grad_unfold(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    const trii_type *x = trii_type_of(step, trii_node_in(step, node, 0));
    trii_attrs attrs = node->attrs;

    (void)needs;
    for (int d = 0; d < x->ndim; d++)
        trii_attrs_add(&attrs, x->shape[d]);
    return trii_record_values(step, &trii_op_unfold_backward, g, 1, &attrs, &grad_in[0]);
}

tri_status trii_grad_unfold_backward(trii_step *step, const trii_node *node, const trii_vid *g,
                                     const bool *needs, trii_vid *grad_in)
{
    trii_attrs attrs = node->attrs;

    (void)needs;
    attrs.n_i = 3;
    return trii_record_values(step, &trii_op_unfold, g, 1, &attrs, &grad_in[0]);
}

tri_status trii_grad_slice_update(trii_step *step, const trii_node *node, const trii_vid *g,
                                  const bool *needs, trii_vid *grad_in)
{
    trii_type part = *trii_type_of(step, trii_node_in(step, node, 1));
    trii_attrs slice = node->attrs;
    trii_vid in[2] = {g[0], TRII_NO_VALUE};
    bool added = slice.i[3 * part.ndim] != 0;
    tri_status status = TRI_OK;

    slice.n_i--;
    part.dtype = trii_type_of(step, g[0])->dtype; /* f32, maybe, where x is bf16 */
    if (needs[0] && added)
        grad_in[0] = g[0];
    if (needs[0] && !added) {
        status = trii_rec_zeros(step, &part, &in[1]);
        if (status == TRI_OK)
            status =
                trii_record_values(step, &trii_op_slice_update, in, 2, &node->attrs, &grad_in[0]);
    }
    if (needs[1] && status == TRI_OK)
        status = trii_record_values(step, &trii_op_slice, g, 1, &slice, &grad_in[1]);
    return status;
}

tri_status trii_rec_accumulated(trii_step *step, trii_vid a, trii_vid b, trii_vid *out)
{
    const trii_vid terms[2] = {a, b};

    for (int k = 1; k >= 0; k--) {
        const trii_value *value = &step->values[terms[k]];
        const trii_node *node = value->node >= 0 ? &step->nodes[value->node] : NULL;
        trii_vid in[2] = {terms[1 - k], TRII_NO_VALUE};
        trii_attrs attrs;

        if (node == NULL || node->op != &trii_op_slice_backward ||
            value->state != TRII_VALUE_PENDING ||
            (value->type.dtype != TRI_DTYPE_F32 && value->type.dtype != TRI_DTYPE_F64))
            continue;
        attrs = node->attrs;
        attrs.n_i = 3 * value->type.ndim;
        trii_attrs_add(&attrs, 1);
        in[1] = trii_node_in(step, node, 0);
        return trii_record_values(step, &trii_op_slice_update, in, 2, &attrs, out);
    }
    return trii_rec2(step, &trii_op_add, a, b, out);
}
