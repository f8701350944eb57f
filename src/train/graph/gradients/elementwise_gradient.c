/*
 * elementwise_gradient.c - gradients of arithmetic, and of copies and conversions.
 */
#include "train/graph/gradients/gradient_rules.h"

tri_status trii_grad_add(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        if (needs[i])
            status = trii_rec_sum_to(step, g[0], trii_type_of(step, trii_node_in(step, node, i)),
                                     &grad_in[i]);
    }
    return status;
}

tri_status trii_grad_sub(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    tri_status status = trii_grad_add(step, node, g, needs, grad_in);

    if (status == TRI_OK && needs[1])
        status = trii_rec1(step, &trii_op_neg, grad_in[1], &grad_in[1]);
    return status;
}

tri_status trii_grad_mul(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        trii_vid product = TRII_NO_VALUE;

        if (!needs[i])
            continue;
        status = trii_rec2(step, &trii_op_mul, g[0], trii_node_in(step, node, 1 - i), &product);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, product, trii_type_of(step, trii_node_in(step, node, i)),
                                     &grad_in[i]);
    }
    return status;
}

/* y = a / b: da = g / b, db = -(g / b) * y */
tri_status trii_grad_div(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    trii_vid a = trii_node_in(step, node, 0), b = trii_node_in(step, node, 1), quotient = 0,
             product = 0;
    tri_status status = trii_rec2(step, &trii_op_div, g[0], b, &quotient);

    if (status == TRI_OK && needs[0])
        status = trii_rec_sum_to(step, quotient, trii_type_of(step, a), &grad_in[0]);
    if (status != TRI_OK || !needs[1])
        return status;
    status = trii_rec2(step, &trii_op_mul, quotient, node->first_out, &product);
    if (status == TRI_OK)
        status = trii_rec1(step, &trii_op_neg, product, &product);
    if (status == TRI_OK)
        status = trii_rec_sum_to(step, product, trii_type_of(step, b), &grad_in[1]);
    return status;
}

static tri_status extremum_grad(trii_step *step, const trii_node *node, bool minimum,
                                const trii_vid *g, const bool *needs, trii_vid *grad_in)
{
    trii_vid in[3] = {g[0], trii_node_in(step, node, 0), trii_node_in(step, node, 1)};
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        trii_vid d = TRII_NO_VALUE;
        trii_attrs attrs;

        if (!needs[i])
            continue;
        attrs.n_i = 2;
        attrs.n_f = 0;
        attrs.i[0] = minimum;
        attrs.i[1] = i;
        status = trii_record_values(step, &trii_op_extremum_backward, in, 3, &attrs, &d);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, d, trii_type_of(step, in[1 + i]), &grad_in[i]);
    }
    return status;
}

tri_status trii_grad_maximum(trii_step *step, const trii_node *node, const trii_vid *g,
                             const bool *needs, trii_vid *grad_in)
{
    return extremum_grad(step, node, false, g, needs, grad_in);
}

tri_status trii_grad_minimum(trii_step *step, const trii_node *node, const trii_vid *g,
                             const bool *needs, trii_vid *grad_in)
{
    return extremum_grad(step, node, true, g, needs, grad_in);
}

tri_status trii_grad_pass(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    (void)step;
    (void)node;
    (void)needs;
    grad_in[0] = g[0];
    return TRI_OK;
}

tri_status trii_grad_neg(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    (void)node;
    (void)needs;
    return trii_rec1(step, &trii_op_neg, g[0], &grad_in[0]);
}

tri_status trii_grad_mul_scalar(trii_step *step, const trii_node *node, const trii_vid *g,
                                const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec_scaled(step, g[0], node->attrs.f[0], &grad_in[0]);
}

tri_status trii_grad_abs(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec2(step, &trii_op_abs_backward, g[0], trii_node_in(step, node, 0), &grad_in[0]);
}

/* 2 g x */
tri_status trii_grad_square(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    trii_vid twice = TRII_NO_VALUE;
    tri_status status = trii_rec_scaled(step, g[0], 2, &twice);

    (void)needs;
    if (status != TRI_OK)
        return status;
    return trii_rec2(step, &trii_op_mul, twice, trii_node_in(step, node, 0), &grad_in[0]);
}

/* g / (2 y) */
tri_status trii_grad_sqrt(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    trii_vid twice = TRII_NO_VALUE;
    tri_status status = trii_rec_scaled(step, node->first_out, 2, &twice);

    (void)needs;
    return status == TRI_OK ? trii_rec2(step, &trii_op_div, g[0], twice, &grad_in[0]) : status;
}

tri_status trii_grad_exp(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec2(step, &trii_op_mul, g[0], node->first_out, &grad_in[0]);
}

tri_status trii_grad_log(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec2(step, &trii_op_div, g[0], trii_node_in(step, node, 0), &grad_in[0]);
}

tri_status trii_grad_cast(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec_cast(step, g[0], trii_type_of(step, trii_node_in(step, node, 0))->dtype,
                         &grad_in[0]);
}

tri_status trii_grad_to(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                        const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_record_to(step, grad_out[0],
                          trii_type_of(step, trii_node_in(step, node, 0))->device, &grad_in[0]);
}
