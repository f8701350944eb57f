/*
 * pooling_gradient.c - gradients of pooling.
 */
#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/ops/composer.h"
#include "train/graph/ops/pooling.h"

static tri_status record_backward(trii_step *step, const trii_graph_op *op, const trii_node *node,
                                  trii_vid g, bool maximum, trii_vid *out)
{
    trii_vid in[2] = {g, trii_node_in(step, node, 0)};
    const trii_type *x = trii_type_of(step, in[1]);
    trii_attrs attrs;

    attrs.n_i = node->attrs.n_i + 2;
    attrs.n_f = 0;
    for (int i = 0; i < node->attrs.n_i; i++)
        attrs.i[i] = node->attrs.i[i];
    attrs.i[attrs.n_i - 2] = x->shape[2];
    attrs.i[attrs.n_i - 1] = x->shape[3];
    return trii_record_values(step, op, in, maximum ? 2 : 1, &attrs, out);
}

/* g is added where the maxima were: that can be differentiated to any order. */
static tri_status composed(trii_step *step, const trii_node *node, trii_vid g, trii_vid *grad_in)
{
    trii_vid x = trii_node_in(step, node, 0), at;
    const trii_type *type = trii_type_of(step, x);
    const int64_t *image = type->shape, *out = trii_type_of(step, g)->shape;
    int64_t flat[3] = {out[0], out[1], out[2] * out[3]};
    trii_type plane = {.dtype = trii_compose_dtype(type),
                       .device = type->device,
                       .ndim = 3,
                       .shape = {image[0], image[1], image[2] * image[3]}};
    trii_composer c = {step, TRI_OK};
    trii_attrs attrs = {.n_i = TRII_POOL_IS_ADAPTIVE + 1};

    for (int k = 0; k < node->attrs.n_i; k++)
        attrs.i[k] = node->attrs.i[k];
    attrs.i[TRII_POOL_IS_ADAPTIVE] = node->attrs.n_i == TRII_POOL_ADAPTIVE;
    at = trii_compose(&c, &trii_op_max_pool_argmax, &x, 1, &attrs);
    at = trii_compose_reshape(&c, at, flat, 3);
    g = trii_compose_reshape(&c, trii_compose_cast(&c, g, plane.dtype), flat, 3);
    if (c.status == TRI_OK)
        c.status = trii_rec_scattered(step, &plane, 2, at, g, &g);
    g = trii_compose_reshape(&c, g, image, 4);
    *grad_in = trii_compose_cast(&c, g, type->dtype);
    return c.status;
}

#define GRADIENT(kind, maximum)                                                                    \
    tri_status trii_grad_##kind(trii_step *step, const trii_node *node, const trii_vid *g,         \
                                const bool *needs, trii_vid *grad_in)                              \
    {                                                                                              \
        (void)needs;                                                                               \
        if ((maximum) && trii_step_creates_graph(step))                                            \
            return composed(step, node, g[0], &grad_in[0]);                                        \
        return record_backward(step, &trii_op_##kind##_backward, node, g[0], maximum,              \
                               &grad_in[0]);                                                       \
    }
GRADIENT(max_pool, true)
GRADIENT(avg_pool, false)
GRADIENT(adaptive_max_pool, true)
GRADIENT(adaptive_avg_pool, false)

/* The gradient of a gradient of a mean over windows is that mean. */
static tri_status mean_again(trii_step *step, const trii_node *node, const trii_graph_op *op,
                             int n_i, trii_vid gg, trii_vid *grad_in)
{
    trii_attrs attrs = node->attrs;

    attrs.n_i = n_i;
    return trii_record_values(step, op, &gg, 1, &attrs, grad_in);
}

/* Second gradients of averages; max pooling composes its first one instead. */
#define SECOND(kind, n_i)                                                                          \
    tri_status trii_grad_##kind##_backward(trii_step *step, const trii_node *node,                 \
                                           const trii_vid *gg, const bool *needs,                  \
                                           trii_vid *grad_in)                                      \
    {                                                                                              \
        (void)needs;                                                                               \
        return mean_again(step, node, &trii_op_##kind, n_i, gg[0], &grad_in[0]);                   \
    }
SECOND(avg_pool, TRII_POOL_WINDOWED)
SECOND(adaptive_avg_pool, TRII_POOL_ADAPTIVE)
