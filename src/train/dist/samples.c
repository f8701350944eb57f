/*
 * samples.c - how many samples a loss is the mean of, by which ranks are weighted. Called by
 * backward.c.
 *
 * The operation that took the mean says so (the table below), wherever it is below the loss: that
 * of a loss function rather than a plain tri_mean, and of several the one nearest to the loss. A
 * mean of parameters alone is a penalty and has no samples, and neither has a sum: where nothing
 * else is found, ranks count equally.
 */
#include <stdatomic.h>

#include <trireme/ops_loss.h>

#include "base/log.h"
#include "train/dist/dist_state.h"
#include "comm/group/join/world.h"
#include "train/dist/samples.h"
#include "train/graph/ops/batch_norm.h"
#include "train/graph/ops/own_part.h"
#include "train/graph/ops/table.h"

static bool is_reached(const trii_node *node, const int32_t *reached)
{
    for (int o = 0; o < node->n_out; o++) {
        if (reached[node->first_out + o] == TRII_NO_VALUE)
            return true;
    }
    return false;
}

/* --- the operations ------------------------------------------------------- */

static int64_t rows_of_loss(const trii_type *const *in, const trii_attrs *attrs)
{
    (void)attrs;
    return in[0]->ndim > 0 ? in[0]->shape[0] : 1;
}

static int64_t rows_of_class_loss(const trii_type *const *in, const trii_attrs *attrs)
{
    return attrs->i[TRII_CLASS_LOSS_REDUCTION] == TRI_REDUCTION_MEAN ? in[0]->shape[0] : -1;
}

/* A mean that ends a loss function (trii_rec_loss). */
static bool ends_loss(const trii_attrs *attrs)
{
    return attrs->n_i > 2;
}

/* Means over dimension 0 are over samples; others are a part of the network. */
static int64_t rows_of_mean(const trii_type *const *in, const trii_attrs *attrs)
{
    if (in[0]->ndim == 0 && ends_loss(attrs))
        return 1; /* a loss of one sample */
    return (attrs->i[0] & 1) != 0 && in[0]->ndim > 0 ? in[0]->shape[0] : -1;
}

typedef struct mean {
    const trii_graph_op *op;
    /* How many samples the result is the mean of, -1 = none. */
    int64_t (*rows)(const trii_type *const *in, const trii_attrs *attrs);
    bool by_targets; /* it divides by target_weights: some may be ignored, or weigh differently */
} mean;

static const mean means[] = {
    {&trii_op_mean, rows_of_mean, false},
    {&trii_op_mse_loss, rows_of_loss, false},
    {&trii_op_cross_entropy, rows_of_class_loss, true},
    {&trii_op_nll_loss, rows_of_class_loss, true},
};

static const mean *mean_of(const trii_node *node)
{
    for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
        if (node->op == means[i].op)
            return &means[i];
    }
    return NULL;
}

/* Samples under this node's mean, or -1. */
static int64_t samples_of(const trii_step *s, const trii_node *node, const mean *m)
{
    const trii_type *types[1] = {&s->values[s->in_ids[node->first_in]].type};

    return m->rows(types, &node->attrs);
}

/* --- the search ----------------------------------------------------------- */

static void warn_once(const trii_step *s, int32_t chosen, int64_t rows, int32_t other,
                      int64_t other_rows)
{
    static atomic_bool warned;
    const trii_node *a = &s->nodes[chosen], *b = &s->nodes[other];

    if (atomic_exchange(&warned, true))
        return;
    TRII_LOG(TRII_LOG_WARN, "graph",
             "the loss has means over different numbers of samples: tri_%s at %s:%d over %lld, "
             "tri_%s at %s:%d over %lld; replicas are weighted by the first (tri_backward_of "
             "takes another count)",
             a->op->name, a->site.file != NULL ? a->site.file : "?", a->site.line, (long long)rows,
             b->op->name, b->site.file != NULL ? b->site.file : "?", b->site.line,
             (long long)other_rows);
}

/* An input may require a gradient, too. */
static bool is_parameter(const trii_value *value)
{
    const tri_tensor *tensor = value->leaf != NULL ? value->leaf : value->bound;

    return tensor != NULL && (tensor->is_parameter || tensor->placed != NULL);
}

static bool reads_data(const trii_step *s, const trii_value *value, const int32_t *from_data)
{
    const trii_node *node = value->node >= 0 ? &s->nodes[value->node] : NULL;

    if (is_parameter(value))
        return false;
    if (node == NULL || (node->n_in == 0 && node->op->random)) /* a generator's noise is data */
        return true;
    for (int i = 0; i < node->n_in; i++) {
        trii_vid in = s->in_ids[node->first_in + i];

        if (in != TRII_NO_VALUE && from_data[in] != 0)
            return true;
    }
    return false;
}

/* from_data[v]: the value depends on something that is not a parameter. */
static void mark_data(const trii_step *s, int32_t last_node, int32_t *from_data)
{
    trii_vid end = last_node >= 0 ? s->nodes[last_node].first_out + s->nodes[last_node].n_out : 0;

    for (trii_vid v = 0; v < end; v++)
        from_data[v] = reads_data(s, &s->values[v], from_data);
}

/* The mean of a loss function, or one that ends it. */
static bool is_loss(const trii_node *node, const mean *m)
{
    return m->op != &trii_op_mean || ends_loss(&node->attrs);
}

/* Searches the losses, or (with from_data) the plain means. */
static int64_t look(const trii_step *s, const trii_under *under, const int32_t *from_data,
                    int32_t *node_out)
{
    int64_t found = -1;
    int32_t at = -1;

    for (int32_t n = under->last_node; n >= 0; n--) {
        const trii_node *node = &s->nodes[n];
        const mean *m = node->requires_grad ? mean_of(node) : NULL;
        int64_t rows;

        if (m == NULL || is_loss(node, m) != (from_data == NULL) ||
            !is_reached(node, under->reached) ||
            (from_data != NULL && from_data[s->in_ids[node->first_in]] == 0))
            continue;
        rows = samples_of(s, node, m);
        if (rows < 0 || rows == found)
            continue;
        if (at >= 0) {
            warn_once(s, at, found, n, rows);
            break;
        }
        found = rows;
        at = n;
    }
    *node_out = at;
    return found;
}

/* -1 = there is no mean, and so no node. */
static int64_t count(const trii_step *s, const trii_under *under, int32_t *node_out)
{
    int64_t found = look(s, under, NULL, node_out);

    if (found >= 0)
        return found;
    mark_data(s, under->last_node, under->scratch);
    return look(s, under, under->scratch, node_out);
}

tri_status trii_samples_find(trii_step *s, const trii_under *under, trii_samples *samples_out)
{
    trii_samples found = {.divisor = TRII_NO_VALUE};
    int32_t node = -1;
    tri_status status = TRI_OK;

    found.count = count(s, under, &node);
    if (found.count < 0)
        found.count = 1;
    else if (mean_of(&s->nodes[node])->by_targets) {
        const trii_node *loss = &s->nodes[node];
        const trii_attrs attrs = loss->attrs; /* nodes may move */
        trii_vid in[2] = {trii_node_in(s, loss, 1), trii_node_in(s, loss, 2)};

        status = trii_record_values(s, &trii_op_target_weights, in, 2, &attrs, &found.divisor);
    }
    *samples_out = found;
    return status;
}

/* --- sums over ranks ------------------------------------------------------ */

/* The group over which the gradient of this node is a sum, or NULL. */
static const tri_group *mixed_by(const trii_node *node)
{
    const trii_part_gradient *part = trii_part_gradient_of(node);

    if (node->host != NULL)
        return node->host->kind->mixes != NULL ? node->host->kind->mixes(node->host) : NULL;
    if (node->op == &trii_op_batch_norm_elemt)
        return trii_norm_exchange_of(&node->attrs)->group;
    return part != NULL ? part->group : NULL;
}

bool trii_samples_cross_ranks(const trii_step *s, const trii_under *under, const tri_group *group)
{
    for (int32_t n = under->last_node; n >= 0; n--) {
        const trii_node *node = &s->nodes[n];
        trii_vid in = node->n_in > 0 ? s->in_ids[node->first_in] : TRII_NO_VALUE;

        const tri_group *mixed = mixed_by(node);

        if (mixed != NULL && under->reached[node->first_out] == TRII_NO_VALUE &&
            in != TRII_NO_VALUE && under->reached[in] == TRII_NO_VALUE &&
            trii_group_meets(mixed, group))
            return true;
    }
    return false;
}

/* --- gradients of other workers ------------------------------------------- */

tri_status trii_samples_go_elsewhere(trii_step *s, const trii_under *under, int64_t known)
{
    trii_dist_state *own = trii_dist_state_of(trii_recorder_of(s));
    int32_t node;
    int64_t found = known >= 0 ? known : count(s, under, &node);

    if (own == NULL)
        return TRI_ERR_NO_MEMORY;
    own->samples_elsewhere += found >= 0 ? found : 1;
    return TRI_OK;
}

int64_t trii_samples_take(trii_step *s)
{
    trii_dist_state *own = trii_recorder_of(s)->floors[TRII_FLOOR_DIST].state;
    int64_t samples = own != NULL ? own->samples_elsewhere : 0;

    if (own != NULL)
        own->samples_elsewhere = 0;
    return samples;
}
