/*
 * move_out.c - contents that a step has read leave their tensor, before the program writes there or
 * takes the tensor elsewhere. Called by overlaps.c and values/.
 */
#include "train/graph/step/recorder.h"
#include "train/tensor/device_memory.h"

tri_status trii_value_move_out(trii_value *value)
{
    const tri_tensor *tensor = trii_value_tensor(value);
    const trii_layout *layout = tensor->layout;
    size_t bytes = layout != NULL ? layout->bytes : trii_type_bytes(&value->type);
    trii_storage *copy = NULL;
    tri_status status;

    if (trii_value_is_stale(value, tensor)) {
        value->state = TRII_VALUE_DROPPED;
        return TRI_OK;
    }
    status = trii_storage_create_on(tensor->storage->device, bytes, &copy);
    if (status == TRI_OK && bytes > 0)
        status = trii_memory_copy(tensor->device, copy->data, tensor->device,
                                  trii_tensor_data(tensor), bytes);
    if (status != TRI_OK) {
        trii_storage_unref(copy);
        return status;
    }
    value->storage = copy;
    value->offset = 0;
    value->layout = layout;
    return TRI_OK;
}
