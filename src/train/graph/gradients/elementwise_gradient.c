/*
 * elementwise_gradient.c - gradients of element-wise operations, and of copies and conversions. Of
 * an activation it is one operation of its own, so that a device gives it one kernel; what it reads
 * (x or y) is what is cheaper to keep.
 */
#include "train/graph/gradients/composed.h"

#define TRII_EW_GRADIENT(name, recorded)                                                           \
    tri_status trii_grad_##name(trii_step *step, const trii_node *node, const trii_vid *grad_out,  \
                                const bool *needs, trii_vid *grad_in)                              \
    {                                                                                              \
        trii_composer composer = {step, TRI_OK}, *c = &composer;                                   \
        trii_vid x = trii_node_in(step, node, 0), y = node->first_out, g = grad_out[0];            \
                                                                                                   \
        (void)needs, (void)x, (void)y;                                                             \
        grad_in[0] = (recorded);                                                                   \
        return c->status;                                                                          \
    }
#define f0 (node->attrs.f[0])
#define BACKWARD(name, b)                                                                          \
    trii_compose(c, &trii_op_##name##_backward, (trii_vid[]){g, b}, 2, &node->attrs)
#include "train/graph/step/elementwise.def"

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

tri_status trii_grad_pow(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    trii_vid in[3] = {g[0], trii_node_in(step, node, 0), trii_node_in(step, node, 1)};
    tri_status status = TRI_OK;

    for (int i = 0; i < 2 && status == TRI_OK; i++) {
        trii_vid d = TRII_NO_VALUE;
        trii_attrs attrs;

        if (!needs[i])
            continue;
        if (trii_step_creates_graph(step)) {
            status = trii_composed_pow(step, node, g[0], i == 1, &grad_in[i]);
            continue;
        }
        attrs.n_i = 1;
        attrs.n_f = 0;
        attrs.i[0] = i;
        status = trii_record_values(step, &trii_op_pow_backward, in, 3, &attrs, &d);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, d, trii_type_of(step, in[1 + i]), &grad_in[i]);
    }
    return status;
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

/* Of step functions: zero, as in PyTorch. */
tri_status trii_grad_zero(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    trii_attrs attrs;

    (void)g;
    (void)needs;
    trii_fill_attrs(trii_type_of(step, trii_node_in(step, node, 0)), 0, &attrs);
    return trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, &grad_in[0]);
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
