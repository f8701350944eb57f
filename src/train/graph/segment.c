/*
 * segment.c - turns the pending part of a step into a segment, has an executor run it (the plan, or
 * the reference interpreter), and records what became of its values. Called when somebody needs a
 * value (contents.c, the optimisers) and when the step ends; also where the failure of a step is
 * kept until a call can return it.
 */
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/graph/hold.h"
#include "train/graph/ops/function_guard.h"
#include "train/graph/recorder.h"

/* Rounds of one step after which it looks forgotten: more than anybody accumulates on purpose, and
 * few enough that a toy model warns within its first second. */
#define TRII_LONG_STEP 500
/* The same for steps of optimizers, of which more than one in a step is rare. */
#define TRII_MANY_UPDATES 64
/* Operations of a step: some hundred batches of a network of a hundred layers. */
#define TRII_MANY_NODES (1 << 17)

static _Atomic(const trii_executor *) executor_now;

void trii_executor_set(const trii_executor *executor)
{
    atomic_store(&executor_now, executor);
}

/* Tensors of one hook mostly follow each other; a hook may be called again. */
static void tell_hooks(const trii_step *step, const char *why)
{
    struct trii_grad_hook *last = NULL;

    for (int32_t v = 0; v < step->n_values; v++) {
        const tri_tensor *tensor = step->values[v].leaf;
        struct trii_grad_hook *hook = tensor != NULL ? tensor->grad_hook : NULL;

        if (hook == NULL || hook == last)
            continue;
        last = hook;
        if (hook->failed != NULL)
            hook->failed(hook, step, why);
    }
}

/* `segment` has run in part; NULL = nothing that is pending has begun, and it never will: peers
 * that wait for it get the reason instead. */
static void step_fail(trii_step *step, tri_status status, const trii_segment *segment)
{
    trii_recorder *r = trii_recorder_of(step);
    const trii_segment pending = {.first_node = step->first_pending, .end_node = step->n_nodes};

    if (step->failed != TRI_OK)
        return;
    step->failed = status;
    trii_free(r->failed_line);
    r->failed_line = trii_strdup(tri_last_error(), "error line");
    trii_grads_revert(r, segment);
    tell_hooks(step, r->failed_line != NULL ? r->failed_line : "out of memory");
    if (segment == NULL)
        trii_hosts_abort(step, &pending, r->failed_line != NULL ? r->failed_line : "out of memory");
    trii_err_set("%s", r->failed_line != NULL ? r->failed_line : "out of memory");
}

void trii_step_fail(trii_step *step, tri_status status)
{
    step_fail(step, status, NULL);
}

static tri_status push_output(trii_recorder *r, trii_vid id)
{
    if (r->n_outputs == r->cap_outputs) {
        void *array = r->outputs;
        tri_status status = trii_grow(&array, &r->cap_outputs, r->n_outputs + 1,
                                      sizeof(*r->outputs), "outputs of a segment");

        r->outputs = array;
        if (status != TRI_OK)
            return status;
    }
    r->outputs[r->n_outputs++] = id;
    return TRI_OK;
}

/* What must be readable afterwards: kept and bound values, and unless the step ends, what a
 * gradient recorded later may read: operands and results of nodes that have not been
 * differentiated. */
static tri_status collect_outputs(trii_recorder *r, bool ending)
{
    trii_step *s = &r->step;
    tri_status status = TRI_OK;

    r->n_outputs = 0;
    if (TRII_UNLIKELY(r->n_regions > 0) && !ending)
        trii_regions_keep(r);
    for (int32_t n = s->first_pending; n < s->n_nodes && !ending; n++) {
        const trii_node *node = &s->nodes[n];

        if (!node->requires_grad || node->differentiated || node->region > 0)
            continue;
        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = s->in_ids[node->first_in + i];

            if (in != TRII_NO_VALUE && s->values[in].state == TRII_VALUE_PENDING)
                s->values[in].keep = true;
        }
        for (int o = 0; o < node->n_out; o++)
            s->values[node->first_out + o].keep = true;
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
    return tensor == NULL ? 0 : tensor->stays_plain ? 3 : 1;
}

/* A tensor's contents must still be those that the step has read: the first run that reads them
 * notes their version. */
static inline bool is_stale(trii_value *value, const tri_tensor *tensor)
{
    if (value->version < 0)
        value->version = tensor->version;
    return value->version != tensor->version;
}

/* The end of the key: inputs with their types and layouts, and which values must survive where. */
static tri_status close_key(trii_recorder *r)
{
    trii_step *s = &r->step;
    size_t n_in = (size_t)r->n_inputs, n_out = (size_t)r->n_outputs;
    tri_status status = trii_key_reserve(r, n_in * (3 + TRI_MAX_DIMS) + n_out * 3 + 2);
    uint64_t *w;

    if (status != TRI_OK)
        return status;
    w = r->key + r->n_key;
    *w++ = n_in << 32 | n_out;
    for (size_t i = 0; i < n_in; i++) {
        trii_value *value = &s->values[r->inputs[i]];
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
        const trii_value *value = &s->values[r->outputs[o]];
        uint64_t over = TRII_WORD_ABSENT; /* the input that the tensor's old contents are */

        if (value->replaces != TRII_NO_VALUE) {
            trii_value *old = &s->values[value->replaces];

            if (old->slot_segment == r->segment)
                over = (uint32_t)old->slot;
            else if (old->state == TRII_VALUE_READY && TRII_UNLIKELY(is_stale(old, value->bound)))
                return trii_refuse_stale(value->bound);
        }
        *w++ = (uint64_t)(uint32_t)value->slot | over << 32;
        *w++ = (uint64_t)value->keep | (uint64_t)placement(value->bound) << 1 |
               (uint64_t)(value->bound != NULL && value->bound->is_grad) << 3;
        *w++ = value->bound != NULL ? (uint64_t)(uintptr_t)value->bound->layout : 0;
    }
    r->n_key = (size_t)(w - r->key);
    return TRI_OK;
}

/* Four independent hashes, so that multiplications overlap. */
static uint64_t hash_key(const uint64_t *w, size_t n)
{
    const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t h[4] = {n, 1, 2, 3}, all;
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        for (size_t j = 0; j < 4; j++) {
            h[j] = (h[j] ^ w[i + j]) * k;
            h[j] ^= h[j] >> 29;
        }
    }
    for (; i < n; i++) {
        h[0] = (h[0] ^ w[i]) * k;
        h[0] ^= h[0] >> 29;
    }
    all = h[0];
    for (size_t j = 1; j < 4; j++)
        all = ((all << 23 | all >> 41) ^ h[j]) * k;
    return all ^ all >> 32;
}

static void segment_begin(trii_recorder *r)
{
    r->step.first_pending = r->step.n_nodes;
    r->n_key = 0;
    r->n_inputs = 0;
    r->n_outputs = 0;
    r->n_ordinal = 0;
    r->n_copied = 0;
    r->any_stays = false;
    r->segment++;
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
        if (value->replaces != TRII_NO_VALUE) {
            trii_value *old = &s->values[value->replaces];

            if (old->storage == NULL && old->state == TRII_VALUE_READY)
                old->state = TRII_VALUE_DROPPED;
        }
    }
}

/* Tensors that the run had begun to overwrite. Gradients are handled in gradient.c. */
static void lose_torn(trii_recorder *r, const trii_segment *segment)
{
    const char *cause = r->failed_line != NULL ? r->failed_line : "out of memory";

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
        trii_tensor_lose(value->bound);
    }
}

static void values_failed(trii_recorder *r, const trii_segment *segment, tri_status status)
{
    trii_step *s = &r->step;

    step_fail(s, status, segment);
    lose_torn(r, segment);
    trii_hosts_abort(s, segment, r->failed_line != NULL ? r->failed_line : "out of memory");
    trii_err_set("%s", r->failed_line != NULL ? r->failed_line : "out of memory");
    for (int32_t n = segment->first_node; n < segment->end_node; n++) {
        const trii_node *node = &s->nodes[n];

        for (int o = 0; o < node->n_out; o++)
            trii_value_fail(r, &s->values[node->first_out + o], status);
    }
    trii_err_set("%s", r->failed_line != NULL ? r->failed_line : "out of memory");
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
    segment.inputs = r->inputs;
    segment.n_inputs = r->n_inputs;
    segment.outputs = r->outputs;
    segment.n_outputs = r->n_outputs;
    segment.key = r->key;
    segment.n_key = r->n_key;
    segment.hash = hash_key(r->key, r->n_key);
    if (status == TRI_OK && r->check)
        status = trii_nan_before(s, &segment);
    if (status == TRI_OK && TRII_UNLIKELY(r->any_stays) && !r->check && !r->eager)
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

tri_status trii_node_failed(const trii_step *step, int32_t n, tri_status status)
{
    const trii_node *node = &step->nodes[n];
    const char *prefix = node->host != NULL ? "" : "tri_";
    const char *name = node->host != NULL ? node->host->kind->name : node->op->name;

    if (node->site.file != NULL)
        return TRII_FAIL_CTX(status, "%s%s at %s:%d, operation %d of the step", prefix, name,
                             node->site.file, node->site.line, n + 1);
    return TRII_FAIL_CTX(status, "%s%s, operation %d of the step", prefix, name, n + 1);
}

/* The error of an earlier call that could not return it, once. */
static tri_status earlier_failure(trii_recorder *r)
{
    tri_status status = r->step.failed;

    if (status != TRI_OK)
        return TRII_FAIL(status, "%s", r->failed_line != NULL ? r->failed_line : "out of memory");
    status = r->carried;
    if (status != TRI_OK) {
        r->carried = TRI_OK;
        return TRII_FAIL(status, "%s", r->carried_line != NULL ? r->carried_line : "out of memory");
    }
    return TRI_OK;
}

/* A loop that never ends its step keeps everything that it recorded, and goes through it again and
 * again: each round is slower than the one before, and nothing fails. */
static TRII_NOINLINE void warn_of_endless_step(const trii_step *s, int times, const char *what)
{
    static atomic_bool warned;
    trii_site site = trii_site_last();

    if (atomic_exchange(&warned, true))
        return;
    TRII_LOG(
        TRII_LOG_WARN, "graph",
        "%d %s one step, which has %d operations now (%s:%d): it grows with each, and so do its "
        "time and memory; call tri_step_end after each batch",
        times, what, s->n_nodes, site.file != NULL ? site.file : "?", site.line);
}

/* A round: something was recorded, then somebody asked for a value. */
static void count_round(trii_recorder *r)
{
    if (r->step.n_nodes == r->counted_nodes)
        return;
    r->counted_nodes = r->step.n_nodes;
    if (TRII_UNLIKELY(++r->rounds == TRII_LONG_STEP))
        warn_of_endless_step(&r->step, r->rounds, "rounds of asking for values in");
}

/* Here nobody asks for a value either, so nothing is freed. */
void trii_step_grew(const trii_step *step)
{
    static atomic_bool warned;
    trii_site site = trii_site_last();

    if (step->n_nodes < TRII_MANY_NODES || atomic_exchange(&warned, true))
        return;
    TRII_LOG(TRII_LOG_WARN, "graph",
             "one step has %d operations now (%s:%d), and its memory grows with them; call "
             "tri_step_end after each batch",
             step->n_nodes, site.file != NULL ? site.file : "?", site.line);
}

void trii_step_count_update(trii_step *step)
{
    trii_recorder *r = trii_recorder_of(step);

    if (TRII_UNLIKELY(++r->updates == TRII_MANY_UPDATES))
        warn_of_endless_step(step, r->updates, "calls of tri_optimizer_step in");
}

tri_status trii_step_run(trii_step *step)
{
    count_round(trii_recorder_of(step));
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
    if (TRII_UNLIKELY(r->walking))
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
    r->failure_returned = step->failed != TRI_OK;
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
    trii_failures_clear(r);
    if (r->n_names > 0)
        trii_names_clear(r);
    r->old_nodes = s->n_nodes;
    r->old_values = s->n_values;
    s->n_values = s->n_nodes = s->n_in_ids = 0;
    if (s->random_count > 0)
        s->random.step++;
    s->random_count = 0;
    s->n_seeded = 0;
    r->n_blocks = 0;
    if (TRII_UNLIKELY(r->n_regions > 0))
        trii_regions_end_step(r);
    r->counted_nodes = r->rounds = r->updates = 0;
    s->failed = TRI_OK;
    r->failure_returned = false;
    trii_free(r->failed_line);
    r->failed_line = NULL;
    segment_begin(r);
    r->active = false;
    trii_live_end(r);
    return status;
}

void tri_step_end(void)
{
    trii_recorder *r = trii_recorder_mine();
    bool returned = r != NULL && r->failure_returned;
    tri_status status = tri_step_end_status();

    if (r == NULL || status == TRI_OK || returned)
        return;
    r->carried = status;
    trii_free(r->carried_line);
    r->carried_line = trii_strdup(tri_last_error(), "error line");
}
