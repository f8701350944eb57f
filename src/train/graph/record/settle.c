/*
 * settle.c - runs what pends where a tensor is read or written that shares memory with another one
 * (step/overlaps.h): contents pass from one to the other from run to run.
 */
#include "train/graph/record/record.h"
#include "train/graph/step/overlaps.h"
#include "train/tensor/sharing.h"

/* What will be left in the other one. In a step that has failed nothing pends. */
static trii_vid pending(trii_step *step, const tri_tensor *tensor, const tri_tensor *other)
{
    trii_vid id = trii_known_value(step, other);

    (void)tensor;
    return step->failed == TRI_OK && id != TRII_NO_VALUE && step->values[id].bound == other &&
                   step->values[id].state == TRII_VALUE_PENDING
               ? id
               : TRII_NO_VALUE;
}

static trii_vid pending_beyond(trii_step *step, const tri_tensor *tensor, const tri_tensor *other)
{
    return trii_tensor_covers(tensor, other) ? TRII_NO_VALUE : pending(step, tensor, other);
}

tri_status trii_overlaps_settle(trii_step *step, const tri_tensor *tensor)
{
    return trii_overlaps_first(step, tensor, pending) != TRII_NO_VALUE
               ? trii_step_run_and_keep(step)
               : TRI_OK;
}

tri_status trii_overlaps_settle_parts(trii_step *step, const tri_tensor *tensor)
{
    return trii_overlaps_first(step, tensor, pending_beyond) != TRII_NO_VALUE
               ? trii_step_run_and_keep(step)
               : TRI_OK;
}

/* The contents that the tensor had before belong to their readers only. */
static void unbind(trii_step *step, trii_vid id)
{
    trii_value *value = &step->values[id];
    tri_tensor *tensor = value->bound;
    trii_known *known = trii_known_find(step, tensor);

    known->value = TRII_NO_VALUE;
    if (value->replaces != TRII_NO_VALUE)
        known->overwritten = value->replaces;
    value->replaces = TRII_NO_VALUE;
    value->bound = NULL;
    tri_tensor_unref(tensor);
}

void trii_overlaps_cover(trii_step *step, const tri_tensor *tensor)
{
    for (;;) {
        trii_vid id = trii_overlaps_first(step, tensor, pending);

        if (id == TRII_NO_VALUE)
            return;
        unbind(step, id);
    }
}
