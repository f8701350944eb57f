/*
 * change_device.c - persistent tensors change their device.
 */
#include <string.h>

#include "base/err.h"
#include "graph/hold.h"
#include "graph/recorder.h"
#include "tensor/device_list.h"

/* What this step has recorded of the tensor keeps the contents and the device of now. The tensor is
 * held for writing. */
static tri_status leave_step(trii_step *step, tri_tensor *tensor)
{
    size_t bytes = tensor->layout != NULL ? tensor->layout->bytes : trii_tensor_bytes(tensor);
    trii_vid id = trii_known_value(step, tensor);
    trii_storage *copy = NULL;
    trii_value *value;

    if (id == TRII_NO_VALUE)
        return TRI_OK;
    value = &step->values[id];
    if (value->state == TRII_VALUE_READY && value->storage == NULL) {
        tri_status status = trii_storage_create(NULL, NULL, bytes, &copy);

        if (status != TRI_OK)
            return status;
        memcpy(copy->data, trii_tensor_data(tensor), bytes);
        value->storage = copy;
        value->offset = 0;
        value->layout = tensor->layout;
    }
    trii_known_find(step, tensor)->value = TRII_NO_VALUE;
    return TRI_OK;
}

tri_status trii_tensor_send(tri_tensor *tensor, tri_device device)
{
    trii_step *step = trii_step_current();
    tri_status status;

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    if (tensor->grad != NULL && tensor->grad->device != device) {
        status = trii_tensor_send(tensor->grad, device);
        if (status != TRI_OK)
            return status;
    }
    if (tensor->device == device)
        return TRI_OK;
    status = trii_step_run(step);
    if (status == TRI_OK)
        status = trii_hold_one(trii_recorder_of(step), tensor, true);
    if (status != TRI_OK)
        return status;
    status = leave_step(step, tensor);
    if (status == TRI_OK) {
        tensor->device = device; /* cpu devices share the memory */
        trii_hold_written(trii_recorder_of(step), tensor);
    }
    trii_hold_end(trii_recorder_of(step));
    return status;
}
