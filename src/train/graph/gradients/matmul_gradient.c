/*
 * matmul_gradient.c - gradients of matrix products.
 */
#include "train/graph/gradients/gradient_rules.h"

/* Leading dimensions and rows of the value as rows of one matrix. */
static tri_status rec_rows(trii_step *step, trii_vid a, trii_vid *out)
{
    const trii_type type = *trii_type_of(step, a);
    int64_t rows = 1;

    for (int d = 0; d + 1 < type.ndim; d++)
        rows *= type.shape[d];
    return trii_rec_reshape(step, a, (int64_t[]){rows, type.shape[type.ndim - 1]}, 2, out);
}

/* c = A B with A, B the operands after their transpositions: dA = g B^T, dB = A^T g. The gradient
 * of a transposed operand is the transposed product; an operand without leading dimensions gets
 * the sum over them. Where b is one matrix for all of a's, all is one product of many rows. */
tri_status trii_grad_matmul(trii_step *step, const trii_node *node, const trii_vid *grad,
                            const bool *needs, trii_vid *grad_in)
{
    trii_vid a = trii_node_in(step, node, 0), b = trii_node_in(step, node, 1), d = TRII_NO_VALUE;
    trii_vid g = grad[0];
    const trii_type type_a = *trii_type_of(step, a), type_b = *trii_type_of(step, b);
    bool ta = node->attrs.i[0] != 0, tb = node->attrs.i[1] != 0;
    bool rows = !ta && type_a.ndim > 2 && type_b.ndim == 2;
    tri_status status = TRI_OK;

    if (rows) {
        status = rec_rows(step, a, &a);
        if (status == TRI_OK)
            status = rec_rows(step, g, &g);
    }
    if (needs[0] && status == TRI_OK) {
        status = ta ? trii_rec_matmul(step, b, g, tb, true, &d)
                    : trii_rec_matmul(step, g, b, false, !tb, &d);
        if (status == TRI_OK && rows)
            status = trii_rec_reshape(step, d, type_a.shape, type_a.ndim, &d);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, d, &type_a, &grad_in[0]);
    }
    if (needs[1] && status == TRI_OK) {
        status = tb ? trii_rec_matmul(step, g, a, true, ta, &d)
                    : trii_rec_matmul(step, a, g, !ta, false, &d);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, d, &type_b, &grad_in[1]);
    }
    return status;
}

/* In f32 and f64 a product like any other; so it is, wide, where it is differentiated again. */
static tri_status rec_product(trii_step *step, const trii_graph_op *op, trii_vid a, trii_vid b,
                              bool transpose_a, trii_vid *out)
{
    trii_vid in[2] = {a, b};
    trii_attrs attrs;
    tri_status status = TRI_OK;

    if (trii_step_creates_graph(step) && trii_dtype_is_half(trii_type_of(step, a)->dtype))
        status = trii_rec_cast(step, a, TRI_DTYPE_F32, &a);
    if (status != TRI_OK || !trii_dtype_is_half(trii_type_of(step, a)->dtype))
        return status == TRI_OK ? trii_rec_matmul(step, a, b, transpose_a, false, out) : status;
    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = transpose_a;
    attrs.i[1] = false;
    return trii_record_values(step, op, in, 2, &attrs, out);
}

/* dx = g W, dW = g^T x, db = sum of g over the rows. */
tri_status trii_grad_linear(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    trii_vid x = trii_node_in(step, node, 0), w = trii_node_in(step, node, 1), g2 = g[0], x2 = x;
    const trii_type type_x = *trii_type_of(step, x);
    int64_t inputs = trii_type_of(step, w)->shape[1], outputs = trii_type_of(step, w)->shape[0];
    int64_t rows = 1;
    tri_status status = TRI_OK;

    for (int d = 0; d + 1 < type_x.ndim; d++)
        rows *= type_x.shape[d];
    if (type_x.ndim != 2)
        status = trii_rec_reshape(step, g[0], (int64_t[]){rows, outputs}, 2, &g2);
    if (status == TRI_OK && needs[0])
        status = rec_product(step, &trii_op_matmul_weight, g2, w, false, &grad_in[0]);
    if (status == TRI_OK && needs[0] && type_x.ndim != 2)
        status = trii_rec_reshape(step, grad_in[0], type_x.shape, type_x.ndim, &grad_in[0]);
    if (status == TRI_OK && needs[1]) {
        if (type_x.ndim != 2)
            status = trii_rec_reshape(step, x, (int64_t[]){rows, inputs}, 2, &x2);
        if (status == TRI_OK)
            status = rec_product(step, &trii_op_matmul_to_weight, g2, x2, true, &grad_in[1]);
    }
    if (status == TRI_OK && node->n_in > 2 && needs[2]) {
        const trii_type bias = *trii_type_of(step, trii_node_in(step, node, 2));

        status = trii_rec_sum_to(step, g2, &bias, &grad_in[2]);
    }
    return status;
}
