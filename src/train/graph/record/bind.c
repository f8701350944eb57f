/*
 * bind.c - says in which tensor a value must end up.
 */
#include "train/graph/record/record.h"
#include "train/graph/step/retired.h"
#include "train/graph/step/overlaps.h"

tri_status trii_bind(trii_step *step, trii_vid id, tri_tensor *tensor)
{
    trii_value *value = &step->values[id];
    trii_vid before;
    tri_status status;

    if (!trii_type_is_of(&value->type, tensor))
        return TRII_FAIL(TRI_ERR_INTERNAL, "bind: a value of another shape or dtype");
    if (TRII_UNLIKELY(tensor->elsewhere != NULL))
        return TRII_FAIL(TRI_ERR_STATE, "%s", tensor->elsewhere->why);
    if (TRII_UNLIKELY(trii_in_replica(step)) &&
        tensor->device == step->recorder->scopes.replica.home)
        return TRI_OK; /* only the replica at home writes there */
    if (tensor->device != value->type.device)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a value on %s cannot be left in a tensor on %s: tri_to copies between "
                         "devices",
                         tri_device_text(value->type.device), tri_device_text(tensor->device));
    if (TRII_UNLIKELY(tensor->shares)) {
        status = trii_overlaps_settle_parts(step, tensor);
        if (status != TRI_OK)
            return status;
        value = &step->values[id];
    }
    if (value->state != TRII_VALUE_PENDING || value->leaf != NULL || value->bound != NULL) {
        if (value->bound == tensor && trii_known_value(step, tensor) == id)
            return TRI_OK; /* it is there, and nothing has been bound over it since */
        status = trii_record_values(step, &trii_op_copy, &id, 1, NULL, &id);
        if (status != TRI_OK)
            return status;
        value = &step->values[id];
    }
    status = trii_known_set(step, tensor, id, &before);
    if (status != TRI_OK)
        return status;
    if (TRII_UNLIKELY(tensor->shares)) {
        before = before == TRII_NO_VALUE ? trii_overlaps_still(step, tensor) : before;
        trii_overlaps_cover(step, tensor);
    }
    if (before != TRII_NO_VALUE) {
        trii_value *old = &step->values[before];

        if (old->bound == tensor && old->state == TRII_VALUE_PENDING) {
            before = old->replaces;
            old->replaces = TRII_NO_VALUE;
            old->bound = NULL; /* the reference moves */
            tri_tensor_unref(tensor);
        }
    }
    value->bound = tri_tensor_ref(tensor);
    value->replaces = before;
    value->requires_grad = tensor->requires_grad;
    if (TRII_UNLIKELY(tensor->shares))
        trii_overlaps_forget(step, tensor);
    return trii_step_eager(step);
}
