/*
 * facts.c - what a user may ask about a tensor of either kind: its type, its shape, its device, and
 * whether it has failed.
 */
#include <stdio.h>

#include "train/graph/step/recorder.h"
#include "train/graph/values/contents.h"

/* Type of a tensor of either kind; a failure leaves the error line. Never makes a leaf. */
static tri_status facts(const tri_tensor *tensor, trii_type *type)
{
    trii_step *step;
    const trii_value *value;
    trii_vid id;

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
    id = trii_handle_value(step, tensor);
    if (id == TRII_NO_VALUE)
        return trii_refuse_handle(trii_handle_generation(tensor));
    value = &step->values[id];
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
    trii_vid id;

    *requires_grad_out = false;
    *operation_out = NULL;
    if (tensor != NULL && !trii_is_handle(tensor))
        *requires_grad_out = tensor->requires_grad;
    if (tensor == NULL || !trii_is_handle(tensor) || step == NULL)
        return;
    id = trii_handle_value(step, tensor);
    if (id == TRII_NO_VALUE)
        return;
    value = &step->values[id];
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

    if (status == TRI_OK && !trii_is_handle(tensor) && trii_tensor_is_lost(tensor) &&
        tensor->elsewhere == NULL)
        status = TRII_FAIL(tensor->status, "%s", trii_tensor_why(tensor));
    return status;
}
