/*
 * losses_gradient.c - gradients of losses.
 */
#include <math.h>

#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/ops/composer.h"

tri_status trii_grad_mse_loss(trii_step *step, const trii_node *node, const trii_vid *g,
                              const bool *needs, trii_vid *grad_in)
{
    trii_vid in[3] = {g[0], trii_node_in(step, node, 0), trii_node_in(step, node, 1)};
    trii_vid d = TRII_NO_VALUE;
    trii_attrs attrs;
    tri_status status;

    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = 2 / (double)trii_type_numel(trii_type_of(step, in[1]));
    status = trii_record_values(step, &trii_op_mse_loss_backward, in, 3, &attrs, &d);
    if (status == TRI_OK && needs[0])
        grad_in[0] = d;
    if (status == TRI_OK && needs[1])
        status = trii_rec1(step, &trii_op_neg, d, &grad_in[1]);
    return status;
}

tri_status trii_grad_class_loss(trii_step *step, const trii_node *node, const trii_vid *g,
                                const bool *needs, trii_vid *grad_in)
{
    trii_vid in[4] = {g[0], trii_node_in(step, node, 0), trii_node_in(step, node, 1),
                      trii_node_in(step, node, 2)};

    if (needs[2])
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "the weight has no gradient");
    return trii_record_values(step, &trii_op_cross_entropy_backward, in, 4, &node->attrs,
                              &grad_in[0]);
}

/* For losses without a gradient of the target. */
static tri_status rec_slope(trii_step *step, const trii_graph_op *op, const trii_node *node,
                            trii_vid g, trii_vid *out)
{
    trii_vid in[3] = {g, trii_node_in(step, node, 0), trii_node_in(step, node, 1)};

    return trii_record_values(step, op, in, 3, &node->attrs, out);
}

tri_status trii_grad_smooth_l1(trii_step *step, const trii_node *node, const trii_vid *g,
                               const bool *needs, trii_vid *grad_in)
{
    trii_vid d = TRII_NO_VALUE;
    tri_status status = rec_slope(step, &trii_op_smooth_l1_backward, node, g[0], &d);

    if (needs[0])
        grad_in[0] = d;
    return status == TRI_OK && needs[1] ? trii_rec1(step, &trii_op_neg, d, &grad_in[1]) : status;
}

/* log x, from -100 on as in the loss */
static trii_vid bounded_log(trii_composer *c, trii_vid x)
{
    const trii_attrs bounds = {.n_f = 2, .f = {-100, (double)INFINITY}};

    x = trii_compose1(c, &trii_op_log, x);
    return trii_compose(c, &trii_op_clamp, &x, 1, &bounds);
}

static trii_vid wide_operand(trii_composer *c, const trii_node *node, int i)
{
    return trii_compose_wide(c, trii_node_in(c->step, node, i));
}

/* Of the target: log(1 - p) - log p. */
tri_status trii_grad_bce(trii_step *step, const trii_node *node, const trii_vid *g,
                         const bool *needs, trii_vid *grad_in)
{
    trii_composer c = {step, TRI_OK};
    trii_vid p, q;

    if (needs[0])
        c.status = rec_slope(step, &trii_op_bce_backward, node, g[0], &grad_in[0]);
    if (!needs[1])
        return c.status;
    p = wide_operand(&c, node, 0);
    q = trii_compose2(&c, &trii_op_sub, bounded_log(&c, trii_compose_one_less(&c, p)),
                      bounded_log(&c, p));
    grad_in[1] = trii_compose2(&c, &trii_op_mul, g[0], q);
    return c.status;
}

/* Of the target: log target + 1 - input. */
tri_status trii_grad_kl_div(trii_step *step, const trii_node *node, const trii_vid *g,
                            const bool *needs, trii_vid *grad_in)
{
    trii_composer c = {step, TRI_OK};
    trii_vid d;

    if (needs[0]) {
        d = trii_compose2(&c, &trii_op_mul, g[0], trii_node_in(step, node, 1));
        grad_in[0] = trii_compose1(&c, &trii_op_neg, d);
    }
    if (!needs[1])
        return c.status;
    d = trii_compose1(&c, &trii_op_log, wide_operand(&c, node, 1));
    d = trii_compose_number(&c, &trii_op_add_scalar, d, 1);
    d = trii_compose2(&c, &trii_op_sub, d, wide_operand(&c, node, 0));
    grad_in[1] = trii_compose2(&c, &trii_op_mul, g[0], d);
    return c.status;
}
