/*
 * maths_gradient.c - gradients of powers, bounds, rounding, trigonometry and further activations.
 */
#include "train/graph/gradients/composed.h"
#include "train/graph/gradients/gradient_rules.h"

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

/* Gradients that need the operand and the attributes of the operation. */
#define FROM_OPERAND(name)                                                                         \
    tri_status trii_grad_##name(trii_step *step, const trii_node *node, const trii_vid *g,         \
                                const bool *needs, trii_vid *grad_in)                              \
    {                                                                                              \
        trii_vid in[2] = {g[0], trii_node_in(step, node, 0)};                                      \
                                                                                                   \
        (void)needs;                                                                               \
        return trii_record_values(step, &trii_op_##name##_backward, in, 2, &node->attrs,           \
                                  &grad_in[0]);                                                    \
    }
FROM_OPERAND(pow_scalar)
FROM_OPERAND(clamp)
FROM_OPERAND(rsqrt)
FROM_OPERAND(elu)
FROM_OPERAND(softplus)
FROM_OPERAND(hardswish)

tri_status trii_grad_sin(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    trii_vid slope = TRII_NO_VALUE;
    tri_status status = trii_rec1(step, &trii_op_cos, trii_node_in(step, node, 0), &slope);

    (void)needs;
    return status == TRI_OK ? trii_rec2(step, &trii_op_mul, g[0], slope, &grad_in[0]) : status;
}

tri_status trii_grad_cos(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    trii_vid slope = TRII_NO_VALUE;
    tri_status status = trii_rec1(step, &trii_op_sin, trii_node_in(step, node, 0), &slope);

    (void)needs;
    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_mul, g[0], slope, &slope);
    return status == TRI_OK ? trii_rec1(step, &trii_op_neg, slope, &grad_in[0]) : status;
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

tri_status trii_grad_root(trii_step *step, const trii_node *node, const trii_vid *g,
                          const bool *needs, trii_vid *grad_in)
{
    (void)needs;
    return trii_rec2(step, &trii_op_root_backward, g[0], node->first_out, &grad_in[0]);
}
