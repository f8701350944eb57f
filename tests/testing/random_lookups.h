/*
 * random_lookups.h - for random_graph.h: operations that look elements up, in places that are
 * parameters or come from other values, and losses instead of means at the end.
 *
 *     g.more = random_lookup;
 *     g.end = random_loss;
 */
#ifndef TEST_RANDOM_LOOKUPS_H
#define TEST_RANDOM_LOOKUPS_H

#include "testing/random_graph.h"

/* Integers below n (which is not 0) as random_graph_param. Some are `other`, where that is not -1:
 * a target that is ignored. */
static inline tri_tensor *random_graph_index(random_graph *g, const int64_t *shape, int ndim,
                                             int64_t n, int64_t other)
{
    int64_t numel = 1, *data;
    tri_tensor *tensor;

    for (int d = 0; d < ndim; d++)
        numel *= shape[d];
    if (g->next_param < g->n_params) { /* keep the generator in step */
        g->state += (uint64_t)numel * UINT64_C(0x9e3779b97f4a7c15);
        return g->params[g->next_param++];
    }
    data = calloc((size_t)numel + 1, sizeof(*data));
    for (int64_t i = 0; i < numel; i++) {
        uint64_t word = random_graph_word(g);

        data[i] = other != -1 && word >> 60 == 0 ? other : (int64_t)(word % (uint64_t)n);
    }
    tensor = tri_tensor_from(shape, ndim, TRI_DTYPE_I64, data);
    free(data);
    g->params[g->n_params++] = tensor;
    g->next_param++;
    return tensor;
}

static inline tri_tensor *random_graph_rows(random_graph *g, tri_tensor *x)
{
    const int64_t rows = tri_tensor_size(x, 0), cols = tri_tensor_size(x, 1);
    const tri_embedding_options padded = {.padding_idx = TRI_SET(1)};
    bool padding = random_graph_below(g, 2) != 0;
    tri_tensor *w, *index;

    if (tri_tensor_ndim(x) != 2 || rows < 2)
        return tri_neg(x);
    if (random_graph_below(g, 2) != 0)
        return tri_embedding(random_graph_index(g, &rows, 1, rows, -1), x,
                             padding ? &padded : NULL);
    w = random_graph_param(g, (const int64_t[]){5, cols}, 2, -0.5, 1, true);
    index = random_graph_index(g, &rows, 1, 5, -1);
    return tri_add(x, tri_embedding(index, w, padding ? &padded : NULL));
}

/* Has as many dimensions as x, and of channels as many. */
static inline tri_tensor *random_lookup(random_graph *g, tri_tensor *x)
{
    int ndim = tri_tensor_ndim(x), d = random_graph_below(g, ndim);
    int64_t size = tri_tensor_size(x, d), shape[TRI_MAX_DIMS], n;
    tri_tensor *index = NULL, *top;

    for (int k = 0; k < ndim; k++)
        shape[k] = tri_tensor_size(x, k);
    if (tri_tensor_numel(x) == 0)
        return tri_neg(x);
    n = d == 1 && ndim == 4 ? size : 1 + random_graph_below(g, (int)(size < 64 ? size : 64));
    switch (random_graph_below(g, 10)) {
    case 0:
        return tri_index_select(x, d, random_graph_index(g, &n, 1, size, -1));
    case 1:
        shape[d] = n;
        return tri_gather_along(x, d, random_graph_index(g, shape, ndim, size, -1));
    case 2: /* all, and only some of the source */
        return tri_scatter_add(x, d, random_graph_index(g, shape, ndim, size, -1), tri_tanh(x));
    case 3:
        shape[d] = n;
        return tri_scatter_add(tri_neg(x), d, random_graph_index(g, shape, ndim, size, -1), x);
    case 4:
        return tri_topk(x, n, d, random_graph_below(g, 2) != 0, NULL);
    case 5: /* and where they were */
        top = tri_topk(x, n, d, random_graph_below(g, 2) != 0, &index);
        return tri_add(top, tri_gather_along(tri_sin(x), d, index));
    case 6:
        return tri_where(tri_gt(x, tri_full(NULL, 0, 0, g->dtype)), x, tri_mul_scalar(x, 0.5));
    case 7:
        return tri_sub(x, tri_gather_along(x, d, tri_argmax(x, d, true)));
    case 8:
        top = tri_add_scalar(tri_mul_scalar(tri_tanh(x), 0.5), 1);
        return size > 32 ? top : tri_mul(x, tri_tanh(tri_prod(top, (const int64_t[]){d}, 1, true)));
    default:
        return random_graph_rows(g, x);
    }
}

static inline tri_tensor *random_class_loss(random_graph *g, tri_tensor *x, tri_reduction reduction)
{
    const int64_t rows = tri_tensor_size(x, 0), classes = tri_tensor_size(x, 1);
    tri_tensor *target = random_graph_index(g, &rows, 1, classes, rows < 8 ? -1 : -100);
    tri_tensor *weight = NULL;

    if (random_graph_below(g, 2) != 0)
        weight = random_graph_param(g, &classes, 1, 0.5, 1, false);
    if (random_graph_below(g, 2) != 0)
        return tri_nll_loss(tri_log_softmax(x, 1), target,
                            &(tri_nll_loss_options){.weight = weight, .reduction = reduction});
    return tri_cross_entropy(
        x, target,
        &(tri_cross_entropy_options){.weight = weight,
                                     .label_smoothing = random_graph_below(g, 2) * 0.125,
                                     .reduction = reduction});
}

static inline tri_tensor *random_pair_loss(random_graph *g, tri_tensor *x, tri_reduction reduction)
{
    const tri_pair_loss_options opt = {.reduction = reduction},
                                batchmean = {.reduction = TRI_REDUCTION_BATCHMEAN};
    int64_t shape[TRI_MAX_DIMS];
    int ndim = tri_tensor_ndim(x), kind = random_graph_below(g, 8);
    tri_tensor *y; /* has a gradient of the first four */

    for (int d = 0; d < ndim; d++)
        shape[d] = tri_tensor_size(x, d);
    y = random_graph_param(g, shape, ndim, 0, 1, kind < 4);
    switch (kind) {
    case 0:
        return tri_mse_loss(x, y, &opt);
    case 1:
        return tri_l1_loss(x, y, &opt);
    case 2:
        return tri_smooth_l1_loss(
            x, y, &(tri_smooth_l1_loss_options){.beta = TRI_SET(0.75), .reduction = reduction});
    case 3:
        return tri_bce_with_logits_loss(x, y, &(tri_bce_loss_options){.reduction = reduction});
    case 4:
        return tri_bce_loss(tri_sigmoid(x), y, &(tri_bce_loss_options){.reduction = reduction});
    case 5:
        return tri_kl_div(tri_log_softmax(x, 1), y, &opt);
    case 6:
        return tri_kl_div(tri_log_softmax(x, 1), y, &batchmean);
    default:
        return tri_bce_with_logits_loss(
            x, y, &(tri_bce_loss_options){.weight = y, .reduction = reduction});
    }
}

static inline tri_tensor *random_loss(random_graph *g, tri_tensor *x)
{
    int kind = random_graph_below(g, 4);
    tri_reduction reduction = kind < 2    ? TRI_REDUCTION_MEAN
                              : kind == 2 ? TRI_REDUCTION_SUM
                                          : TRI_REDUCTION_NONE;
    int64_t numel = tri_tensor_numel(x);
    tri_tensor *loss;

    if (numel == 0)
        return tri_sum(x, NULL, 0, false);
    if (tri_tensor_ndim(x) == 2 && random_graph_below(g, 2) != 0)
        loss = random_class_loss(g, x, reduction);
    else
        loss = random_pair_loss(g, x, reduction);
    if (reduction == TRI_REDUCTION_NONE)
        loss = tri_mean(loss, NULL, 0, false);
    return reduction == TRI_REDUCTION_SUM ? tri_mul_scalar(loss, 1.0 / (double)numel) : loss;
}

#endif
