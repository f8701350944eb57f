/*
 * run.c - one run of a plan; called by cache.c with a plan and an arena that nobody else uses. Sets
 * the pointers that changed since the last run, walks the entries (run_entry.h; queue_run.c for
 * several devices), and gives the results to the step's values.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "os/clock.h"
#include "train/plan/ir.h"
#include "train/plan/queue_run.h"
#include "train/plan/plan.h"
#include "train/plan/run_entry.h"
#include "train/plan/trace.h"
#include "train/tensor/device_memory.h"

/* Whether the plan may keep storage i of the output, too. */
static bool may_hold(const trii_plan *plan, const trii_plan_output *output, int i)
{
    return i < TRII_OUTPUTS_IN_TURNS || plan->held_bytes + output->bytes <= TRII_MORE_OUTPUTS_BYTES;
}

/* A storage of the plan that nobody holds. New ones are made until there are enough to take turns,
 * and beyond that for this run alone. */
static tri_status choose_storage(trii_plan *plan, trii_plan_output *output)
{
    trii_storage *made;
    tri_status status;

    for (int i = 0; i < TRII_OUTPUT_STORAGES; i++) {
        trii_storage *storage = output->storages[i];

        if (storage != NULL && atomic_load_explicit(&storage->refs, memory_order_acquire) == 1) {
            output->chosen = trii_storage_ref(storage);
            return TRI_OK;
        }
    }
    status = trii_storage_create_on(output->device, output->bytes, &made);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < TRII_OUTPUT_STORAGES; i++) {
        if (output->storages[i] == NULL && may_hold(plan, output, i)) {
            output->storages[i] = trii_storage_ref(made);
            plan->held_bytes += output->bytes;
            plan->holds_more = true;
            break;
        }
    }
    output->chosen = made;
    return TRI_OK;
}

/* Gives back what choose_storage took for outputs [0, n). */
static void drop_chosen(trii_plan *plan, int32_t n)
{
    for (int32_t o = 0; o < n; o++) {
        trii_storage_unref(plan->output[o].chosen);
        plan->output[o].chosen = NULL;
    }
}

static tri_status bind_outputs(trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    for (int32_t o = 0; o < segment->n_outputs; o++) {
        const trii_value *value = &step->values[segment->outputs[o]];
        trii_plan_output *output = &plan->output[o];

        if (value->bound != NULL) {
            const tri_tensor *tensor = value->bound;

            trii_slots_set(&plan->outputs, o, (char *)tensor->storage->data + tensor->offset);
        } else {
            tri_status status = choose_storage(plan, output);

            if (status != TRI_OK) {
                drop_chosen(plan, o);
                return status;
            }
            trii_slots_set(&plan->outputs, o, output->chosen->data);
        }
    }
    return TRI_OK;
}

/* Gives the step's values the storages of the plan's outputs. */
static void publish(trii_plan *plan, trii_step *step, const trii_segment *segment)
{
    for (int32_t o = 0; o < segment->n_outputs; o++) {
        trii_value *value = &step->values[segment->outputs[o]];
        trii_plan_output *output = &plan->output[o];

        if (value->bound != NULL) {
            value->bound->layout = output->layout;
            continue;
        }
        value->storage = output->chosen;
        value->offset = 0;
        value->layout = output->layout;
        output->chosen = NULL;
    }
}

static void fill_scalars(trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    const trii_node *nodes = &step->nodes[segment->first_node];
    double *f = plan->f;

    for (int32_t k = 0; k < plan->n_f_nodes; k++) {
        const trii_attrs *attrs = &nodes[plan->f_node[k]].attrs;

        for (int i = 0; i < attrs->n_f; i++)
            *f++ = attrs->f[i];
    }
    for (int32_t k = 0; k < plan->n_random; k++)
        plan->random[k] = trii_step_random(step, &nodes[plan->random_node[k]]);
    if (plan->n_hosts > 0)
        trii_hosts_begin(plan, step, segment);
}

static tri_status walk(trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    trii_run run = {plan->f, plan->random, plan->queues[0].queue};
    int32_t n_running = 0;
    tri_status status;

    if (TRII_UNLIKELY(plan->n_queues > 1))
        return trii_queues_run(plan, step, segment);
    plan->queues[0].reached = -1;
    status = trii_queue_begin(&plan->queues[0]);
    if (TRII_UNLIKELY(status != TRI_OK))
        return status;
    plan->queues[0].reached = plan->n_entries; /* even if only a copy at the end fails */
    for (int32_t e = 0; e < plan->n_entries && TRII_LIKELY(status == TRI_OK); e++) {
        status = trii_run_entry(plan, e, step, segment, &run, &n_running);
        if (TRII_UNLIKELY(status != TRI_OK))
            plan->queues[0].reached = e;
    }
    if (TRII_UNLIKELY(plan->queues[0].ops->synchronise != NULL))
        status = trii_queue_synchronise(&plan->queues[0], status);
    return status;
}

/* After a failure: which tensors no longer have their old contents. */
static void mark_torn(const trii_plan *plan, trii_step *step, const trii_segment *segment)
{
    for (int32_t o = 0; o < segment->n_outputs; o++) {
        trii_value *value = &step->values[segment->outputs[o]];

        value->torn = value->bound != NULL &&
                      plan->output[o].first <= plan->queues[plan->output[o].queue].reached;
    }
}

/* Changes the layout of persistent tensors for good, in place. */
static tri_status adopt(const trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    for (int32_t k = 0; k < plan->n_adoptions; k++) {
        const trii_value *value = &step->values[segment->inputs[plan->adoptions[k].input]];
        const trii_layout *layout = plan->adoptions[k].layout;
        tri_tensor *tensor = value->leaf != NULL ? value->leaf : value->bound;
        tri_device device = value->type.device;
        size_t bytes = trii_type_bytes(&value->type);
        void *plain;
        tri_status status;

        if (tensor->layout == layout)
            continue; /* two values of one tensor */
        plain = trii_alloc_aligned(64, bytes, "layout change");
        if (plain == NULL)
            return TRI_ERR_NO_MEMORY;
        status = trii_memory_copy(TRI_CPU(0), plain, device, trii_value_data(value), bytes);
        if (status == TRI_OK)
            status = trii_memory_write(device, layout, plain, trii_value_data(value), bytes);
        trii_free(plain);
        if (status != TRI_OK)
            return status;
        tensor->layout = layout;
    }
    return TRI_OK;
}

static bool may_adopt(const trii_plan *plan, trii_step *step, const trii_segment *segment)
{
    for (int32_t k = 0; k < plan->n_adoptions; k++) {
        const trii_value *value = &step->values[segment->inputs[plan->adoptions[k].input]];
        const tri_tensor *tensor = value->leaf != NULL ? value->leaf : value->bound;

        if (!trii_step_holds_alone(step, tensor) || trii_tensor_is_kept(tensor))
            return false;
    }
    return true;
}

tri_status trii_plan_adopt(const trii_plan *plan, trii_step *step, const trii_segment *segment,
                           bool *done_out)
{
    tri_status status = TRI_OK;

    trii_step_lock();
    *done_out = may_adopt(plan, step, segment);
    if (*done_out)
        status = adopt(plan, step, segment);
    trii_step_unlock();
    return status;
}

void trii_plan_bind_arena(trii_plan *plan, int32_t queue, void *data)
{
    if (queue < 0)
        plan->arena = data;
    else
        plan->queues[queue].arena = data;
    for (int32_t k = 0; k < plan->n_arena_slots; k++) {
        if (plan->arena_slots[k].queue == queue)
            *plan->arena_slots[k].slot = (char *)data + plan->arena_slots[k].offset;
    }
}

static TRII_NOINLINE void show_times(const trii_plan *plan, const trii_step *step,
                                     const trii_segment *segment, tri_status status)
{
    if (plan->traced && status == TRI_OK)
        trii_trace_run(plan, step, segment);
    if (trii_log_enabled(TRII_LOG_TRACE, "plan") && plan->runs >= 16 &&
        (plan->runs & (plan->runs - 1)) == 0)
        trii_plan_log_times(plan);
}

tri_status trii_plan_run(trii_plan *plan, trii_step *step, const trii_segment *segment)
{
    tri_status status;

    for (int32_t i = 0; i < segment->n_inputs; i++)
        trii_slots_set(&plan->inputs, i, trii_value_data(&step->values[segment->inputs[i]]));
    status = bind_outputs(plan, step, segment);
    if (status != TRI_OK)
        return status;
    if (TRII_UNLIKELY(plan->n_packed > 0))
        trii_prepack_begin(plan, step, segment);
    fill_scalars(plan, step, segment);
    plan->runs++;
    status = walk(plan, step, segment);
    if (TRII_UNLIKELY(plan->n_packed > 0))
        trii_prepack_end(plan, step, segment, status == TRI_OK);
    if (TRII_UNLIKELY(status != TRI_OK)) {
        trii_hosts_stop(plan, step, segment);
        mark_torn(plan, step, segment);
    }
    if (TRII_UNLIKELY(plan->times != NULL))
        show_times(plan, step, segment, status);
    if (TRII_LIKELY(status == TRI_OK))
        publish(plan, step, segment);
    else
        drop_chosen(plan, segment->n_outputs);
    return status;
}
