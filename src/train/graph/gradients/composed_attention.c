/*
 * composed_attention.c - the gradient of attention for create_graph: with the [T, S] matrix of
 * weights, which has to fit into memory here.
 *
 * p = softmax(scale q k' + mask), 0 for a query that may look at nothing, r = p where kept (divided
 * by the share that is kept), else 0, y = r v. So dv = r' g, dp = (g v') where kept, ds = the
 * gradient of softmax, dq = scale ds k, dk = scale ds' q.
 */
#include <math.h>

#include "train/graph/gradients/composed.h"

typedef struct attention {
    trii_composer c;
    const trii_node *node;
    trii_type q, k, v; /* their types; groups: how many heads of q share one of k */
    int64_t groups;
    trii_type weights; /* [B, H, T, S] */
    trii_vid kept;     /* of their type: 0, or what a kept weight is multiplied by; NO_VALUE: 1 */
} attention;

static trii_vid product(attention *a, trii_vid x, trii_vid y, bool transpose_x, bool transpose_y)
{
    trii_attrs attrs;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = transpose_x;
    attrs.i[1] = transpose_y;
    return trii_compose(&a->c, &trii_op_matmul, (trii_vid[]){x, y}, 2, &attrs);
}

/* [B, H / groups, S, D] as [B, H, S, D]. */
static trii_vid shared_out(attention *a, trii_vid x, const trii_type *type)
{
    const int64_t *s = type->shape;
    int64_t one[5] = {s[0], s[1], 1, s[2], s[3]}, all[5] = {s[0], s[1], a->groups, s[2], s[3]};
    int64_t flat[4] = {s[0], s[1] * a->groups, s[2], s[3]};

    if (a->groups == 1)
        return x;
    x = trii_compose_expand(&a->c, trii_compose_reshape(&a->c, x, one, 5), all, 5);
    return trii_compose_reshape(&a->c, x, flat, 4);
}

/* And the gradient of that. */
static trii_vid summed_up(attention *a, trii_vid x, const trii_type *type)
{
    const int64_t *s = type->shape;
    int64_t all[5] = {s[0], s[1], a->groups, s[2], s[3]};

    if (a->groups == 1)
        return x;
    x = trii_compose_sum(&a->c, trii_compose_reshape(&a->c, x, all, 5), 1 << 2, 1);
    return trii_compose_reshape(&a->c, x, s, 4);
}

/* The dropout mask is not stored. With equal scores and the unit matrix for values, the operation
 * itself gives the weights that it keeps. */
static trii_vid find_kept(attention *a, trii_vid key)
{
    const int64_t *s = a->weights.shape;
    trii_type q = a->weights, k = a->weights, unit = a->weights;
    trii_vid in[5] = {TRII_NO_VALUE, TRII_NO_VALUE, TRII_NO_VALUE, TRII_NO_VALUE, key};
    trii_attrs attrs;
    trii_vid seen;

    q.shape[3] = k.shape[3] = 1;
    k.shape[2] = s[3];
    in[0] = trii_compose_fill(&a->c, &q, 0);
    in[1] = trii_compose_fill(&a->c, &k, 0);
    unit.ndim = 2;
    unit.shape[0] = unit.shape[1] = s[3];
    trii_fill_attrs(&unit, 0, &attrs);
    attrs.n_f = 0;
    in[2] = trii_compose(&a->c, &trii_op_eye, NULL, 0, &attrs);
    in[2] = trii_compose_expand(&a->c, in[2], (int64_t[]){s[0], s[1], s[3], s[3]}, 4);
    attrs.n_i = 1;
    attrs.n_f = 2;
    attrs.i[0] = false;
    attrs.f[0] = 1;
    attrs.f[1] = a->node->attrs.f[1];
    seen = trii_compose(&a->c, a->node->op, in, 5, &attrs);
    q.ndim = 0;
    seen = trii_compose2(&a->c, &trii_op_ne, seen, trii_compose_fill(&a->c, &q, 0));
    return trii_compose_number(&a->c, &trii_op_mul_scalar,
                               trii_compose_cast(&a->c, seen, a->weights.dtype),
                               1 / (1 - a->node->attrs.f[1]));
}

static trii_vid keep(attention *a, trii_vid x)
{
    return a->kept != TRII_NO_VALUE ? trii_compose2(&a->c, &trii_op_mul, x, a->kept) : x;
}

/* The scores with mask and causality applied. */
static trii_vid masked(attention *a, trii_vid scores, trii_vid mask)
{
    if (mask != TRII_NO_VALUE && a->c.status == TRI_OK) {
        if (trii_type_of(a->c.step, mask)->dtype == TRI_DTYPE_BOOL)
            scores = trii_compose_masked(&a->c, scores, mask, true, -(double)INFINITY);
        else
            scores = trii_compose2(&a->c, &trii_op_add, scores,
                                   trii_compose_cast(&a->c, mask, a->weights.dtype));
    }
    if (a->node->attrs.i[0] != 0) {
        trii_type all = a->weights;
        trii_attrs attrs;
        trii_vid past;

        all.ndim = 2;
        all.dtype = TRI_DTYPE_BOOL;
        all.shape[0] = a->weights.shape[2];
        all.shape[1] = a->weights.shape[3];
        past = trii_compose_fill(&a->c, &all, 1);
        attrs.n_i = 2;
        attrs.n_f = 0;
        attrs.i[0] = attrs.i[1] = 0;
        past = trii_compose(&a->c, &trii_op_tril, &past, 1, &attrs);
        scores = trii_compose_masked(&a->c, scores, past, true, -(double)INFINITY);
    }
    return scores;
}

/* p. Only with a mask can a query have nothing to look at: its scores are made equal, so that no
 * softmax of -inf alone is taken, and its weights 0. */
static trii_vid weights_of(attention *a, trii_vid q, trii_vid k, trii_vid mask)
{
    trii_type lowest = {.dtype = a->weights.dtype, .device = a->weights.device};
    const int64_t *s = a->weights.shape;
    trii_vid scores = trii_compose_number(&a->c, &trii_op_mul_scalar, product(a, q, k, false, true),
                                          a->node->attrs.f[0]);
    trii_vid blind = TRII_NO_VALUE, p;
    trii_attrs attrs;

    scores = masked(a, scores, mask);
    if (mask != TRII_NO_VALUE) {
        blind = trii_compose_reshape(&a->c, a->node->first_out + 1,
                                     (int64_t[]){s[0], s[1], s[2], 1}, 4);
        blind = trii_compose2(&a->c, &trii_op_eq, blind,
                              trii_compose_fill(&a->c, &lowest, -(double)INFINITY));
        scores = trii_compose_masked(&a->c, scores, blind, false, 0);
    }
    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = 3;
    p = trii_compose(&a->c, &trii_op_softmax, &scores, 1, &attrs);
    return blind != TRII_NO_VALUE ? trii_compose_masked(&a->c, p, blind, false, 0) : p;
}

static trii_vid scores_gradient(attention *a, trii_vid dp, trii_vid p)
{
    trii_attrs attrs;
    trii_vid d;

    attrs.n_i = 1;
    attrs.n_f = 0;
    attrs.i[0] = 3;
    d = trii_compose(&a->c, &trii_op_softmax_backward, (trii_vid[]){dp, p}, 2, &attrs);
    return trii_compose_number(&a->c, &trii_op_mul_scalar, d, a->node->attrs.f[0]);
}

static attention attention_of(trii_step *step, const trii_node *node)
{
    attention a = {.c = {step, TRI_OK}, .node = node, .kept = TRII_NO_VALUE};

    trii_type_copy(&a.q, trii_type_of(step, trii_node_in(step, node, 0)));
    trii_type_copy(&a.k, trii_type_of(step, trii_node_in(step, node, 1)));
    trii_type_copy(&a.v, trii_type_of(step, trii_node_in(step, node, 2)));
    a.groups = a.k.shape[1] > 0 ? a.q.shape[1] / a.k.shape[1] : 1;
    trii_type_copy(&a.weights, &a.q);
    a.weights.dtype = trii_compose_dtype(&a.q);
    a.weights.shape[3] = a.k.shape[2];
    return a;
}

tri_status trii_composed_attention(trii_step *step, const trii_node *node, trii_vid g,
                                   const bool *needs, trii_vid *grad_in)
{
    attention a = attention_of(step, node);
    tri_dtype dtype = a.weights.dtype;
    trii_vid key = trii_node_in(step, node, 4), q, k, v, p, d;

    g = trii_compose_cast(&a.c, g, dtype);
    q = trii_compose_cast(&a.c, trii_node_in(step, node, 0), dtype);
    k = shared_out(&a, trii_compose_cast(&a.c, trii_node_in(step, node, 1), dtype), &a.k);
    v = shared_out(&a, trii_compose_cast(&a.c, trii_node_in(step, node, 2), dtype), &a.v);
    if (key != TRII_NO_VALUE)
        a.kept = find_kept(&a, key);
    p = weights_of(&a, q, k, trii_node_in(step, node, 3));
    if (needs[2]) {
        d = summed_up(&a, product(&a, keep(&a, p), g, true, false), &a.v);
        grad_in[2] = trii_compose_cast(&a.c, d, a.v.dtype);
    }
    if (!needs[0] && !needs[1])
        return a.c.status;
    d = scores_gradient(&a, keep(&a, product(&a, g, v, false, true)), p);
    if (needs[0])
        grad_in[0] = trii_compose_cast(&a.c, product(&a, d, k, false, false), a.q.dtype);
    if (needs[1]) {
        d = summed_up(&a, product(&a, d, q, true, false), &a.k);
        grad_in[1] = trii_compose_cast(&a.c, d, a.k.dtype);
    }
    return a.c.status;
}
