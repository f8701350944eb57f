/*
 * second_order.c - gradients of the operations that gradients are made of (those called _backward
 * and sum_to), for tri_gradients with create_graph. What is recorded here is made of differentiable
 * operations wherever possible, so that third gradients exist as well.
 *
 * An element-wise gradient is g f(x), x the operand or the result. Its gradients are gg f(x), which
 * is the same operation again, and gg g f'(x), which elementwise.def says.
 */
#include <math.h>

#include "train/graph/gradients/composed.h"

#define RULE(name)                                                                                 \
    tri_status trii_grad_##name(trii_step *step, const trii_node *node, const trii_vid *gg,        \
                                const bool *needs, trii_vid *grad_in)

static tri_status times(trii_step *step, trii_vid a, trii_vid b, trii_vid *out)
{
    return trii_rec2(step, &trii_op_mul, a, b, out);
}

static tri_status ones_like(trii_step *step, trii_vid like, trii_vid *out)
{
    trii_attrs attrs;

    trii_fill_attrs(trii_type_of(step, like), 1, &attrs);
    return trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, out);
}

/* The operation again, with another first operand. */
static tri_status again(trii_step *step, const trii_node *node, trii_vid first, trii_vid *out)
{
    trii_vid in[4] = {first};

    for (int i = 1; i < node->n_in; i++)
        in[i] = trii_node_in(step, node, i);
    return trii_record_values(step, node->op, in, node->n_in, &node->attrs, out);
}

/* For operations that are linear in the first operand and piecewise constant in the others: relu,
 * clamp, maximum.. */
RULE(flat)
{
    return needs[0] ? again(step, node, gg[0], &grad_in[0]) : TRI_OK;
}

/* --- element by element --------------------------------------------------- */

/* `value` where -bound < x < bound, else 0: at the bounds, too, as in PyTorch. */
static trii_vid between(trii_composer *c, trii_vid value, trii_vid x, double bound)
{
    bool wide = c->status == TRI_OK && trii_type_of(c->step, x)->dtype == TRI_DTYPE_F64;
    trii_vid in[2] = {value, x};
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 2;
    attrs.f[1] = wide ? nextafter(bound, 0) : (double)nextafterf((float)bound, 0);
    attrs.f[0] = -attrs.f[1];
    return trii_compose(c, &trii_op_clamp_backward, in, 2, &attrs);
}

#define TRII_EW_SECOND(name, recorded)                                                             \
    RULE(name##_backward)                                                                          \
    {                                                                                              \
        trii_composer composer = {step, TRI_OK}, *c = &composer;                                   \
        trii_vid x = trii_node_in(step, node, 1), h, s = TRII_NO_VALUE, t = s, u = s;              \
                                                                                                   \
        (void)t, (void)u;                                                                          \
        if (needs[0])                                                                              \
            grad_in[0] = AGAIN(gg[0]);                                                             \
        if (c->status != TRI_OK || !needs[1])                                                      \
            return c->status;                                                                      \
        h = RECORD2(mul, gg[0], trii_node_in(step, node, 0));                                      \
        grad_in[1] = (recorded);                                                                   \
        return c->status;                                                                          \
    }
#define f0 (node->attrs.f[0])
#define f1 (node->attrs.f[1])
#define RECORD2_F(op, a, b, number)                                                                \
    trii_compose(c, &trii_op_##op, (trii_vid[]){a, b}, 2, &(trii_attrs){.n_f = 1, .f = {number}})
#define AGAIN(first)                                                                               \
    trii_compose(c, node->op, (trii_vid[]){first, trii_node_in(step, node, 1)}, 2, &node->attrs)
#define AFFINE(factor, a, number) RECORD_F(add_scalar, RECORD_F(mul_scalar, a, factor), number)
#define BETWEEN(a, b, bound) between(c, a, b, bound)
#define ZEROS(like) trii_compose_fill(c, trii_type_of(step, like), 0)
#include "train/graph/step/elementwise.def"

/* --- losses --------------------------------------------------------------- */

/* Gradients of a and b that are opposite. */
static tri_status opposite(trii_step *step, trii_vid d, const bool *needs, trii_vid *grad_in)
{
    if (needs[1])
        grad_in[1] = d;
    return needs[2] ? trii_rec1(step, &trii_op_neg, d, &grad_in[2]) : TRI_OK;
}

/* in g a b: g (a - b) / beta between, else g or -g */
RULE(smooth_l1_backward)
{
    trii_composer composer = {step, needs[0] ? again(step, node, gg[0], &grad_in[0]) : TRI_OK};
    trii_composer *c = &composer;
    double beta = node->attrs.f[0];
    trii_vid d, h;

    if (c->status != TRI_OK || !(needs[1] || needs[2]))
        return c->status;
    d = RECORD2(sub, trii_node_in(step, node, 1), trii_node_in(step, node, 2));
    h = RECORD2(mul, gg[0], trii_node_in(step, node, 0));
    d = between(c, RECORD_F(mul_scalar, h, 1 / beta), d, beta);
    return c->status == TRI_OK ? opposite(step, d, needs, grad_in) : c->status;
}

/* p (1 - p), with the factors or the product kept from zero, each as PyTorch does. */
static trii_vid variance(trii_composer *c, trii_vid p, double least, bool of_factors)
{
    const trii_attrs bounds = {.n_f = 2, .f = {least, (double)INFINITY}};
    double more = of_factors ? least : 0;
    trii_vid q = trii_compose_number(c, &trii_op_mul_scalar, p, -1);

    q = trii_compose_number(c, &trii_op_add_scalar, q, 1 + more);
    if (of_factors)
        p = trii_compose_number(c, &trii_op_add_scalar, p, more);
    q = trii_compose2(c, &trii_op_mul, p, q);
    return of_factors ? q : trii_compose(c, &trii_op_clamp, &q, 1, &bounds);
}

/* In g p t: g (p - t) / (p (1 - p)). Its slopes are (p^2 - 2 p t + t) / (p (1 - p))^2, written as a
 * sum of what is not negative, so that no digits cancel, and of the target -1 / (p (1 - p)). */
RULE(bce_backward)
{
    const double least = 1e-12;
    trii_vid p = trii_node_in(step, node, 1), t = trii_node_in(step, node, 2), h, d, e;
    trii_composer c = {step, needs[0] ? again(step, node, gg[0], &grad_in[0]) : TRI_OK};

    if (c.status != TRI_OK || !(needs[1] || needs[2]))
        return c.status;
    h = trii_compose2(&c, &trii_op_mul, gg[0], trii_node_in(step, node, 0));
    if (needs[2]) {
        d = trii_compose2(&c, &trii_op_div, h, variance(&c, p, least, false));
        grad_in[2] = trii_compose1(&c, &trii_op_neg, d);
    }
    if (needs[1]) { /* (p - t)^2 + t (1 - t) */
        d = variance(&c, p, least, true);
        e = trii_compose1(&c, &trii_op_square, trii_compose2(&c, &trii_op_sub, p, t));
        t = trii_compose2(
            &c, &trii_op_mul, t,
            trii_compose_number(&c, &trii_op_add_scalar, trii_compose1(&c, &trii_op_neg, t), 1));
        e = trii_compose2(&c, &trii_op_add, e, t);
        e = trii_compose2(&c, &trii_op_div, e, d);
        grad_in[1] = trii_compose2(&c, &trii_op_mul, trii_compose2(&c, &trii_op_div, h, d), e);
    }
    return c.status;
}

/* in g a b, g a scalar: g f (a - b) */
RULE(mse_loss_backward)
{
    trii_vid g = trii_node_in(step, node, 0), d = TRII_NO_VALUE;
    tri_status status = TRI_OK;

    if (needs[0]) {
        status = trii_rec2(step, &trii_op_sub, trii_node_in(step, node, 1),
                           trii_node_in(step, node, 2), &d);
        if (status == TRI_OK)
            status = times(step, gg[0], d, &d);
        if (status == TRI_OK)
            status = trii_rec_scaled(step, d, node->attrs.f[0], &d);
        if (status == TRI_OK)
            status = trii_rec_sum_to(step, d, trii_type_of(step, g), &grad_in[0]);
    }
    if (status != TRI_OK || !(needs[1] || needs[2]))
        return status;
    status = times(step, gg[0], g, &d);
    if (status == TRI_OK)
        status = trii_rec_scaled(step, d, node->attrs.f[0], &d);
    return status == TRI_OK ? opposite(step, d, needs, grad_in) : status;
}

static tri_status sum_along(trii_step *step, trii_vid x, int64_t mask, trii_vid *out)
{
    trii_attrs attrs;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = mask;
    attrs.i[1] = true;
    return trii_record_values(step, &trii_op_sum, &x, 1, &attrs, out);
}

/* in g y: y (g - sum g y). Linear and symmetric in g; in y: gg (g - sum g y) - g sum gg y */
RULE(softmax_backward)
{
    trii_vid g = trii_node_in(step, node, 0), y = trii_node_in(step, node, 1);
    trii_vid a = TRII_NO_VALUE, b = TRII_NO_VALUE;
    int64_t mask = INT64_C(1) << node->attrs.i[0];
    tri_status status = needs[0] ? again(step, node, gg[0], &grad_in[0]) : TRI_OK;

    if (status != TRI_OK || !needs[1])
        return status;
    status = times(step, g, y, &a);
    if (status == TRI_OK)
        status = sum_along(step, a, mask, &a);
    if (status == TRI_OK)
        status = trii_rec2(step, &trii_op_sub, g, a, &a);
    if (status == TRI_OK)
        status = times(step, gg[0], a, &a);
    if (status == TRI_OK)
        status = times(step, gg[0], y, &b);
    if (status == TRI_OK)
        status = sum_along(step, b, mask, &b);
    if (status == TRI_OK)
        status = times(step, g, b, &b);
    return status == TRI_OK ? trii_rec2(step, &trii_op_sub, a, b, &grad_in[1]) : status;
}

/* in g y: g - exp(y) sum g; in g: gg - sum gg exp(y), in y: -gg exp(y) sum g */
RULE(log_softmax_backward)
{
    trii_vid p = TRII_NO_VALUE, d = TRII_NO_VALUE, sum = TRII_NO_VALUE;
    int64_t mask = INT64_C(1) << node->attrs.i[0];
    tri_status status = trii_rec1(step, &trii_op_exp, trii_node_in(step, node, 1), &p);

    if (status == TRI_OK)
        status = times(step, gg[0], p, &d);
    if (status == TRI_OK && needs[0]) {
        status = sum_along(step, d, mask, &sum);
        if (status == TRI_OK)
            status = trii_rec2(step, &trii_op_sub, gg[0], sum, &grad_in[0]);
    }
    if (status != TRI_OK || !needs[1])
        return status;
    status = sum_along(step, trii_node_in(step, node, 0), mask, &sum);
    if (status == TRI_OK)
        status = times(step, d, sum, &d);
    return status == TRI_OK ? trii_rec1(step, &trii_op_neg, d, &grad_in[1]) : status;
}

/* In g x target w: g (a p - wanted) in each row, g divided by what the mean divides by; of
 * logarithms there is no p. The rows' g a is what wanted sums to: minus the sum of the gradient of
 * nll_loss. */
static tri_status rows_of_softmax(trii_step *step, const trii_node *node, trii_vid gg,
                                  trii_vid *out)
{
    trii_vid in[4], wanted = TRII_NO_VALUE, d = TRII_NO_VALUE;
    trii_attrs attrs = node->attrs;
    tri_status status;

    for (int i = 0; i < 4; i++)
        in[i] = trii_node_in(step, node, i);
    attrs.i[2] = 1; /* logarithms */
    status = trii_record_values(step, &trii_op_cross_entropy_backward, in, 4, &attrs, &wanted);
    if (status == TRI_OK)
        status = sum_along(step, wanted, 1 << 1, &wanted);
    if (status == TRI_OK)
        status = trii_rec1(step, &trii_op_neg, wanted, &wanted);
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = 1;
    if (status == TRI_OK)
        status = trii_record_values(step, &trii_op_softmax, &in[1], 1, &attrs, &d);
    if (status == TRI_OK)
        status =
            trii_record_values(step, &trii_op_softmax_backward, (trii_vid[]){gg, d}, 2, &attrs, &d);
    return status == TRI_OK ? times(step, d, wanted, out) : status;
}

RULE(cross_entropy_backward)
{
    trii_vid g = trii_node_in(step, node, 0), d = TRII_NO_VALUE;
    tri_status status = TRI_OK;

    if (needs[0]) {
        const trii_type *type = trii_type_of(step, g);
        int64_t rows = type->ndim == 1 ? type->shape[0] : -1; /* of reduction none */

        status = ones_like(step, g, &d);
        if (status == TRI_OK)
            status = again(step, node, d, &d);
        if (status == TRI_OK)
            status = times(step, gg[0], d, &d);
        if (status == TRI_OK && rows >= 0)
            status = sum_along(step, d, 1 << 1, &d);
        if (status == TRI_OK)
            status = rows >= 0 ? trii_rec_reshape(step, d, &rows, 1, &grad_in[0])
                               : trii_rec_sum_to(step, d, trii_type_of(step, g), &grad_in[0]);
    }
    if (status != TRI_OK || !needs[1] || node->attrs.i[2] != 0)
        return status;
    return rows_of_softmax(step, node, gg[0], &grad_in[1]);
}

/* --- sums, parts and rows ------------------------------------------------- */

RULE(sum_to)
{
    const trii_type x = *trii_type_of(step, trii_node_in(step, node, 0));

    (void)needs;
    return trii_rec_expand(step, gg[0], x.shape, x.ndim, &grad_in[0]);
}

/* in g x y: g over the number of equals, where x is the largest */
RULE(amax_backward)
{
    trii_vid share = TRII_NO_VALUE;
    tri_status status;

    if (!needs[0])
        return TRI_OK;
    status = ones_like(step, trii_node_in(step, node, 0), &share);
    if (status == TRI_OK)
        status = again(step, node, share, &share);
    if (status == TRI_OK)
        status = times(step, gg[0], share, &share);
    return status == TRI_OK
               ? trii_record_values(step, &trii_op_sum, &share, 1, &node->attrs, &grad_in[0])
               : status;
}

RULE(slice_backward)
{
    trii_attrs attrs = node->attrs;

    (void)needs;
    attrs.n_i = 3 * trii_type_of(step, gg[0])->ndim;
    return trii_record_values(step, &trii_op_slice, gg, 1, &attrs, &grad_in[0]);
}

RULE(index_select_backward)
{
    trii_vid in[2] = {gg[0], trii_node_in(step, node, 1)};
    trii_attrs attrs;

    (void)needs;
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = node->attrs.i[0];
    return trii_record_values(step, &trii_op_index_select, in, 2, &attrs, &grad_in[0]);
}

/* Which rows of a lookup are this one, beside their columns: [.., 1]. */
static trii_vid rows_equal(trii_composer *c, trii_vid index, int64_t row)
{
    trii_type type = *trii_type_of(c->step, index);
    const trii_type scalar = {.dtype = type.dtype, .device = type.device};
    trii_vid equal =
        trii_compose2(c, &trii_op_eq, index, trii_compose_fill(c, &scalar, (double)row));

    type.shape[type.ndim] = 1; /* the lookup has that dimension, too */
    return trii_compose_reshape(c, equal, type.shape, type.ndim + 1);
}

RULE(embedding_backward)
{
    trii_vid in[2] = {gg[0], trii_node_in(step, node, 1)};
    trii_composer c = {step, TRI_OK};
    trii_attrs attrs;

    (void)needs;
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = -1;
    if (node->attrs.i[0] < 0)
        return trii_record_values(step, &trii_op_embedding, in, 2, &attrs, &grad_in[0]);
    grad_in[0] = trii_compose_masked(&c, trii_compose(&c, &trii_op_embedding, in, 2, &attrs),
                                     rows_equal(&c, in[1], node->attrs.i[0]), false, 0);
    return c.status;
}

/* --- images --------------------------------------------------------------- */

/* The seven numbers of a convolution, and the shape of what a gradient of it gives. */
static tri_status convolution(trii_step *step, const trii_node *node, const trii_graph_op *op,
                              trii_vid a, trii_vid b, const trii_type *shape, trii_vid *out)
{
    trii_vid in[3] = {a, b, TRII_NO_VALUE};
    trii_attrs attrs;

    attrs.n_i = shape != NULL ? 11 : 7;
    attrs.n_f = 0;
    for (int i = 0; i < 7; i++)
        attrs.i[i] = node->attrs.i[i];
    for (int d = 0; d < 4 && shape != NULL; d++)
        attrs.i[7 + d] = shape->shape[d];
    return trii_record_values(step, op, in, shape != NULL ? 2 : 3, &attrs, out);
}

/* in g w. <gg, dx(g, w)> = <conv(gg, w), g> */
RULE(conv_backward_data)
{
    trii_vid g = trii_node_in(step, node, 0), w = trii_node_in(step, node, 1);
    tri_status status = TRI_OK;

    if (needs[0])
        status = convolution(step, node, &trii_op_conv, gg[0], w, NULL, &grad_in[0]);
    if (status == TRI_OK && needs[1])
        status = convolution(step, node, &trii_op_conv_backward_weight, g, gg[0],
                             trii_type_of(step, w), &grad_in[1]);
    return status;
}

/* in g x. <gg, dw(g, x)> = <conv(x, gg), g> */
RULE(conv_backward_weight)
{
    trii_vid g = trii_node_in(step, node, 0), x = trii_node_in(step, node, 1);
    tri_status status = TRI_OK;

    if (needs[0])
        status = convolution(step, node, &trii_op_conv, x, gg[0], NULL, &grad_in[0]);
    if (status == TRI_OK && needs[1])
        status = convolution(step, node, &trii_op_conv_backward_data, g, gg[0],
                             trii_type_of(step, x), &grad_in[1]);
    return status;
}
