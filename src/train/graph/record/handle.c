/*
 * handle.c - a step tensor's `tri_tensor *`: not an address but a number (step/recorder.h).
 *
 * So a handle that outlived its step, or comes from another thread, is recognised and never
 * dereferenced.
 */
#include <stdio.h>
#include <string.h>

#include "train/graph/record/record.h"
#include "train/graph/step/retired.h"
#include "train/graph/step/overlaps.h"
#include "train/graph/step/recorder.h"

tri_tensor *trii_handle(trii_step *step, trii_vid value)
{
    uint64_t word = step->generation << (TRII_INDEX_BITS + 1) | (uint64_t)(uint32_t)value << 1 | 1;

    return (tri_tensor *)(uintptr_t)word; // NOLINT: a handle is no address, see above
}

static TRII_NOINLINE tri_status refuse(const tri_tensor *tensor)
{
    return trii_refuse_handle(trii_handle_generation(tensor));
}

static TRII_NOINLINE tri_status refuse_part(const tri_tensor *tensor)
{
    const trii_held *held = tensor->held;
    trii_type whole = {.dtype = tensor->dtype, .ndim = held->ndim};
    char text[TRII_TYPE_TEXT];

    memcpy(whole.shape, held->shape, sizeof(whole.shape));
    return TRII_FAIL(
        TRI_ERR_UNSUPPORTED,
        "%s%sthis is one rank's part of a parameter, %s, that tri_parallelize has cut: "
        "in a forward only its own module reads it. Leave that layer whole, or, for a "
        "head that shares the table of an embedding, use tri_nn_embedding_scores",
        tensor->name != NULL ? tensor->name : "", tensor->name != NULL ? ": " : "",
        trii_type_text(&whole, text));
}

static TRII_NOINLINE tri_status leaf_create(trii_step *step, tri_tensor *tensor,
                                            trii_vid *value_out)
{
    trii_value *value;
    trii_vid none;
    tri_status status;

    if (TRII_UNLIKELY(tensor->elsewhere != NULL))
        return tensor->elsewhere->resolve(step, tensor, TRII_NO_VALUE, value_out);
    if (tensor->status != TRI_OK)
        return TRII_FAIL(tensor->status, "%s", trii_tensor_why(tensor));
    if (TRII_UNLIKELY(tensor->shares)) {
        status = trii_overlaps_settle(step, tensor);
        if (status != TRI_OK)
            return status;
    }
    status = trii_step_reserve(step, 1);
    if (status == TRI_OK)
        status = trii_known_set(step, tensor, step->n_values, &none);
    if (status != TRI_OK)
        return status;
    trii_leaf_repeats(step, tensor);
    value = trii_value_append(step);
    trii_type_of_tensor(tensor, &value->type);
    value->leaf = tri_tensor_ref(tensor);
    value->requires_grad = tensor->requires_grad;
    *value_out = step->n_values - 1;
    return TRI_OK;
}

/* The same operation on what its operand has become. */
static tri_status repeat(trii_step *step, trii_vid id, trii_vid in, trii_vid *out)
{
    const trii_node *node = &step->nodes[step->values[id].node];
    int output = step->values[id].output, n_out = node->n_out;
    trii_type types[TRII_MAX_OUTPUTS];
    tri_status status;

    for (int o = 0; o < n_out; o++)
        trii_type_copy(&types[o], &step->values[node->first_out + o].type);
    status = trii_node_append(step, node->op, &in, 1, &node->attrs, NULL, types, n_out);
    if (status != TRI_OK)
        return status;
    node = &step->nodes[step->n_nodes - 1];
    *out = node->first_out + output;
    return TRI_OK;
}

tri_status trii_value_renew(trii_step *step, trii_vid *id_io)
{
    trii_vid id = *id_io, in;
    tri_tensor *owner = step->values[id].owner;
    tri_status status;

    if (!trii_value_is_renewable(&step->values[id]))
        return TRI_OK;
    if (owner != NULL && owner->elsewhere != NULL)
        return owner->elsewhere->resolve(step, owner, id, id_io);
    if (owner != NULL)
        return trii_resolve(step, owner, id_io);
    /* the last that it has been made again as */
    id = trii_value_first(step, id);
    if (step->values[id].replaces != TRII_NO_VALUE) {
        *id_io = step->values[id].replaces;
        if (step->values[*id_io].state < TRII_VALUE_DROPPED)
            return TRI_OK;
    }
    in = trii_node_in(step, &step->nodes[step->values[id].node], 0);
    status = trii_value_renew(step, &in);
    if (status == TRI_OK)
        status = trii_step_reserve(step, 1);
    if (status == TRI_OK)
        status = repeat(step, id, in, id_io);
    if (status != TRI_OK)
        return status;
    step->values[id].replaces = *id_io;
    step->values[*id_io].replaces = id;
    return TRI_OK;
}

tri_status trii_resolve(trii_step *step, tri_tensor *tensor, trii_vid *value_out)
{
    trii_vid id;

    if (trii_is_handle(tensor)) {
        id = trii_handle_index(tensor);
        if (TRII_UNLIKELY(trii_handle_generation(tensor) != step->generation ||
                          id >= step->n_values))
            return refuse(tensor);
    } else {
        if (TRII_UNLIKELY(tensor->held != NULL) && step->recorder->scopes.whole_only &&
            trii_tensor_is_cut(tensor))
            return refuse_part(tensor);
        id = trii_known_value(step, tensor);
        if (id == TRII_NO_VALUE) {
            tri_status status = leaf_create(step, tensor, &id);

            if (TRII_UNLIKELY(status != TRI_OK))
                return status;
        }
    }
    if (TRII_UNLIKELY(step->values[id].state >= TRII_VALUE_DROPPED)) {
        tri_status status = step->values[id].state == TRII_VALUE_FAILED
                                ? trii_failure_get(trii_recorder_of(step), &step->values[id])
                                : trii_value_renew(step, &id);

        if (status != TRI_OK)
            return status;
    }
    if (TRII_UNLIKELY(trii_in_replica(step)) && !trii_is_handle(tensor))
        return trii_replica_value(step, id, value_out);
    *value_out = id;
    return TRI_OK;
}

tri_tensor *trii_handle_output(tri_tensor *first, int output)
{
    trii_step *step = trii_step_current();
    trii_vid id;

    if (!trii_is_handle(first) || step == NULL || trii_handle_generation(first) != step->generation)
        return first;
    id = trii_handle_index(first);
    if (step->values[id].node < 0 || step->values[id].output != 0)
        return first;
    return trii_handle(step, id + output);
}

tri_tensor *trii_handle_failed(trii_step *step, tri_status status)
{
    char line[TRII_ERR_BYTES];
    trii_value *value;

    if (step == NULL)
        return trii_tensor_no_memory();
    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (trii_step_reserve(step, 1) != TRI_OK) { /* the reserve that is kept free is enough for it */
        trii_err_set("%s", line);
        if (step->n_values >= trii_recorder_of(step)->cap_values)
            return step->n_values > 0 && step->values[step->n_values - 1].state == TRII_VALUE_FAILED
                       ? trii_handle(step, step->n_values - 1)
                       : trii_tensor_no_memory();
    }
    /* whatever is recorded next repeats the last step only if that step also had a value without a
     * node here */
    value = trii_value_append(step);
    value->type.dtype = TRI_DTYPE_NONE;
    value->type.ndim = -1;
    value->type.device = 0;
    trii_value_fail(trii_recorder_of(step), value, status);
    trii_break(trii_recorder_of(step));
    return trii_handle(step, step->n_values - 1);
}

tri_tensor *trii_handle_refused(trii_step *step, const char *call, tri_tensor *const *in, int n_in,
                                tri_status status)
{
    char operands[TRII_ERR_BYTES / 2];
    size_t used = 0;
    trii_site site = trii_site_last();

    if (step == NULL)
        return trii_tensor_no_memory();
    operands[0] = '\0';
    for (int i = 0; i < n_in; i++) {
        char text[TRII_TYPE_TEXT];
        const char *what = "NULL";
        char line[TRII_ERR_BYTES];
        trii_vid id = TRII_NO_VALUE;
        bool named = false;

        if (in[i] != NULL) {
            snprintf(line, sizeof(line), "%s", tri_last_error());
            if (trii_resolve(step, in[i], &id) == TRI_OK) {
                const char *name =
                    trii_is_handle(in[i]) ? trii_value_name(step->recorder, id) : in[i]->name;

                what = trii_type_text(&step->values[id].type, text);
                if (name != NULL && used < sizeof(operands))
                    used += (size_t)snprintf(operands + used, sizeof(operands) - used,
                                             "%s%s: ", i > 0 ? ", " : "", name);
                named = name != NULL;
            } else {
                what = "?";
                /* the failed operand's own line says more */
                if (trii_is_handle(in[i]) && trii_handle_generation(in[i]) == step->generation)
                    return in[i];
                if (!trii_is_handle(in[i]))
                    return trii_handle_failed(step, status);
            }
            trii_err_set("%s", line);
        }
        if (used < sizeof(operands))
            used += (size_t)snprintf(operands + used, sizeof(operands) - used, "%s%s",
                                     i > 0 && !named ? ", " : "", what);
    }
    if (site.file != NULL)
        trii_err_prepend("tri_%s(%s) at %s:%d", call, operands, site.file, site.line);
    else
        trii_err_prepend("tri_%s(%s)", call, operands);
    return trii_handle_failed(step, status);
}
