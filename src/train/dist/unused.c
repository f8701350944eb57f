/*
 * unused.c - parameters that a loss did not reach here. Whether they have a gradient is known when
 * the ranks' map of used parameters is there: until then it is promised (tri_tensor.grad_promised),
 * and a function that has to know lets the step run. A program that clears the gradient takes the
 * promise back.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "train/dist/unit.h"
#include "train/graph/step/grads.h"
#include "train/tensor/device_memory.h"

void trii_unit_forget_promises(trii_unit *unit)
{
    for (int i = 0; i < unit->n_params && unit->promises; i++)
        trii_grad_promise(unit->params[i].home, false);
    unit->promises = false;
}

/* The average that the plan did not copy, since nothing here made a gradient. */
static tri_status fetch_average(const trii_unit_param *param)
{
    const tri_tensor *grad = param->tensor->grad;

    return param->bucket_view == NULL
               ? TRI_OK
               : trii_memory_write(grad->device, grad->layout, trii_tensor_data(param->bucket_view),
                                   trii_tensor_data(grad), trii_tensor_bytes(grad));
}

/* What the last backward left unused here: used elsewhere, the average lies in the bucket; unused
 * everywhere, the optimizer passes over it, as it does on all ranks. */
static tri_status publish_unused(trii_unit *unit)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < unit->n_params && status == TRI_OK; i++) {
        if (!trii_grad_promised(unit->params[i].home))
            continue;
        if (unit->map[i] != 0)
            status = fetch_average(&unit->params[i]);
        trii_grad_publish(unit->params[i].home, unit->map[i] != 0);
    }
    trii_unit_forget_promises(unit);
    return status;
}

/* What a step of another context promises comes when that runs. */
static bool is_promised_elsewhere(const trii_unit *unit, const trii_step *step)
{
    const trii_unit_coll *last =
        unit->buckets != NULL ? unit->buckets[unit->averager.n_buckets - 1].recorded : NULL;

    return last != NULL && last->state != TRII_UNIT_COLL_FREE &&
           last->generation != step->generation;
}

static bool has_promised(trii_unit *unit, const trii_step *step)
{
    if (TRII_UNLIKELY(unit->promises) && is_promised_elsewhere(unit, step))
        return false;
    for (int i = 0; i < unit->n_params && unit->promises; i++)
        if (trii_grad_promised(unit->params[i].home))
            return true;
    unit->promises = false;
    return false;
}

tri_status trii_unit_settle(trii_unit *unit, trii_step *step)
{
    tri_status status = trii_step_run_and_keep(step);

    return status == TRI_OK && has_promised(unit, step) ? publish_unused(unit) : status;
}

/* Buckets of an earlier backward are still to be filled in this step, and gradients that are
 * recorded now would not depend on all of them: they were thrown away or used since. Then a kernel
 * may write to a bucket before it is sent. */
static bool meets_buckets(const trii_unit *unit, const trii_step *step)
{
    const trii_unit_bucket *last =
        unit->buckets != NULL ? &unit->buckets[unit->averager.n_buckets - 1] : NULL;

    if (last == NULL || last->recorded == NULL || last->recorded->generation != step->generation ||
        step->failed != TRI_OK || step->values[last->sent[0]].state != TRII_VALUE_PENDING)
        return false;
    for (int i = 0; i < unit->n_params; i++)
        if (!trii_step_has_grad(step, unit->params[i].home))
            return true;
    return false;
}

tri_status trii_unit_begin(trii_unit *unit, trii_step *step)
{
    return has_promised(unit, step) || meets_buckets(unit, step) ? trii_unit_settle(unit, step)
                                                                 : TRI_OK;
}

static TRII_NOINLINE void warn_of_drift(void)
{
    static atomic_bool warned;
    trii_site site = trii_site_last();

    if (atomic_exchange(&warned, true))
        return;
    TRII_LOG(
        TRII_LOG_WARN, "ddp",
        "tri_optimizer_step at %s:%d, after tri_ddp_no_sync_begin and before tri_ddp_no_sync_end: "
        "gradients are this rank's own, and the replicas drift apart",
        site.file != NULL ? site.file : "?", site.line);
}

tri_status trii_unit_meet_update(trii_unit *unit, trii_step *step)
{
    tri_status status;

    if (TRII_UNLIKELY(unit->no_sync > 0 && unit->size > 1))
        warn_of_drift();
    if (!has_promised(unit, step))
        return TRI_OK;
    status = trii_step_run(step);
    return status == TRI_OK ? publish_unused(unit) : status;
}
