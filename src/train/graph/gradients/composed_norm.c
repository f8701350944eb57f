/*
 * composed_norm.c - the gradient of layer, rms and batch normalisation, for create_graph.
 *
 * With d = x - mean (of rms x), r = 1 / sqrt(mean of d^2 + eps), h = d r and u = g w:
 * dx = r (u - mean of u - h mean of u h), without the first mean for rms, and r u where statistics
 * are constants; dw is the sum of g h, db that of g.
 */
#include "train/graph/gradients/composed.h"

/* How many elements share a statistic; 1 if none does, so that empty operands have sums of 0. */
static double count_of(const trii_type *x, int64_t mask)
{
    double n = 1;

    for (int d = 0; d < x->ndim; d++)
        n *= (mask >> d & 1) != 0 ? (double)x->shape[d] : 1;
    return n > 0 ? n : 1;
}

typedef struct norm {
    trii_composer c;
    const trii_norm_rule *rule;
    double count;
    trii_vid g, w, rstd, hat; /* w: NO_VALUE = 1 */
} norm;

static trii_vid mean_of(norm *m, trii_vid a)
{
    const trii_exchange *exchange = m->rule->exchange;
    trii_vid sum = TRII_NO_VALUE;

    if (exchange == NULL)
        return trii_compose_sum(&m->c, a, m->rule->mask, m->count);
    a = trii_compose_sum(&m->c, a, m->rule->mask, 1);
    if (m->c.status == TRI_OK)
        m->c.status = exchange->sum(exchange, m->c.step, a, &sum);
    return trii_compose2(&m->c, &trii_op_div, sum, m->rule->count);
}

static void standardise(norm *m, trii_vid x)
{
    const trii_norm_rule *rule = m->rule;
    trii_vid var = rule->var, mean = rule->mean, centred = x;

    if (rule->centred && mean == TRII_NO_VALUE)
        mean = mean_of(m, x);
    if (rule->centred)
        centred = trii_compose2(&m->c, &trii_op_sub, x, mean);
    if (var == TRII_NO_VALUE)
        var = mean_of(m, trii_compose1(&m->c, &trii_op_square, centred));
    m->rstd = trii_compose1(&m->c, &trii_op_rsqrt,
                            trii_compose_number(&m->c, &trii_op_add_scalar, var, rule->eps));
    m->hat = trii_compose2(&m->c, &trii_op_mul, centred, m->rstd);
}

static trii_vid gradient_of_x(norm *m)
{
    trii_vid u = m->w != TRII_NO_VALUE ? trii_compose2(&m->c, &trii_op_mul, m->g, m->w) : m->g;
    trii_vid d = u;

    if (m->rule->var == TRII_NO_VALUE) {
        trii_vid along = mean_of(m, trii_compose2(&m->c, &trii_op_mul, u, m->hat));

        if (m->rule->centred)
            d = trii_compose2(&m->c, &trii_op_sub, d, mean_of(m, u));
        d = trii_compose2(&m->c, &trii_op_sub, d,
                          trii_compose2(&m->c, &trii_op_mul, m->hat, along));
    }
    return trii_compose2(&m->c, &trii_op_mul, d, m->rstd);
}

/* Of w or b: what was broadcast is summed, in their own shape. */
static trii_vid shared_gradient(norm *m, trii_vid a, const trii_type *like)
{
    return trii_compose_reshape(&m->c, trii_compose_sum_to(&m->c, a, &m->rule->shared), like->shape,
                                like->ndim);
}

tri_status trii_composed_norm(trii_step *step, const trii_node *node, const trii_norm_rule *rule,
                              trii_vid g, const bool *needs, trii_vid *grad_in)
{
    trii_vid x = trii_node_in(step, node, 0), w = trii_node_in(step, node, 1);
    const trii_type *type = trii_type_of(step, x);
    tri_dtype dtype = trii_compose_dtype(type);
    norm m = {
        .c = {step, TRI_OK}, .rule = rule, .count = count_of(type, rule->mask), .w = TRII_NO_VALUE};

    m.g = trii_compose_cast(&m.c, g, dtype);
    standardise(&m, trii_compose_cast(&m.c, x, dtype));
    if (w != TRII_NO_VALUE)
        m.w = trii_compose_reshape(&m.c, w, rule->shared.shape, rule->shared.ndim);
    if (needs[0])
        grad_in[0] = trii_compose_cast(&m.c, gradient_of_x(&m), type->dtype);
    if (needs[1])
        grad_in[1] = shared_gradient(&m, trii_compose2(&m.c, &trii_op_mul, m.g, m.hat),
                                     trii_type_of(step, w));
    if (node->n_in > 2 && needs[2])
        grad_in[2] = shared_gradient(&m, m.g, trii_type_of(step, trii_node_in(step, node, 2)));
    return m.c.status;
}
