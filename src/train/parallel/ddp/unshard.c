/*
 * unshard.c - tri_unshard_begin, tri_unshard_end: finds the buckets of a module's parameters, runs
 * what pends, and opens or closes them (train/dist/whole.c).
 */
#include <stdio.h>

#include <trireme/zero.h>

#include "base/err.h"
#include "train/nn/module.h"
#include "train/parallel/ddp/ddp.h"

/* Runs what pends, and tells a failure to the other ranks if they wait. */
static tri_status settle(tri_module *module, trii_step *step, bool others_wait)
{
    trii_unit *last = NULL;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(module) && status == TRI_OK; i++) {
        const tri_tensor *tensor = tri_module_state(module, i).tensor;
        trii_unit *unit = trii_unit_of(tensor);

        if (trii_unit_sharding(tensor) == NULL || unit == last)
            continue;
        last = unit;
        status = trii_unit_settle(unit, step);
        if (status != TRI_OK && others_wait)
            status = trii_unit_tell(unit, status);
    }
    return status == TRI_OK ? trii_step_run(step) : status;
}

/* Each bucket once, in the order of the module's first parameters of them: on all ranks alike. */
static tri_status for_each(tri_module *module, trii_step *step, bool open)
{
    tri_status status = TRI_OK, first = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        const tri_tensor *tensor = tri_module_state(module, i).tensor;
        trii_unit_bucket *bucket = trii_unit_sharding(tensor);

        if (bucket == NULL || bucket->visited)
            continue;
        bucket->visited = true;
        if (open && first == TRI_OK)
            status = trii_unit_open(trii_unit_of(tensor), bucket);
        else if (!open)
            status = trii_unit_close(trii_unit_of(tensor), bucket, step);
        first = first == TRI_OK ? status : first;
    }
    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        trii_unit_bucket *bucket = trii_unit_sharding(tri_module_state(module, i).tensor);

        if (bucket != NULL)
            bucket->visited = false;
    }
    return first;
}

static tri_status prepare(tri_module *module, const char *call, trii_step **step_out)
{
    tri_status status = trii_need(module, call, "module");

    if (status == TRI_OK)
        status = tri_module_status(module);
    if (status == TRI_OK)
        status = trii_module_flatten(module);
    if (status != TRI_OK)
        return status;
    *step_out = trii_step_current();
    return *step_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

tri_status(tri_unshard_begin)(tri_module *module)
{
    trii_step *step;
    tri_status status = prepare(module, "unshard_begin", &step);

    if (status == TRI_OK)
        status = settle(module, step, true);
    if (status == TRI_OK)
        status = for_each(module, step, true);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "unshard_begin");
}

tri_status tri_unshard_end(tri_module *module)
{
    trii_step *step;
    tri_status status = prepare(module, "unshard_end", &step), closed;
    char line[TRII_ERR_BYTES];

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "unshard_end");
    /* They are closed all the same, as a program that goes on expects. */
    status = settle(module, step, false);
    (void)snprintf(line, sizeof(line), "%s", tri_last_error());
    closed = for_each(module, step, false);
    if (status != TRI_OK)
        trii_err_set("%s", line);
    else
        status = closed;
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "unshard_end");
}
