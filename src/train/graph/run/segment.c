/*
 * segment.c - turns the pending part of a step into a segment, has an executor run it (the plan, or
 * the reference interpreter), and records what became of its values. Called when somebody needs a
 * value (values/contents.c, the optimisers) and when the step ends.
 */
#include <stdatomic.h>

#include "base/alloc.h"
#include "train/graph/run/run.h"
#include "train/graph/step/function_guard.h"
#include "train/graph/step/hold.h"
#include "train/graph/step/overlaps.h"
#include "train/graph/step/recorder.h"
#include "train/tensor/sharing.h"

static _Atomic(const trii_executor *) executor_now;

void trii_executor_set(const trii_executor *executor)
{
    atomic_store(&executor_now, executor);
}

static tri_status push_output(trii_recorder *r, trii_vid id)
{
    if (r->pending.n_outputs == r->pending.cap_outputs) {
        void *array = r->pending.outputs;
        tri_status status = trii_grow(&array, &r->pending.cap_outputs, r->pending.n_outputs + 1,
                                      sizeof(*r->pending.outputs), "outputs of a segment");

        r->pending.outputs = array;
        if (status != TRI_OK)
            return status;
    }
    r->pending.outputs[r->pending.n_outputs++] = id;
    return TRI_OK;
}

/* What must be readable afterwards: kept and bound values, and unless the step ends, what a
 * gradient recorded later may read: operands and results of nodes that have not been
 * differentiated. */
static tri_status collect_outputs(trii_recorder *r, bool ending)
{
    trii_step *s = &r->step;
    tri_status status = TRI_OK;

    r->pending.n_outputs = 0;
    if (TRII_UNLIKELY(r->regions.n > 0) && !ending)
        trii_regions_keep(r);
    for (int32_t n = s->first_pending; n < s->n_nodes && !ending; n++) {
        const trii_node *node = &s->nodes[n];

        if (!node->requires_grad || node->differentiated || node->region > 0)
            continue;
        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = s->in_ids[node->first_in + i];

            if (in != TRII_NO_VALUE && s->values[in].state == TRII_VALUE_PENDING &&
                s->values[in].owner == NULL)
                s->values[in].keep = true;
        }
        for (int o = 0; o < node->n_out; o++)
            s->values[node->first_out + o].keep = !s->values[node->first_out + o].retired;
    }
    for (int32_t n = s->first_pending; n < s->n_nodes; n++) {
        const trii_node *node = &s->nodes[n];

        for (int o = 0; o < node->n_out && status == TRI_OK; o++) {
            const trii_value *value = &s->values[node->first_out + o];

            if (value->bound != NULL || (value->keep && !ending))
                status = push_output(r, node->first_out + o);
        }
    }
    return status;
}

/* 0 = not in a tensor, 1 = in one, 3 = in one that stays plain. */
static unsigned placement(const tri_tensor *tensor)
{
    return tensor == NULL ? 0 : trii_tensor_stays_plain(tensor) ? 3 : 1;
}

/* A tensor's contents must still be those that the step has read: the first run that reads them
 * notes their version. */
static inline bool is_stale(trii_value *value, const tri_tensor *tensor)
{
    if (value->version < 0)
        value->version = tensor->version;
    return value->version != tensor->version;
}

/* Which inputs lie in memory that an output is left in, by way of tensors that share it. */
static tri_status append_overlaps(trii_recorder *r)
{
    for (int32_t o = 0; o < r->pending.n_outputs; o++) {
        const tri_tensor *bound = r->step.values[r->pending.outputs[o]].bound;
        uint64_t *w;
        int32_t n;
        tri_status status;

        if (bound == NULL || !bound->shares)
            continue;
        status = trii_key_reserve(r, (size_t)r->pending.n_inputs + 1);
        if (status != TRI_OK)
            return status;
        w = r->pending.key + r->pending.n_key;
        n = trii_overlaps_inputs(&r->step, bound, w + 1);
        w[0] = (uint64_t)o << 32 | (uint64_t)n;
        r->pending.n_key += 1 + (size_t)n;
    }
    return TRI_OK;
}

/* The end of the key: inputs with their types and layouts, and which values must survive where. */
static tri_status close_key(trii_recorder *r)
{
    trii_step *s = &r->step;
    size_t n_in = (size_t)r->pending.n_inputs, n_out = (size_t)r->pending.n_outputs;
    tri_status status = trii_key_reserve(r, n_in * (3 + TRI_MAX_DIMS) + n_out * 3 + 2);
    bool any_shares = false;
    uint64_t *w;

    if (status != TRI_OK)
        return status;
    w = r->pending.key + r->pending.n_key;
    *w++ = n_in << 32 | n_out;
    for (size_t i = 0; i < n_in; i++) {
        trii_value *value = &s->values[r->pending.inputs[i]];
        const trii_type *type = &value->type;
        const tri_tensor *tensor = trii_value_tensor(value);

        if (tensor != NULL && TRII_UNLIKELY(is_stale(value, tensor)))
            return trii_refuse_stale(tensor);
        if (tensor == NULL && TRII_UNLIKELY(trii_kept_is_lost(value)))
            return trii_refuse_stale(value->leaf);
        *w++ = (uint64_t)type->dtype | (uint64_t)type->ndim << 8 |
               (uint64_t)placement(tensor) << 16 | (uint64_t)(uint32_t)type->device << 32;
        *w++ = (uint64_t)(uintptr_t)trii_value_layout(value);
        for (int d = 0; d < type->ndim; d++)
            *w++ = (uint64_t)type->shape[d];
    }
    for (size_t o = 0; o < n_out; o++) {
        const trii_value *value = &s->values[r->pending.outputs[o]];
        const tri_tensor *bound = value->bound;
        uint64_t over = TRII_WORD_ABSENT; /* the input that the tensor's old contents are */

        if (value->replaces != TRII_NO_VALUE) {
            trii_value *old = &s->values[value->replaces];

            if (old->slot_segment == r->pending.number)
                over = (uint32_t)old->slot;
            else if (old->state == TRII_VALUE_READY && TRII_UNLIKELY(is_stale(old, bound)))
                return trii_refuse_stale(bound);
        }
        *w++ = (uint64_t)(uint32_t)value->slot | over << 32;
        *w++ = (uint64_t)value->keep | (uint64_t)placement(bound) << 1 |
               (uint64_t)(bound != NULL && bound->is_grad) << 3;
        *w++ = bound != NULL ? (uint64_t)(uintptr_t)bound->layout : 0;
        any_shares |= bound != NULL && bound->shares;
    }
    r->pending.n_key = (size_t)(w - r->pending.key);
    return TRII_UNLIKELY(any_shares) ? append_overlaps(r) : TRI_OK;
}

static void segment_begin(trii_recorder *r)
{
    r->step.first_pending = r->step.n_nodes;
    r->pending.n_key = 0;
    r->pending.n_inputs = 0;
    r->pending.n_outputs = 0;
    r->pending.n_ordinal = 0;
    r->pending.n_copied = 0;
    r->pending.any_stays = false;
    r->pending.number++;
}

/* Updates the values after a successful run. */
static void values_ready(trii_recorder *r, const trii_segment *segment)
{
    trii_step *s = &r->step;

    trii_grads_publish(r);
    for (int32_t n = segment->first_node; n < segment->end_node; n++) {
        const trii_node *node = &s->nodes[n];

        for (int o = 0; o < node->n_out; o++)
            s->values[node->first_out + o].state = TRII_VALUE_DROPPED;
    }
    for (int32_t o = 0; o < segment->n_outputs; o++)
        s->values[segment->outputs[o]].state = TRII_VALUE_READY;
    for (int32_t o = 0; o < segment->n_outputs; o++) {
        trii_value *value = &s->values[segment->outputs[o]];

        if (value->bound == NULL)
            continue;
        trii_hold_written(r, value->bound);
        value->version = value->bound->version;
        trii_tensor_rewritten(value->bound);
        if (TRII_UNLIKELY(value->bound->shares))
            trii_overlaps_written(s, value->bound);
        if (value->replaces != TRII_NO_VALUE) {
            trii_value *old = &s->values[value->replaces];

            if (old->storage == NULL && old->state == TRII_VALUE_READY)
                old->state = TRII_VALUE_DROPPED;
        }
    }
}

static void see_lost(void *unused, tri_tensor *other)
{
    (void)unused;
    trii_tensor_lose(other, tri_last_error());
}

/* Tensors that the run had begun to overwrite. Gradients are handled in step/grads.c. */
static void lose_torn(trii_recorder *r, const trii_segment *segment)
{
    const char *cause = r->failures.line != NULL ? r->failures.line : "out of memory";

    for (int32_t o = 0; o < segment->n_outputs; o++) {
        const trii_value *value = &r->step.values[segment->outputs[o]];

        if (value->bound == NULL || !value->torn)
            continue;
        trii_hold_written(r, value->bound);
        if (value->bound->is_grad)
            continue;
        (void)TRII_FAIL(TRI_ERR_STATE,
                        "the contents are lost, since a step that was overwriting them failed "
                        "(%s): set them again (tri_tensor_copy_in, or load a checkpoint)",
                        cause);
        trii_tensor_lose(value->bound, tri_last_error());
        if (value->bound->shares)
            trii_overlaps_visit(value->bound, see_lost, NULL);
    }
}

static void values_failed(trii_recorder *r, const trii_segment *segment, tri_status status)
{
    trii_step *s = &r->step;

    trii_step_fail_in(s, status, segment);
    lose_torn(r, segment);
    trii_hosts_abort(s, segment, r->failures.line != NULL ? r->failures.line : "out of memory");
    trii_err_set("%s", r->failures.line != NULL ? r->failures.line : "out of memory");
    for (int32_t n = segment->first_node; n < segment->end_node; n++) {
        const trii_node *node = &s->nodes[n];

        for (int o = 0; o < node->n_out; o++)
            trii_value_fail(r, &s->values[node->first_out + o], status);
    }
    trii_err_set("%s", r->failures.line != NULL ? r->failures.line : "out of memory");
}

static tri_status run_segment(trii_recorder *r, bool ending)
{
    trii_step *s = &r->step;
    const trii_executor *executor = atomic_load_explicit(&executor_now, memory_order_acquire);
    trii_segment segment = {.first_node = s->first_pending, .end_node = s->n_nodes};
    tri_status status = collect_outputs(r, ending);
    bool held;

    if (executor == NULL)
        executor = trii_executor_default;
    if (r->eager)
        executor = &trii_executor_reference;
    if (status == TRI_OK)
        /* until the run has ended nobody else may change layouts, which are in the key */
        status = trii_hold_run(r);
    held = status == TRI_OK;
    if (status == TRI_OK)
        status = close_key(r);
    segment.inputs = r->pending.inputs;
    segment.n_inputs = r->pending.n_inputs;
    segment.outputs = r->pending.outputs;
    segment.n_outputs = r->pending.n_outputs;
    segment.key = r->pending.key;
    segment.n_key = r->pending.n_key;
    if (status == TRI_OK && r->check)
        status = trii_nan_before(s, &segment);
    if (status == TRI_OK && TRII_UNLIKELY(r->pending.any_stays) && !r->check && !r->eager)
        trii_hosts_stay(s, &segment);
    if (status == TRI_OK)
        status = executor->run(s, &segment);
    if (status == TRI_OK && r->check)
        status = trii_nan_after(s, &segment);
    if (r->check)
        trii_nan_done(r);
    if (status == TRI_OK) {
        values_ready(r, &segment);
    } else {
        values_failed(r, &segment, status);
        trii_break(r);
    }
    if (TRII_LIKELY(held))
        trii_hold_end(r);
    segment_begin(r);
    return status;
}

/* The error of an earlier call that could not return it, once. */
static tri_status earlier_failure(trii_recorder *r)
{
    tri_status status = r->step.failed;

    if (status != TRI_OK)
        return TRII_FAIL(status, "%s",
                         r->failures.line != NULL ? r->failures.line : "out of memory");
    status = r->failures.carried;
    if (status != TRI_OK) {
        r->failures.carried = TRI_OK;
        return TRII_FAIL(status, "%s",
                         r->failures.carried_line != NULL ? r->failures.carried_line
                                                          : "out of memory");
    }
    return TRI_OK;
}

tri_status trii_step_run(trii_step *step)
{
    trii_step_count_round(step);
    return trii_step_catch_up(step);
}

tri_status trii_step_run_and_keep(trii_step *step)
{
    for (int32_t n = step->first_pending; n < step->n_nodes; n++) {
        const trii_node *node = &step->nodes[n];

        for (int o = 0; o < node->n_out; o++)
            step->values[node->first_out + o].keep = true;
    }
    return trii_step_run(step);
}

/* User code that is called by a run or a walk must not begin another. */
static tri_status check_outside(const trii_recorder *r)
{
    if (TRII_UNLIKELY(r->scopes.walking))
        return TRII_FAIL(TRI_ERR_STATE, "a step cannot run while its gradients are recorded");
    return trii_function_outside("a step was run");
}

tri_status trii_step_catch_up(trii_step *step)
{
    trii_recorder *r = trii_recorder_of(step);
    tri_status status = check_outside(r);

    if (status != TRI_OK)
        return status;
    status = earlier_failure(r);
    if (status == TRI_OK && step->first_pending < step->n_nodes)
        status = run_segment(r, false);
    r->failures.returned = step->failed != TRI_OK;
    return status;
}

tri_status tri_run(void)
{
    if (trii_recorder_mine() == NULL)
        return TRI_OK;
    return trii_step_run(&trii_recorder_mine()->step);
}

/* Whether running what is pending would change anything that outlives the step. */
static bool pending_matters(const trii_step *s)
{
    for (int32_t n = s->first_pending; n < s->n_nodes; n++) {
        const trii_node *node = &s->nodes[n];

        if (node->host != NULL)
            return true;
        for (int o = 0; o < node->n_out; o++) {
            if (s->values[node->first_out + o].bound != NULL)
                return true;
        }
    }
    return false;
}

tri_status tri_step_end_status(void)
{
    trii_recorder *r = trii_recorder_mine();
    trii_step *s;
    tri_status status;

    if (r == NULL)
        return TRI_OK;
    s = &r->step;
    status = check_outside(r);
    if (status != TRI_OK)
        return status;
    status = earlier_failure(r);
    if (status == TRI_OK && pending_matters(s))
        status = run_segment(r, true);
    if (status != TRI_OK)
        trii_grads_revert(r, NULL); /* what was recorded after the failure */
    else
        trii_grads_publish(r); /* there may have been nothing to run */
    for (int32_t v = 0; v < s->n_values; v++)
        trii_value_release(&s->values[v]);
    trii_hosts_release(r);
    trii_witnesses_ended(r);
    trii_failures_clear(r);
    if (TRII_UNLIKELY(r->check))
        trii_nan_done(r);
    if (r->names.n > 0)
        trii_names_clear(r);
    r->old_nodes = s->n_nodes;
    r->old_values = s->n_values;
    s->n_values = s->n_nodes = s->n_in_ids = 0;
    if (s->random_count > 0)
        s->random.step++;
    s->random_count = 0;
    s->n_seeded = 0;
    r->blocks.n = 0;
    if (TRII_UNLIKELY(r->regions.n > 0))
        trii_regions_end_step(r);
    r->rounds = (trii_rounds){0};
    s->failed = TRI_OK;
    r->failures.returned = false;
    trii_free(r->failures.line);
    r->failures.line = NULL;
    segment_begin(r);
    r->active = false;
    trii_live_end(r);
    return status;
}

void tri_step_end(void)
{
    trii_recorder *r = trii_recorder_mine();
    bool returned = r != NULL && r->failures.returned;
    tri_status status = tri_step_end_status();

    if (r == NULL || status == TRI_OK || returned)
        return;
    r->failures.carried = status;
    trii_free(r->failures.carried_line);
    r->failures.carried_line = trii_strdup(tri_last_error(), "error line");
}
