/*
 * keep_read.c - copy on write, for steps that wait while other contexts write what they have read:
 * a value holds a reference to the memory of its tensor, and the writer leaves that memory alone
 * and gives the tensor another. For served modules (parallel/rpc), where trainers update what
 * forwards of other trainers have read.
 */
#include "train/graph/step/recorder.h"
#include "train/tensor/device_memory.h"

/* Its value that is the tensor's contents as the step has read them; NULL. */
static trii_value *read_value(trii_step *step, const tri_tensor *tensor)
{
    trii_vid id = trii_known_value(step, tensor);
    trii_value *value = id != TRII_NO_VALUE ? &step->values[id] : NULL;

    return value != NULL && value->leaf == tensor && value->state == TRII_VALUE_READY &&
                   value->storage == NULL
               ? value
               : NULL;
}

static bool is_movable(const tri_tensor *tensor)
{
    return tensor->offset == 0 && !tensor->shares && trii_storage_is_movable(tensor->storage);
}

bool trii_tensor_is_kept(const tri_tensor *tensor)
{
    return is_movable(tensor) &&
           atomic_load_explicit(&tensor->storage->refs, memory_order_acquire) > 1;
}

void trii_step_keep_read(trii_step *step, const tri_tensor *tensor)
{
    trii_value *value = read_value(step, tensor);

    if (value == NULL || !is_movable(tensor))
        return;
    trii_step_lock(); /* no run changes the layout meanwhile */
    if (value->version < 0)
        value->version = tensor->version;
    if (value->version == tensor->version) { /* else its next run fails */
        value->storage = trii_storage_ref(tensor->storage);
        value->offset = 0;
        value->layout = tensor->layout;
    }
    trii_step_unlock();
}

void trii_step_read_again(trii_step *step, const tri_tensor *tensor)
{
    trii_vid id = trii_known_value(step, tensor);
    trii_value *value = id != TRII_NO_VALUE ? &step->values[id] : NULL;

    if (value != NULL && value->state == TRII_VALUE_READY && value->storage == NULL &&
        (value->leaf == tensor || value->bound == tensor))
        value->version = tensor->version;
}

tri_status trii_tensor_renew(trii_step *step, tri_tensor *tensor, trii_renewed *old_out)
{
    trii_storage *fresh = NULL;
    trii_value *value;
    trii_vid id;
    tri_status status;

    *old_out = (trii_renewed){0};
    if (!trii_tensor_is_kept(tensor))
        return TRI_OK;
    status = trii_resolve(step, tensor, &id);
    if (status == TRI_OK && read_value(step, tensor) == NULL)
        status = TRII_FAIL(TRI_ERR_INTERNAL, "a tensor is renewed after the step has written it");
    if (status == TRI_OK)
        status = trii_storage_create_on(tensor->device, tensor->storage->bytes, &fresh);
    if (status != TRI_OK)
        return status;
    value = &step->values[id];
    value->storage = trii_storage_ref(tensor->storage);
    value->offset = 0;
    value->layout = tensor->layout;
    value->version = tensor->version;
    *old_out = (trii_renewed){tensor->storage, tensor->layout};
    tensor->storage = fresh;
    return TRI_OK;
}

void trii_tensor_renew_end(tri_tensor *tensor, trii_renewed *old, bool written)
{
    trii_storage *unused = old->storage;

    if (unused != NULL && !written) {
        unused = tensor->storage;
        tensor->storage = old->storage;
        tensor->layout = old->layout;
        if (trii_tensor_is_lost(tensor))
            trii_tensor_mend(tensor);
    }
    trii_storage_unref(unused);
    *old = (trii_renewed){0};
}
