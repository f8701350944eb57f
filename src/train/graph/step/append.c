/*
 * append.c - appends nodes to a step, and what identifies them to the key of the pending segment.
 *
 * Training repeats itself. The arrays of a step still hold what the last step recorded. As long as
 * this step is the same from its beginning (old_nodes of the recorder; 0 from the first difference
 * on), the next node is there already, checked, with the types of its results, and only what may
 * differ is written. "The same" means equal operations, operands, integer attributes, autocast
 * type, and types of the tensors that are read, so that shape rules would give the same result.
 */
#include "base/dtype.h"
#include "train/graph/step/recorder.h"

/* How the plan key names a value: as the k-th input or the k-th result of the segment, so that
 * equal programs have equal keys wherever in a step they are. There must be room for one more
 * input. */
static uint32_t edge_code(trii_recorder *r, trii_vid id)
{
    trii_value *value;

    if (id == TRII_NO_VALUE)
        return TRII_WORD_ABSENT;
    value = &r->step.values[id];
    if (value->state == TRII_VALUE_PENDING)
        return (uint32_t)value->slot;
    if (value->slot_segment != r->pending.number) {
        value->slot_segment = r->pending.number;
        value->slot = r->pending.n_inputs;
        r->pending.inputs[r->pending.n_inputs++] = id;
    }
    return TRII_WORD_INPUT | (uint32_t)value->slot;
}

/* The same of an operand, which is read. */
static inline uint32_t operand_code(trii_recorder *r, trii_vid id, bool *requires_grad_io)
{
    if (id == TRII_NO_VALUE)
        return TRII_WORD_ABSENT;
    r->step.values[id].used = true;
    *requires_grad_io |= r->step.values[id].requires_grad;
    return edge_code(r, id);
}

/* Also sets *requires_grad_io if an operand requires a gradient. */
static tri_status append_key(trii_recorder *r, const trii_node *node, const trii_vid *in,
                             bool *requires_grad_io)
{
    int n_in = node->n_in, n_i = node->attrs.n_i;
    size_t n = 5 + (size_t)n_in / 2 + (size_t)n_i;
    uint64_t *w;
    tri_status status = TRI_OK;

    if (TRII_UNLIKELY(r->pending.n_key + n > r->pending.cap_key))
        status = trii_key_reserve(r, n);
    if (status != TRI_OK)
        return status;
    if (r->pending.n_inputs + n_in > r->pending.cap_inputs) {
        void *array = r->pending.inputs;

        status = trii_grow(&array, &r->pending.cap_inputs, r->pending.n_inputs + n_in,
                           sizeof(*r->pending.inputs), "inputs of a segment");
        r->pending.inputs = array;
        if (status != TRI_OK)
            return status;
    }
    w = r->pending.key + r->pending.n_key;
    *w++ = (uint64_t)(uintptr_t)node->op ^ ((uint64_t)n_in << 48) ^ ((uint64_t)n_i << 56) ^
           ((uint64_t)(node->region < 0 || node->part != 0) << 55);
    if (TRII_UNLIKELY(node->region < 0 || node->part != 0))
        *w++ = (uint64_t)node->part << 32 | (uint64_t)(node->region < 0 ? -node->region : 0);
    for (int i = 0; i < n_in; i += 2) {
        uint64_t low = operand_code(r, in[i], requires_grad_io);
        uint64_t high = i + 1 < n_in ? operand_code(r, in[i + 1], requires_grad_io) : 0;

        *w++ = low | (high << 32);
    }
    for (int i = 0; i < n_i; i++)
        *w++ = (uint64_t)node->attrs.i[i];
    r->pending.n_key = (size_t)(w - r->pending.key);
    return TRI_OK;
}

/* What a host operation adds to the key beside its operands, since its results do not follow from
 * them. */
static tri_status append_host_key(trii_recorder *r, const trii_node *node, bool like_operands)
{
    const trii_step *s = &r->step;
    const trii_vid *after = s->in_ids + node->first_in + node->n_in;
    tri_status status =
        trii_key_reserve(r, 4 + (size_t)node->n_after + (size_t)node->n_out * (1 + TRI_MAX_DIMS));
    uint64_t *w = r->pending.key + r->pending.n_key;

    if (status != TRI_OK)
        return status;
    *w++ = (uint64_t)(uintptr_t)node->host->kind;
    *w++ = node->host->identity;
    *w++ = node->host->group;
    *w++ = (uint64_t)node->host->any_layout | (uint64_t)like_operands << 1 |
           (uint64_t)node->n_after << 8 | (uint64_t)node->n_out << 16;
    for (int i = 0; i < node->n_after; i++)
        *w++ = edge_code(r, after[i]);
    for (int o = 0; o < node->n_out && !like_operands; o++) {
        const trii_type *type = &s->values[node->first_out + o].type;

        *w++ = (uint64_t)type->dtype | (uint64_t)type->ndim << 8 |
               (uint64_t)(uint32_t)type->device << 32;
        for (int d = 0; d < type->ndim; d++)
            *w++ = (uint64_t)type->shape[d];
    }
    r->pending.n_key = (size_t)(w - r->pending.key);
    return TRI_OK;
}

/* What each step sets in a node, whether or not it repeats an earlier step. The node's operation,
 * operands, integers and types of results are there already. */
static tri_status finish_node(trii_step *step, trii_node *node, const trii_attrs *attrs,
                              const trii_host_node *host)
{
    trii_recorder *r = trii_recorder_of(step);
    const trii_vid *in = step->in_ids + node->first_in;
    /* as in a plan, nodes that run at once */
    bool requires_grad = false, keep = r->eager && r->scopes.deferred == 0;
    tri_status status;

    node->site = *r->here;
    for (int i = 0; i < node->attrs.n_f; i++)
        node->attrs.f[i] = attrs->f[i];
    node->differentiated = 0;
    node->region = r->scopes.region;
    node->part = r->scopes.part;
    node->backward = r->scopes.deferred > 0;
    status = append_key(r, node, in, &requires_grad);
    if (TRII_UNLIKELY(host != NULL) && status == TRI_OK)
        status = append_host_key(r, node, host->like_operands);
    if (TRII_UNLIKELY(status != TRI_OK))
        return status;
    node->random_index = node->op->random ? step->random_count++ : 0;
    node->random_seeded = step->n_seeded;
    if (TRII_UNLIKELY(host != NULL)) /* a receive has no operands to take it from */
        requires_grad = host->requires_grad != 0 || (requires_grad && r->scopes.create_graph);
    step->n_in_ids += node->n_in + node->n_after;
    requires_grad = requires_grad && r->scopes.no_grad == 0 &&
                    (trii_node_has_gradient(node) || r->scopes.create_graph);
    node->requires_grad = requires_grad;
    for (int o = 0; o < node->n_out; o++) {
        trii_value *value = trii_value_append(step);

        value->node = step->n_nodes;
        value->output = (int16_t)o;
        value->state = TRII_VALUE_PENDING;
        value->requires_grad =
            requires_grad && value->is_float &&
            (host == NULL || host->requires_grad == 0 || (host->requires_grad >> o & 1) != 0);
        value->keep = keep; /* it could not be kept later */
        value->slot = r->pending.n_ordinal++;
        value->slot_segment = r->pending.number;
    }
    step->n_nodes++;
    return TRI_OK;
}

/* Whether the node of the last step at this place has these operands and integers, and the operands
 * can be read. */
static inline bool same_call(const trii_step *step, const trii_graph_op *op, const trii_vid *in,
                             int n_in, const trii_attrs *attrs)
{
    const trii_node *node = &step->nodes[step->n_nodes];
    const trii_vid *old_in = step->in_ids + step->n_in_ids;
    int n_i = attrs != NULL ? attrs->n_i : 0, n_f = attrs != NULL ? attrs->n_f : 0;

    if (node->op != op || node->n_in != n_in || node->first_out != step->n_values ||
        node->attrs.n_i != n_i || node->attrs.n_f != n_f ||
        node->autocast != trii_autocast_to(&step->recorder->scopes.autocast))
        return false;
    for (int i = 0; i < n_in; i++) {
        if (old_in[i] != in[i] ||
            (in[i] != TRII_NO_VALUE && step->values[in[i]].state >= TRII_VALUE_DROPPED))
            return false;
    }
    for (int i = 0; i < n_i; i++) {
        if (node->attrs.i[i] != attrs->i[i])
            return false;
    }
    return true;
}

static bool same_node(const trii_step *step, const trii_graph_op *op, const trii_vid *in, int n_in,
                      const trii_attrs *attrs, const trii_type *out, int n_out)
{
    if (!same_call(step, op, in, n_in, attrs) || step->nodes[step->n_nodes].n_out != n_out)
        return false;
    for (int o = 0; o < n_out; o++) {
        if (!trii_type_equal(&step->values[step->n_values + o].type, &out[o]))
            return false;
    }
    return true;
}

bool trii_node_repeats(const trii_step *step, const trii_graph_op *op, const trii_vid *in, int n_in,
                       const trii_attrs *attrs)
{
    return step->n_nodes < step->recorder->old_nodes && same_call(step, op, in, n_in, attrs);
}

bool trii_host_repeats(const trii_step *step, const trii_vid *in, int n_in,
                       const trii_host_node *host)
{
    const trii_node *node = &step->nodes[step->n_nodes];
    const trii_vid *old_after = step->in_ids + step->n_in_ids + n_in;

    if (!host->like_operands || !trii_node_repeats(step, &trii_op_host, in, n_in, NULL) ||
        node->host != host->op || node->n_after != host->n_after || !node->like_operands)
        return false;
    for (int i = 0; i < host->n_after; i++) {
        if (old_after[i] != host->after[i])
            return false;
    }
    return true;
}

tri_status trii_host_repeat(trii_step *step, const trii_host_node *host, trii_vid *first_out)
{
    trii_node *node = &step->nodes[step->n_nodes];

    *first_out = node->first_out;
    return finish_node(step, node, NULL, host);
}

tri_status trii_node_repeat(trii_step *step, const trii_attrs *attrs, trii_vid *first_out)
{
    trii_node *node = &step->nodes[step->n_nodes];

    *first_out = node->first_out;
    return finish_node(step, node, attrs, NULL);
}

void trii_leaf_repeats(trii_step *step, const tri_tensor *tensor)
{
    trii_recorder *r = trii_recorder_of(step);
    const trii_value *old = &step->values[step->n_values];

    if (step->n_values >= r->old_values || old->node >= 0 || old->type.device != tensor->device ||
        !trii_type_is_of(&old->type, tensor))
        r->old_nodes = 0;
}

/* A node whose operands and result types are known. */
tri_status trii_node_append(trii_step *step, const trii_graph_op *op, const trii_vid *in, int n_in,
                            const trii_attrs *attrs, const trii_host_node *host,
                            const trii_type *out, int n_out)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_node *node = &step->nodes[step->n_nodes];
    int n_after = host != NULL ? host->n_after : 0;

    if (step->n_nodes < r->old_nodes &&
        (node->n_after != n_after || !same_node(step, op, in, n_in, attrs, out, n_out)))
        r->old_nodes = 0;
    node->op = op;
    node->autocast = (uint8_t)trii_autocast_to(&r->scopes.autocast);
    node->first_in = step->n_in_ids;
    node->n_in = (int16_t)n_in;
    node->n_out = (int16_t)n_out;
    node->n_after = (int16_t)n_after;
    node->first_out = step->n_values;
    node->attrs.n_i = node->attrs.n_f = 0;
    if (attrs != NULL) {
        node->attrs.n_i = attrs->n_i;
        node->attrs.n_f = attrs->n_f;
        for (int i = 0; i < attrs->n_i; i++)
            node->attrs.i[i] = attrs->i[i];
    }
    node->host = host != NULL ? host->op : NULL;
    node->like_operands = host != NULL && host->like_operands;
    for (int i = 0; i < n_in; i++)
        step->in_ids[node->first_in + i] = in[i];
    for (int i = 0; i < n_after; i++)
        step->in_ids[node->first_in + n_in + i] = host->after[i];
    for (int o = 0; o < n_out; o++) {
        trii_value *value = &step->values[node->first_out + o];

        trii_type_copy(&value->type, &out[o]);
        value->is_float = trii_dtype_is_float(out[o].dtype);
    }
    return finish_node(step, node, attrs, host);
}
