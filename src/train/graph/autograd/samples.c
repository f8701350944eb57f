/*
 * samples.c - how many samples a loss is the mean of, by which replicas are weighted. Called by
 * backward.c.
 *
 * The operation that took the mean says so, wherever it is below the loss: that of a loss function
 * rather than a plain tri_mean, and of several the one nearest to the loss. A mean of parameters
 * alone is a penalty and has no samples, and neither has a sum: where nothing else is found, ranks
 * count equally.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "train/graph/autograd/backward.h"
#include "train/graph/ops/table.h"

static bool is_reached(const trii_node *node, const int32_t *reached)
{
    for (int o = 0; o < node->n_out; o++) {
        if (reached[node->first_out + o] == TRII_NO_VALUE)
            return true;
    }
    return false;
}

/* Samples under this node's mean; -1 = it is not a mean. */
static int64_t samples_of(const trii_step *s, const trii_node *node)
{
    const trii_type *types[8] = {NULL};

    if (node->op->samples == NULL)
        return -1;
    for (int i = 0; i < node->n_in && i < 8; i++) {
        trii_vid in = s->in_ids[node->first_in + i];

        types[i] = in != TRII_NO_VALUE ? &s->values[in].type : NULL;
    }
    return node->op->samples(types, &node->attrs);
}

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

    return tensor != NULL && (tensor->is_parameter || tensor->grad_hook != NULL);
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

/* The mean of a loss function, or a mean that ends one (trii_rec_loss). */
static bool is_loss(const trii_node *node)
{
    return node->op->is_loss || (node->op == &trii_op_mean && node->attrs.n_i > 2);
}

/* Searches the losses, or (with from_data) the plain means. */
static int64_t look(const trii_step *s, int32_t last_node, const int32_t *reached,
                    const int32_t *from_data, int32_t *node_out)
{
    int64_t found = -1;
    int32_t at = -1;

    for (int32_t n = last_node; n >= 0; n--) {
        const trii_node *node = &s->nodes[n];
        int64_t rows;

        if (!node->requires_grad || is_loss(node) != (from_data == NULL) ||
            !is_reached(node, reached) ||
            (from_data != NULL && from_data[s->in_ids[node->first_in]] == 0))
            continue;
        rows = samples_of(s, node);
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
static int64_t count(const trii_step *s, int32_t last_node, const int32_t *reached,
                     int32_t *scratch, int32_t *node_out)
{
    int64_t found = look(s, last_node, reached, NULL, node_out);

    if (found >= 0)
        return found;
    mark_data(s, last_node, scratch);
    return look(s, last_node, reached, scratch, node_out);
}

void trii_samples_go_elsewhere(trii_step *s, int32_t last_node, const int32_t *reached,
                               int32_t *scratch, int64_t known)
{
    trii_autograd_state *own = trii_autograd_state_of(s->recorder);
    int32_t node;
    int64_t found = known >= 0 ? known : count(s, last_node, reached, scratch, &node);

    if (own != NULL)
        own->samples_elsewhere += found >= 0 ? found : 1;
}

int64_t trii_samples_take(trii_step *s)
{
    trii_autograd_state *own = s->recorder->floors[TRII_FLOOR_AUTOGRAD].state;
    int64_t samples = own != NULL ? own->samples_elsewhere : 0;

    if (own != NULL)
        own->samples_elsewhere = 0;
    return samples;
}

tri_status trii_samples_under(trii_step *s, int32_t last_node, const int32_t *reached,
                              int32_t *scratch, trii_samples *samples_out)
{
    trii_samples under = {.divisor = TRII_NO_VALUE};
    int32_t node = -1;
    tri_status status = TRI_OK;

    under.count = count(s, last_node, reached, scratch, &node);
    if (under.count < 0)
        under.count = 1;
    else if (s->nodes[node].op->divisor != NULL) {
        status = trii_step_reserve(s, TRII_RESERVE_NODES);
        if (status == TRI_OK)
            status = s->nodes[node].op->divisor(s, &s->nodes[node], &under.divisor);
    }
    *samples_out = under;
    return status;
}
