/*
 * batch_norm_gradient.c - gradients of batch normalisation, also of that whose statistics are
 * shared between ranks (shared_statistics.h).
 */
#include "train/graph/gradients/composed.h"
#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/ops/batch_norm.h"

/* The gradient operation: outputs dx, dweight, dbias; those of absent ones are not asked for. */
static tri_status record_backward(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                                  int n_in, const trii_node *node, const bool *needs,
                                  trii_vid *grad_in)
{
    trii_vid first = TRII_NO_VALUE;
    tri_status status = trii_record_values(step, op, in, n_in, &node->attrs, &first);

    for (int i = 0; i < 3 && status == TRI_OK; i++) {
        if (needs[i])
            grad_in[i] = first + i;
    }
    return status;
}

/* The statistics to normalise by. mean, var: [C], constants; NO_VALUE: those of the batch, and of
 * the batches that the exchange reaches (NULL: no other), with `count` [1] values per channel in
 * all. */
typedef struct sources {
    trii_vid mean, var, count;
    double eps;
    const trii_exchange *exchange;
} sources;

/* The gradient with create_graph, as operations that are differentiable themselves. */
static tri_status composed(trii_step *step, const trii_node *node, const sources *by, trii_vid g,
                           const bool *needs, trii_vid *grad_in)
{
    const trii_type *x = trii_type_of(step, trii_node_in(step, node, 0));
    trii_norm_rule rule = {.centred = true,
                           .eps = by->eps,
                           .mean = by->mean,
                           .var = by->var,
                           .exchange = by->exchange};
    trii_composer c = {step, TRI_OK};

    rule.shared = (trii_type){.dtype = trii_compose_dtype(x), .ndim = x->ndim, .device = x->device};
    for (int d = 0; d < x->ndim; d++) {
        rule.shared.shape[d] = d == 1 ? x->shape[1] : 1;
        rule.mask |= d != 1 ? INT64_C(1) << d : 0;
    }
    if (rule.mean != TRII_NO_VALUE) {
        rule.mean = trii_compose_reshape(&c, rule.mean, rule.shared.shape, x->ndim);
        rule.var = trii_compose_reshape(&c, rule.var, rule.shared.shape, x->ndim);
    }
    rule.count = by->count;
    return c.status == TRI_OK ? trii_composed_norm(step, node, &rule, g, needs, grad_in) : c.status;
}

tri_status trii_grad_batch_norm(trii_step *step, const trii_node *node, const trii_vid *g,
                                const bool *needs, trii_vid *grad_in)
{
    trii_vid in[5] = {g[0], trii_node_in(step, node, 0), trii_node_in(step, node, 1),
                      node->first_out + 1, node->first_out + 2};

    if (g[0] == TRII_NO_VALUE) /* only the statistics were used, and those carry no gradient */
        return TRI_OK;
    if (trii_step_creates_graph(step))
        return composed(step, node,
                        &(sources){.mean = TRII_NO_VALUE,
                                   .var = TRII_NO_VALUE,
                                   .count = TRII_NO_VALUE,
                                   .eps = node->attrs.f[1]},
                        g[0], needs, grad_in);
    return record_backward(step, &trii_op_batch_norm_backward, in, 5, node, needs, grad_in);
}

tri_status trii_grad_batch_norm_eval(trii_step *step, const trii_node *node, const trii_vid *g,
                                     const bool *needs, trii_vid *grad_in)
{
    trii_vid in[5] = {g[0], trii_node_in(step, node, 0), trii_node_in(step, node, 1),
                      trii_node_in(step, node, 3), trii_node_in(step, node, 4)};

    if (trii_step_creates_graph(step))
        return composed(
            step, node,
            &(sources){
                .mean = in[3], .var = in[4], .count = TRII_NO_VALUE, .eps = node->attrs.f[1]},
            g[0], needs, grad_in);
    return record_backward(step, &trii_op_batch_norm_eval_backward, in, 5, node, needs, grad_in);
}

tri_status trii_grad_batch_norm_elemt(trii_step *step, const trii_node *node, const trii_vid *g,
                                      const bool *needs, trii_vid *grad_in)
{
    const trii_exchange *exchange = trii_norm_exchange_of(&node->attrs);
    trii_vid x = trii_node_in(step, node, TRII_ELEMT_X),
             w = trii_node_in(step, node, TRII_ELEMT_WEIGHT);
    trii_vid mean = trii_node_in(step, node, TRII_ELEMT_MEAN),
             var = trii_node_in(step, node, TRII_ELEMT_VAR);
    trii_vid count = trii_node_in(step, node, TRII_ELEMT_COUNT);
    trii_vid sums = TRII_NO_VALUE, total = TRII_NO_VALUE;
    trii_attrs attrs = {.n_f = 1, .f = {node->attrs.f[1]}};
    tri_status status;

    if (trii_step_creates_graph(step))
        return composed(step, node,
                        &(sources){.mean = TRII_NO_VALUE,
                                   .var = TRII_NO_VALUE,
                                   .count = count,
                                   .eps = node->attrs.f[1],
                                   .exchange = exchange},
                        g[0], needs, grad_in);
    status = trii_record_values(step, &trii_op_batch_norm_backward_reduce,
                                (trii_vid[]){g[0], x, w, mean, var}, 5, &attrs, &sums);
    for (int i = 1; i < 3 && status == TRI_OK; i++)
        grad_in[i] = needs[i] ? sums + i : TRII_NO_VALUE;
    if (status != TRI_OK || !needs[0])
        return status;
    status = exchange->sum(exchange, step, sums, &total);
    if (status != TRI_OK)
        return status;
    return trii_record_values(step, &trii_op_batch_norm_backward_elemt,
                              (trii_vid[]){g[0], x, w, mean, var, total, count}, 7, &attrs,
                              &grad_in[0]);
}
