/*
 * handle.c - a step tensor's `tri_tensor *`: not an address but a number, resolved only here.
 *
 *   bit 0        1 (addresses of real tensors are even)
 *   bits 1-24    index of the value in its step
 *   bits 25-63   generation of the step, unique in the process
 *
 * So a handle that outlived its step, or comes from another thread, is recognised and never
 * dereferenced. This file also answers what a user may ask about a tensor of either kind.
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "base/alloc.h"
#include "train/graph/contents.h"
#include "train/graph/recorder.h"

tri_tensor *trii_handle(trii_step *step, trii_vid value)
{
    uint64_t word = step->generation << (TRII_INDEX_BITS + 1) | (uint64_t)(uint32_t)value << 1 | 1;

    return (tri_tensor *)(uintptr_t)word; // NOLINT: a handle is no address, see above
}

static uint64_t generation_of(const tri_tensor *tensor)
{
    return (uint64_t)(uintptr_t)tensor >> (TRII_INDEX_BITS + 1);
}

static trii_vid index_of(const tri_tensor *tensor)
{
    return (trii_vid)((uint64_t)(uintptr_t)tensor >> 1 & TRII_INDEX_MASK);
}

trii_vid trii_handle_value(const trii_step *step, const tri_tensor *handle)
{
    return generation_of(handle) == step->generation && index_of(handle) < step->n_values
               ? index_of(handle)
               : TRII_NO_VALUE;
}

static TRII_NOINLINE tri_status refuse(const tri_tensor *tensor)
{
    return trii_refuse_handle(generation_of(tensor));
}

static tri_status leaf_create(trii_step *step, tri_tensor *tensor, trii_vid *value_out)
{
    trii_value *value;
    tri_status status;

    if (tensor->status != TRI_OK)
        return TRII_FAIL(tensor->status, "%s", trii_tensor_why(tensor));
    status = trii_step_reserve(step, 1);
    if (status == TRI_OK)
        status = trii_known_set(step, tensor, step->n_values);
    if (status != TRI_OK)
        return status;
    trii_leaf_repeats(step, tensor);
    value = trii_value_append(step);
    value->type.dtype = tensor->dtype;
    value->type.ndim = tensor->ndim;
    value->type.device = tensor->device;
    for (int d = 0; d < tensor->ndim; d++)
        value->type.shape[d] = tensor->shape[d];
    value->leaf = tri_tensor_ref(tensor);
    value->requires_grad = tensor->requires_grad;
    *value_out = step->n_values - 1;
    return TRI_OK;
}

tri_status trii_resolve(trii_step *step, tri_tensor *tensor, trii_vid *value_out)
{
    trii_vid id;

    if (trii_is_handle(tensor)) {
        id = index_of(tensor);
        if (TRII_UNLIKELY(generation_of(tensor) != step->generation || id >= step->n_values))
            return refuse(tensor);
    } else {
        id = trii_known_value(step, tensor);
        if (id == TRII_NO_VALUE) {
            tri_status status = leaf_create(step, tensor, &id);

            if (TRII_UNLIKELY(status != TRI_OK))
                return status;
        }
    }
    if (TRII_UNLIKELY(step->values[id].state == TRII_VALUE_FAILED))
        return trii_failure_get(trii_recorder_of(step), &step->values[id]);
    if (TRII_UNLIKELY(trii_in_replica(step)) && !trii_is_handle(tensor))
        return trii_replica_value(step, id, value_out);
    *value_out = id;
    return TRI_OK;
}

tri_tensor *trii_handle_output(tri_tensor *first, int output)
{
    trii_step *step = trii_step_current();
    trii_vid id;

    if (!trii_is_handle(first) || step == NULL || generation_of(first) != step->generation)
        return first;
    id = index_of(first);
    if (step->values[id].node < 0 || step->values[id].output != 0)
        return first;
    return trii_handle(step, id + output);
}

/* --- failed handles ------------------------------------------------------- */

void trii_value_fail(trii_recorder *r, trii_value *value, tri_status status)
{
    void *array = r->failures;

    value->state = TRII_VALUE_FAILED;
    value->keep = false;
    value->slot = -1;
    value->slot_segment = (uint32_t)-status;
    if (trii_grow(&array, &r->cap_failures, r->n_failures + 1, sizeof(*r->failures),
                  "failed handles") != TRI_OK)
        return;
    r->failures = array;
    r->failures[r->n_failures] =
        (trii_failure){.status = status, .line = trii_strdup(tri_last_error(), "failed handle")};
    value->slot = r->n_failures++;
}

tri_status trii_failure_get(trii_recorder *r, const trii_value *value)
{
    const trii_failure *failure;

    if (value->slot < 0)
        return TRII_FAIL((tri_status) - (int)value->slot_segment, "out of memory");
    failure = &r->failures[value->slot];
    return TRII_FAIL(failure->status, "%s",
                     failure->line != NULL ? failure->line : "out of memory");
}

void trii_failures_clear(trii_recorder *r)
{
    for (int32_t i = 0; i < r->n_failures; i++)
        trii_free(r->failures[i].line);
    r->n_failures = 0;
}

void trii_break(const trii_recorder *r)
{
    if (r->breaks)
        raise(SIGTRAP);
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
                const char *name = tri_tensor_name(in[i]);

                what = trii_type_text(&step->values[id].type, text);
                if (name != NULL && used < sizeof(operands))
                    used += (size_t)snprintf(operands + used, sizeof(operands) - used,
                                             "%s%s: ", i > 0 ? ", " : "", name);
                named = name != NULL;
            } else {
                what = "?";
                /* the failed operand's own line says more */
                if (trii_is_handle(in[i]) && generation_of(in[i]) == step->generation)
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

/* --- facts ---------------------------------------------------------------- */

/* Type of a tensor of either kind; a failure leaves the error line. Never makes a leaf. */
static tri_status facts(const tri_tensor *tensor, trii_type *type)
{
    trii_step *step;
    const trii_value *value;

    type->dtype = TRI_DTYPE_NONE;
    type->ndim = -1;
    type->device = 0;
    if (tensor == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the tensor is NULL" TRII_WHENCE_NULL);
    if (!trii_is_handle(tensor)) {
        if (tensor->status != TRI_OK && !trii_tensor_is_lost(tensor))
            return TRII_FAIL(tensor->status, "%s", trii_tensor_why(tensor));
        type->dtype = tensor->dtype;
        type->ndim = tensor->ndim;
        type->device = tensor->device;
        for (int d = 0; d < tensor->ndim; d++)
            type->shape[d] = tensor->shape[d];
        return TRI_OK;
    }
    step = trii_step_current();
    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    if (generation_of(tensor) != step->generation || index_of(tensor) >= step->n_values)
        return refuse(tensor);
    value = &step->values[index_of(tensor)];
    if (value->state == TRII_VALUE_FAILED)
        return trii_failure_get(trii_recorder_of(step), value);
    trii_type_copy(type, &value->type);
    return TRI_OK;
}

void trii_contents_origin(const tri_tensor *tensor, bool *requires_grad_out,
                          const char **operation_out)
{
    const trii_step *step = trii_step_current();
    const trii_value *value;

    *requires_grad_out = false;
    *operation_out = NULL;
    if (tensor != NULL && !trii_is_handle(tensor))
        *requires_grad_out = tensor->requires_grad;
    if (tensor == NULL || !trii_is_handle(tensor) || step == NULL ||
        generation_of(tensor) != step->generation || index_of(tensor) >= step->n_values)
        return;
    value = &step->values[index_of(tensor)];
    *requires_grad_out = value->requires_grad;
    if (value->node >= 0)
        *operation_out = step->nodes[value->node].op->name;
}

tri_dtype tri_tensor_dtype(const tri_tensor *tensor)
{
    trii_type type;

    return facts(tensor, &type) == TRI_OK ? type.dtype : TRI_DTYPE_NONE;
}

int tri_tensor_ndim(const tri_tensor *tensor)
{
    trii_type type;

    return facts(tensor, &type) == TRI_OK ? type.ndim : -1;
}

int64_t tri_tensor_size(const tri_tensor *tensor, int dim)
{
    trii_type type;

    if (facts(tensor, &type) != TRI_OK)
        return -1;
    if (dim < 0)
        dim += type.ndim;
    return dim >= 0 && dim < type.ndim ? type.shape[dim] : -1;
}

int64_t tri_tensor_numel(const tri_tensor *tensor)
{
    trii_type type;

    return facts(tensor, &type) == TRI_OK ? trii_type_numel(&type) : -1;
}

const char *tri_tensor_shape_text(const tri_tensor *tensor)
{
    static _Thread_local char texts[8][TRII_TYPE_TEXT];
    static _Thread_local unsigned int next;
    char *text = texts[next++ % 8];
    trii_type type;

    if (facts(tensor, &type) == TRI_OK)
        trii_shape_text(&type, text);
    else
        snprintf(text, TRII_TYPE_TEXT, "[failed]");
    return text;
}

tri_device tri_tensor_device(const tri_tensor *tensor)
{
    trii_type type;

    return facts(tensor, &type) == TRI_OK ? type.device : -1;
}

tri_status tri_tensor_status(const tri_tensor *tensor)
{
    trii_type type;
    tri_status status = facts(tensor, &type);

    if (status == TRI_OK && !trii_is_handle(tensor) && trii_tensor_is_lost(tensor))
        status = TRII_FAIL(tensor->status, "%s", trii_tensor_why(tensor));
    return status;
}
