/*
 * nan_check.c - TRI_CHECK=nan: which operation made the first NaN? Called by segment.c around each
 * run.
 *
 * Works with any executor and changes nothing of what it does: before a run it copies the old
 * contents of tensors that will be overwritten; afterwards it scans the results, and only if one
 * has a NaN the segment runs again through the reference interpreter (reference.c), which looks at
 * every result. Then the tensors get their old contents back.
 *
 * It does not communicate again: results of a host operation are taken as they are, and the
 * operation is blamed only if its operands were clean. If the second run does not repeat the NaN,
 * since a device's own kernel made it, the result that has it is blamed.
 */
#include "base/alloc.h"
#include "base/nan_words.h"
#include "train/graph/run/run.h"
#include "train/graph/step/recorder.h"
#include "train/tensor/device_memory.h"
#include "train/tensor/sharing.h"

static tri_status value_has_nan(const trii_value *value, bool *found_out)
{
    const trii_layout *layout = trii_value_layout(value);
    size_t bytes = layout != NULL ? layout->bytes : trii_type_bytes(&value->type);
    void *host;
    tri_status status;

    if (TRII_LIKELY(trii_is_host(value->type.device))) {
        *found_out = trii_has_nan(value->type.dtype, trii_value_data(value), bytes);
        return TRI_OK;
    }
    host = trii_alloc_aligned(TRII_CACHE_LINE, bytes, "contents to look at");
    if (host == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_memory_copy(TRI_CPU(0), host, value->type.device, trii_value_data(value), bytes);
    *found_out = status == TRI_OK && trii_has_nan(value->type.dtype, host, bytes);
    trii_free(host);
    return status;
}

/* A NaN among the inputs of the segment was made by the user or by an earlier step. */
static tri_status check_inputs(const trii_step *step, const trii_segment *segment)
{
    for (int32_t n = segment->first_node; n < segment->end_node; n++) {
        const trii_node *node = &step->nodes[n];

        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = step->in_ids[node->first_in + i];
            char name[TRII_OP_TEXT];
            bool found = false;
            tri_status status = TRI_OK;

            if (in != TRII_NO_VALUE && step->values[in].state == TRII_VALUE_READY)
                status = value_has_nan(&step->values[in], &found);
            if (status != TRI_OK)
                return status;
            if (!found)
                continue;
            (void)trii_node_text(node, name);
            if (node->site.file != NULL)
                return TRII_FAIL(TRI_ERR_NAN,
                                 "argument %d of %s, recorded at %s:%d, is NaN already", i, name,
                                 node->site.file, node->site.line);
            return TRII_FAIL(TRI_ERR_NAN, "argument %d of %s is NaN already", i, name);
        }
    }
    return TRI_OK;
}

/* Copies the old contents of a tensor that the run will overwrite. */
static tri_status set_aside(trii_recorder *r, trii_vid id)
{
    trii_run_state *run = r->floors[TRII_FLOOR_RUN].state;
    const trii_value *old = &r->step.values[id];
    const trii_layout *layout = trii_value_layout(old);
    size_t bytes = layout != NULL ? layout->bytes : trii_type_bytes(&old->type);
    trii_storage *copy = NULL;
    void *array;
    tri_status status;

    array = run->aside;
    status = trii_grow(&array, &run->cap_aside, run->n_aside + 1, sizeof(*run->aside),
                       "contents set aside");
    run->aside = array;
    if (status == TRI_OK)
        status = trii_storage_create_on(old->type.device, bytes, &copy);
    if (status == TRI_OK)
        status = trii_memory_copy(old->type.device, copy->data, old->type.device,
                                  trii_value_data(old), bytes);
    if (status != TRI_OK) {
        trii_storage_unref(copy);
        return status;
    }
    run->aside[run->n_aside++] = (trii_aside){id, copy, layout};
    return TRI_OK;
}

/* And of inputs that lie in its memory by way of tensors that share it. */
static tri_status set_sharers_aside(trii_recorder *r, const trii_segment *segment,
                                    const tri_tensor *written)
{
    tri_status status = TRI_OK;

    for (int32_t i = 0; i < segment->n_inputs && status == TRI_OK; i++) {
        const tri_tensor *other = trii_value_tensor(&r->step.values[segment->inputs[i]]);

        if (other != NULL && other != written && trii_tensors_overlap(other, written))
            status = set_aside(r, segment->inputs[i]);
    }
    return status;
}

tri_status trii_nan_before(trii_step *step, const trii_segment *segment)
{
    tri_status status;

    if (trii_run_state_of(trii_recorder_of(step)) == NULL) /* what follows relies on it */
        return TRI_ERR_NO_MEMORY;
    status = check_inputs(step, segment);
    for (int32_t o = 0; o < segment->n_outputs && status == TRI_OK; o++) {
        const trii_value *value = &step->values[segment->outputs[o]];

        if (value->bound != NULL && value->replaces != TRII_NO_VALUE &&
            step->values[value->replaces].storage == NULL &&
            step->values[value->replaces].state == TRII_VALUE_READY)
            status = set_aside(trii_recorder_of(step), value->replaces);
        if (status == TRI_OK && value->bound != NULL && TRII_UNLIKELY(value->bound->shares))
            status = set_sharers_aside(trii_recorder_of(step), segment, value->bound);
    }
    return status;
}

/* Runs again, from the contents of before. Values keep the copies: the step has failed. */
static tri_status run_again(trii_recorder *r, const trii_segment *segment)
{
    const trii_run_state *run = r->floors[TRII_FLOOR_RUN].state;

    for (int32_t i = 0; i < run->n_aside; i++) {
        trii_value *old = &r->step.values[run->aside[i].id];

        old->storage = trii_storage_ref(run->aside[i].storage);
        old->offset = 0;
        old->layout = run->aside[i].layout;
    }
    return trii_reference_run(&r->step, segment, true);
}

/* Gives what the run has overwritten its old contents; tensors without any are torn. */
static void put_back(trii_recorder *r, const trii_segment *segment)
{
    const trii_run_state *run = r->floors[TRII_FLOOR_RUN].state;
    int32_t n_aside = run != NULL ? run->n_aside : 0;

    for (int32_t o = 0; o < segment->n_outputs; o++) {
        trii_value *value = &r->step.values[segment->outputs[o]];

        value->torn = value->bound != NULL;
        for (int32_t i = 0; i < n_aside && value->torn; i++) {
            const trii_aside *aside = &run->aside[i];

            if (aside->id != value->replaces)
                continue;
            value->bound->layout = aside->layout;
            value->torn = trii_memory_copy(value->type.device, trii_tensor_data(value->bound),
                                           value->type.device, aside->storage->data,
                                           aside->storage->bytes) != TRI_OK;
        }
    }
}

tri_status trii_nan_after(trii_step *step, const trii_segment *segment)
{
    const trii_run_state *run = trii_recorder_of(step)->floors[TRII_FLOOR_RUN].state;

    for (int32_t o = 0; o < segment->n_outputs; o++) {
        const trii_value *value = &step->values[segment->outputs[o]];
        bool found = false;
        tri_status status = TRI_OK;

        if (value->bound != NULL || !run->without_rows)
            status = value_has_nan(value, &found);
        if (status != TRI_OK)
            return status;
        if (!found)
            continue;
        status = run_again(trii_recorder_of(step), segment);
        if (status == TRI_OK)
            status = trii_nan_blame(step, value->node);
        put_back(trii_recorder_of(step), segment);
        return status;
    }
    return TRI_OK;
}

bool trii_nan_check_set(trii_step *step, bool on)
{
    trii_recorder *r = trii_recorder_of(step);
    bool before = r->check;

    r->check = on;
    return before;
}

void trii_nan_check_without_rows(void)
{
    trii_step *step = trii_step_current();
    trii_run_state *run = NULL;

    if (step != NULL && trii_recorder_of(step)->check)
        run = trii_run_state_of(trii_recorder_of(step));
    if (run != NULL)
        run->without_rows = true;
}

void trii_nan_done(trii_recorder *r)
{
    trii_run_state *run = r->floors[TRII_FLOOR_RUN].state;

    if (run == NULL)
        return;
    run->without_rows = false;
    while (run->n_aside > 0)
        trii_storage_unref(run->aside[--run->n_aside].storage);
}
