/*
 * lstm_gradient.c - the gradient of one layer of an LSTM in one direction.
 */
#include "base/alloc.h"
#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/ops/composer.h"
#include "train/graph/ops/lstm.h"

/* A layer of the step. */
typedef struct layer {
    trii_composer c;
    trii_lstm_sequence s;
    trii_type type; /* of h and c */
    trii_vid w, h0, c0, h, cells;
} layer;

static trii_vid product(layer *l, trii_vid a, trii_vid b, bool transpose_a, bool transpose_b)
{
    trii_attrs attrs;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = transpose_a;
    attrs.i[1] = transpose_b;
    return trii_compose(&l->c, &trii_op_matmul, (trii_vid[]){a, b}, 2, &attrs);
}

static trii_vid narrow(layer *l, trii_vid x, int dim, int64_t start, int64_t n)
{
    trii_vid out = TRII_NO_VALUE;

    if (l->c.status == TRI_OK)
        l->c.status = trii_rec_narrow(l->c.step, x, dim, start, n, &out);
    return out;
}

/* One time step: [N, ..]. */
static trii_vid at_time(layer *l, trii_vid x, int64_t t)
{
    x = narrow(l, x, 0, t, 1);
    if (l->c.status != TRI_OK)
        return x;
    return trii_compose_reshape(&l->c, x,
                                (int64_t[]){l->s.rows, trii_type_of(l->c.step, x)->shape[2]}, 2);
}

static trii_vid as_matrix(layer *l, trii_vid x)
{
    const trii_type type = *trii_type_of(l->c.step, x);

    return trii_compose_reshape(&l->c, x, (int64_t[]){type.shape[0] * type.shape[1], type.shape[2]},
                                2);
}

/* dW = sum over t of da[t]' h[t-1]. */
static trii_vid weight_gradient(layer *l, trii_vid da)
{
    int64_t later = l->s.reverse ? 0 : 1, earlier = 1 - later, n = l->s.steps - 1;
    trii_vid sum = TRII_NO_VALUE, first;

    if (n > 0) {
        trii_vid a = narrow(l, da, 0, later, n), h = narrow(l, l->h, 0, earlier, n);

        if (l->c.status == TRI_OK)
            sum = product(l, as_matrix(l, a), as_matrix(l, h), true, false);
    }
    if (l->h0 != TRII_NO_VALUE) {
        first = product(l, at_time(l, da, trii_lstm_time(&l->s, 0)), l->h0, true, false);
        sum = n > 0 ? trii_compose2(&l->c, &trii_op_add, sum, first) : first;
    } else if (n == 0 && l->c.status == TRI_OK) {
        const trii_type type = *trii_type_of(l->c.step, l->w);

        l->c.status = trii_rec_zeros(l->c.step, &type, &sum);
    }
    return sum;
}

/* --- the same with create_graph: operations that have gradients ----------- */

static trii_vid joined(layer *l, trii_vid *parts, int64_t n, int dim)
{
    trii_vid out = TRII_NO_VALUE;

    if (l->c.status == TRI_OK)
        l->c.status = trii_rec_concat(l->c.step, parts, n, dim, &out);
    return out;
}

/* x[t-1] for all t; first [N, H]: x before the first step, NO_VALUE = zeros. */
static trii_vid delayed(layer *l, trii_vid x, trii_vid first)
{
    int64_t shape[3] = {1, l->s.rows, l->s.hidden}, n = l->s.steps - 1;
    trii_type type = l->type;
    trii_vid parts[2];

    type.shape[0] = 1;
    first = first != TRII_NO_VALUE ? trii_compose_reshape(&l->c, first, shape, 3)
                                   : trii_compose_fill(&l->c, &type, 0);
    if (n == 0)
        return first;
    parts[l->s.reverse] = first;
    parts[!l->s.reverse] = narrow(l, x, 0, l->s.reverse ? 1 : 0, n);
    return joined(l, parts, 2, 0);
}

/* scale x (1 - y) y, or with square: scale x (1 - y^2) */
static trii_vid sloped(layer *l, trii_vid x, trii_vid y, bool square)
{
    trii_vid slope = square ? trii_compose1(&l->c, &trii_op_square, y) : y;

    slope = trii_compose_number(&l->c, &trii_op_mul_scalar, slope, -1);
    slope = trii_compose_number(&l->c, &trii_op_add_scalar, slope, 1);
    if (!square)
        slope = trii_compose2(&l->c, &trii_op_mul, slope, y);
    return trii_compose2(&l->c, &trii_op_mul, x, slope);
}

static trii_vid plus(layer *l, trii_vid a, trii_vid b)
{
    if (a == TRII_NO_VALUE || b == TRII_NO_VALUE)
        return a == TRII_NO_VALUE ? b : a;
    return trii_compose2(&l->c, &trii_op_add, a, b);
}

/* What the gradients of h and c are multiplied by, for all time steps. */
typedef struct factors {
    trii_vid f, h_to_c, h_to_o, c_to[3]; /* c_to: of i, f, g */
} factors;

static factors find_factors(layer *l, trii_vid gx)
{
    trii_vid a = product(l, delayed(l, l->h, l->h0), l->w, false, true), q[4], c;
    factors to;

    a = trii_compose2(&l->c, &trii_op_add, gx, a);
    for (int k = 0; k < 4; k++) {
        q[k] = narrow(l, a, 2, k * l->s.hidden, l->s.hidden);
        q[k] = trii_compose1(&l->c, k == 2 ? &trii_op_tanh : &trii_op_sigmoid, q[k]);
    }
    c = trii_compose1(&l->c, &trii_op_tanh, l->cells);
    to.f = q[1];
    to.h_to_c = sloped(l, q[3], c, true);
    to.h_to_o = sloped(l, c, q[3], false);
    to.c_to[0] = sloped(l, q[2], q[0], false);
    to.c_to[1] = sloped(l, delayed(l, l->cells, l->c0), q[1], false);
    to.c_to[2] = sloped(l, q[0], q[2], true);
    return to;
}

/* The time steps' part of dgx, in `each`; returns dh and dc before the first step. */
static void walk_back(layer *l, trii_vid gx, trii_vid gh, trii_vid gc, trii_vid *each,
                      trii_vid state[2])
{
    factors to = find_factors(l, gx);
    trii_vid dh = TRII_NO_VALUE, dc = TRII_NO_VALUE;

    for (int64_t k = l->s.steps - 1; k >= 0 && l->c.status == TRI_OK; k--) {
        int64_t t = trii_lstm_time(&l->s, k);
        trii_vid da[4];

        dh = plus(l, gh != TRII_NO_VALUE ? at_time(l, gh, t) : TRII_NO_VALUE, dh);
        dc = plus(l, gc != TRII_NO_VALUE ? at_time(l, gc, t) : TRII_NO_VALUE, dc);
        if (dh == TRII_NO_VALUE)
            dh = trii_compose_number(&l->c, &trii_op_mul_scalar, dc, 0);
        dc = plus(l, dc, trii_compose2(&l->c, &trii_op_mul, dh, at_time(l, to.h_to_c, t)));
        for (int q = 0; q < 4; q++)
            da[q] = trii_compose2(&l->c, &trii_op_mul, q < 3 ? dc : dh,
                                  at_time(l, q < 3 ? to.c_to[q] : to.h_to_o, t));
        dc = trii_compose2(&l->c, &trii_op_mul, dc, at_time(l, to.f, t));
        da[0] = joined(l, da, 4, 1);
        dh = product(l, da[0], l->w, false, false);
        each[t] = trii_compose_reshape(&l->c, da[0], (int64_t[]){1, l->s.rows, 4 * l->s.hidden}, 3);
    }
    state[0] = dh;
    state[1] = dc;
}

static trii_vid composed(layer *l, trii_vid gx, trii_vid gh, trii_vid gc, trii_vid state[2])
{
    trii_vid *each = trii_alloc((size_t)l->s.steps, sizeof(*each), "gradients"), all;

    if (each == NULL) {
        l->c.status = TRI_ERR_NO_MEMORY;
        return TRII_NO_VALUE;
    }
    walk_back(l, gx, gh, gc, each, state);
    all = joined(l, each, l->s.steps, 0);
    trii_free(each);
    return all;
}

tri_status trii_grad_lstm_layer(trii_step *step, const trii_node *node, const trii_vid *g,
                                const bool *needs, trii_vid *grad_in)
{
    trii_vid gx = trii_node_in(step, node, 0), first = node->first_out, da;
    trii_vid state[2] = {TRII_NO_VALUE, TRII_NO_VALUE};
    const bool wants_state = needs[2] || needs[3], wants_weight = needs[1];
    const bool wants[2] = {needs[2], needs[3]};
    layer l = {.c = {.step = step, .status = TRI_OK},
               .type = *trii_type_of(step, first),
               .w = trii_node_in(step, node, 1),
               .h0 = trii_node_in(step, node, 2),
               .c0 = trii_node_in(step, node, 3),
               .h = first,
               .cells = first + 1};
    trii_attrs attrs;

    if (g[0] == TRII_NO_VALUE && g[1] == TRII_NO_VALUE)
        return TRI_OK; /* nobody reads h and c */
    l.s = (trii_lstm_sequence){l.type.shape[0], l.type.shape[1], l.type.shape[2],
                               node->attrs.i[0] != 0};
    if (trii_step_creates_graph(step)) {
        da = composed(&l, gx, g[0], g[1], state);
    } else {
        attrs.n_i = 2;
        attrs.n_f = 0;
        attrs.i[0] = l.s.reverse;
        attrs.i[1] = wants_state;
        da = trii_compose(&l.c, &trii_op_lstm_layer_backward,
                          (trii_vid[]){g[0], g[1], l.w, first + 2, l.cells, l.c0}, 6, &attrs);
        state[0] = da + 1;
        state[1] = da + 2;
    }
    grad_in[0] = da;
    if (wants_weight && l.c.status == TRI_OK)
        grad_in[1] = weight_gradient(&l, da);
    for (int k = 0; k < 2; k++) {
        if (wants[k])
            grad_in[2 + k] = state[k];
    }
    return l.c.status;
}
