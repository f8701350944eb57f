/*
 * retired.c - see step/retired.h: values that are retired. handle.c makes them again where
 * something reads them all the same: where a tensor is resolved or an operation is recorded.
 *
 * A retired value counts as DROPPED though its node is pending: nothing that is recorded reads it
 * again, and no run keeps it. So do values that lie in its memory or are copies of it in another
 * type or place, since they would keep it, or take as much.
 */
#include "train/graph/step/retired.h"

#include "train/graph/record/record.h"

tri_status trii_value_own(trii_step *step, trii_vid id, tri_tensor *tensor)
{
    trii_value *value = &step->values[id];
    trii_vid before = TRII_NO_VALUE;
    tri_status status = trii_known_set(step, tensor, id, &before);

    if (status != TRI_OK)
        return status;
    value->owner = tri_tensor_ref(tensor);
    value->requires_grad = tensor->requires_grad;
    if (before != TRII_NO_VALUE && step->values[before].owner == tensor)
        value->replaces = trii_value_first(step, before);
    trii_recorder_of(step)->retiring.owned_in = step->generation;
    return TRI_OK;
}

static inline bool is_derived(const trii_node *node)
{
    return node->n_in == 1 && (node->op->op_class == TRII_CLASS_VIEW || node->op == &trii_op_cast ||
                               node->op == &trii_op_to || node->op == &trii_op_copy);
}

static void retire(trii_value *value)
{
    if (value->state != TRII_VALUE_PENDING || value->keep || value->bound != NULL)
        return;
    value->state = TRII_VALUE_DROPPED;
    value->retired = true;
}

static void retire_all(trii_step *step, trii_vid id)
{
    int32_t first = step->values[id].node;

    retire(&step->values[id]);
    if (!step->values[id].retired)
        return;
    for (int32_t n = first + 1; n < step->n_nodes; n++) {
        const trii_node *node = &step->nodes[n];
        trii_vid in = node->n_in > 0 ? trii_node_in(step, node, 0) : TRII_NO_VALUE;

        if (in == TRII_NO_VALUE || !step->values[in].retired || !is_derived(node))
            continue;
        for (int o = 0; o < node->n_out; o++)
            retire(&step->values[node->first_out + o]);
    }
}

void trii_value_retire(trii_step *step, trii_vid id)
{
    trii_retiring *r = &trii_recorder_of(step)->retiring;

    if (r->held == 0)
        retire_all(step, id);
    else if (r->n < TRII_MAX_INPUTS)
        r->due[r->n++] = id;
}

void trii_retire_due(trii_recorder *r)
{
    for (int i = 0; i < r->retiring.n; i++)
        retire_all(&r->step, r->retiring.due[i]);
    r->retiring.n = 0;
}
