/*
 * change_device.c - persistent tensors change their device.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/step/hold.h"
#include "train/graph/step/recorder.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/device_memory.h"

/* What this step has recorded of the tensor keeps the contents and the device of now. The tensor is
 * held for writing. */
static tri_status leave_step(trii_step *step, tri_tensor *tensor)
{
    trii_vid id = trii_known_value(step, tensor);
    tri_status status = TRI_OK;

    if (id == TRII_NO_VALUE)
        return TRI_OK;
    if (step->values[id].state == TRII_VALUE_READY && step->values[id].storage == NULL)
        status = trii_value_move_out(&step->values[id]);
    if (status == TRI_OK)
        trii_known_find(step, tensor)->value = TRII_NO_VALUE;
    return status;
}

/* Cpu devices share the memory; to and from others the contents go in plain order. */
static tri_status carry(tri_tensor *tensor, tri_device device)
{
    size_t bytes = trii_tensor_bytes(tensor);
    trii_storage *there = NULL;
    void *plain;
    tri_status status;

    if (trii_is_host(tensor->device) && trii_is_host(device))
        return TRI_OK;
    if (tensor->stays_plain)
        return TRII_FAIL(TRI_ERR_STATE,
                         "a tensor over memory of the program's own (tri_tensor_wrap) stays on the "
                         "host: tri_to copies it to %s",
                         tri_device_text(device));
    plain = trii_alloc_aligned(TRII_CACHE_LINE, bytes, "contents on their way");
    status = plain != NULL ? trii_storage_create_on(device, bytes, &there) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = trii_memory_read(tensor->device, tensor->layout, trii_tensor_data(tensor), plain,
                                  bytes);
    if (status == TRI_OK)
        status = trii_memory_write(device, NULL, plain, there->data, bytes);
    trii_free(plain);
    if (status != TRI_OK) {
        trii_storage_unref(there);
        return status;
    }
    trii_storage_unref(tensor->storage);
    tensor->storage = there;
    tensor->offset = 0;
    tensor->layout = NULL;
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
    if (tensor->elsewhere != NULL)
        return TRII_FAIL(TRI_ERR_STATE, "%s", tensor->elsewhere->why);
    if (tensor->shares)
        return TRII_FAIL(TRI_ERR_STATE,
                         "a tensor that shares its memory with others (%s) stays on %s: move a "
                         "model before its parameters are put together",
                         tensor->name != NULL ? tensor->name : "it has no name",
                         tri_device_text(tensor->device));
    /* not for a stranger: an optimizer's state follows its parameter in the middle of a step, whose
     * values are still wanted */
    status = trii_known_value(step, tensor) != TRII_NO_VALUE ? trii_step_run(step) : TRI_OK;
    if (status == TRI_OK)
        status = trii_hold_one(trii_recorder_of(step), tensor, true);
    if (status != TRI_OK)
        return status;
    status = leave_step(step, tensor);
    if (status == TRI_OK)
        status = carry(tensor, device);
    if (status == TRI_OK) {
        tensor->device = device;
        trii_hold_written(trii_recorder_of(step), tensor);
    }
    trii_hold_end(trii_recorder_of(step));
    return status;
}
