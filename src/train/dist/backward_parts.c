/*
 * backward_parts.c - the backwards of a pipeline's micro-batches, which are one for the unit: what
 * they leave adds up, and is averaged once.
 */
#include "train/dist/unit.h"
#include "train/graph/autograd/backward.h"
#include "train/graph/record/record.h"

tri_status trii_backward_begin_parts(trii_unit *unit, trii_step *step)
{
    /* Here, since it may run the step, which could wait for ranks that wait for this one's passes.
     */
    tri_status status = trii_unit_begin(unit, step);

    if (status != TRI_OK)
        return status;
    unit->no_sync++;
    unit->in_parts = true;
    return TRI_OK;
}

static tri_status finish_parts(trii_unit *unit, trii_step *step, int64_t samples, bool evenly)
{
    trii_samples under = {.count = samples, .divisor = TRII_NO_VALUE};
    trii_backward_mode mode;
    tri_status status = trii_backward_enter(trii_recorder_of(step), false, &mode);

    if (status != TRI_OK)
        return status;
    if (evenly && unit->group != NULL) /* each pass is a mean of one */
        status = trii_resolve(step, unit->one[1], &under.divisor);
    if (status == TRI_OK)
        status = trii_unit_finish(unit, step, NULL, NULL, 0, &under);
    trii_backward_leave(trii_recorder_of(step), &mode);
    return status == TRI_OK ? trii_step_eager(step) : status;
}

tri_status trii_backward_end_parts(trii_unit *unit, trii_step *step, int64_t samples, bool evenly,
                                   tri_status status)
{
    unit->no_sync--;
    unit->in_parts = false;
    return status == TRI_OK ? finish_parts(unit, step, samples, evenly) : status;
}
