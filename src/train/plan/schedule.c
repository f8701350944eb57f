/*
 * schedule.c - assigns memory to the values of a plan; called by plan.c when kernels are compiled.
 * order.c or queue_order.c order the entries before, memory.c places the buffers, pointers.c and
 * queue_events.c finish the entries.
 *
 * Every value has a buffer. A buffer lies in the arena, is an input's contents, or is an output (a
 * bound tensor, or storage that outlives the run). A value shares its reader's buffer where that
 * saves a copy: what a host operation or a view passes on, and what an element-wise kernel may
 * overwrite. Updates are written into their tensors when nothing of the step can fail any more,
 * where that is cheap.
 */
#include "train/plan/schedule.h"

#include "base/alloc.h"
#include "train/graph/step/type.h"
#include "train/plan/memory.h"
#include "train/tensor/device_memory.h"
#include "train/tensor/sharing.h"

#define SMALL_BYTES 16384

/* --- buffers -------------------------------------------------------------- */

/* Whether result o of a host operation may lie on its operand o. */
static bool lies_on_operand(const trii_schedule *s, const trii_group *group, int32_t o)
{
    const trii_ir_node *node = &s->ir->nodes[group->nodes[0]];
    const trii_host_op *host = s->step->nodes[s->segment->first_node + node->source].host;

    if (!host->kind->in_place || o >= node->n_in)
        return false;
    for (int32_t i = 0; i < node->n_in; i++) {
        if (i != o && node->in[i] == node->in[o])
            return false; /* it is another operand as well */
    }
    return trii_type_equal(&s->ir->values[node->in[o]].type, &s->ir->values[node->out[o]].type);
}

/* From the last group to the first, so that a reader's buffer is known when its input is placed. */
static void place_values(trii_schedule *s)
{
    trii_ir *ir = s->ir;

    for (int32_t v = 0; v < ir->n_values; v++) {
        if (ir->values[v].input >= 0)
            ir->values[v].buffer = trii_buffer_add(s, TRII_PLACE_INPUT, ir->values[v].input,
                                                   trii_type_queue(s, &ir->values[v].type), 0);
    }
    for (int32_t g = ir->n_groups - 1; g >= 0; g--) {
        trii_group *group = ir->groups[g];

        for (int32_t o = 0; o < group->n_out; o++) {
            trii_ir_value *value = &ir->values[group->out[o]];
            bool view = group->kind == TRII_GROUP_VIEW;

            if (value->base >= 0)
                continue; /* a view */
            if (value->buffer < 0 && value->output >= 0)
                value->buffer = trii_buffer_add(s, TRII_PLACE_OUTPUT, value->output,
                                                trii_type_queue(s, &value->type),
                                                trii_value_bytes(s, group, o));
            else if (value->buffer < 0 && !view)
                value->buffer =
                    trii_buffer_add(s, TRII_PLACE_ARENA, -1, trii_type_queue(s, &value->type),
                                    trii_value_bytes(s, group, o));
            else if (value->buffer < 0)
                s->view_of[group->out[o]] = group->in[0];
        }
        for (int32_t i = 0; i < group->n_in; i++) {
            const trii_ir_node *node = &ir->nodes[group->nodes[0]];
            trii_ir_value *value = &ir->values[group->in[i]];

            if ((group->kind != TRII_GROUP_HOST && group->kind != TRII_GROUP_VIEW) ||
                value->buffer >= 0 || value->output >= 0 || value->base >= 0 ||
                s->readers[group->in[i]] != 1)
                continue;
            for (int32_t o = 0; o < node->n_out && o < node->n_in; o++) {
                if (node->in[o] == group->in[i] && ir->values[node->out[o]].buffer >= 0 &&
                    (group->kind != TRII_GROUP_HOST || lies_on_operand(s, group, o))) {
                    value->buffer = ir->values[node->out[o]].buffer;
                    break;
                }
            }
        }
    }
}

static void touch_group(trii_schedule *s, const trii_group *group, int32_t entry)
{
    for (int32_t i = 0; i < group->n_in; i++)
        trii_buffer_touch(s, trii_buffer_of(s, group->in[i]), entry);
    for (int32_t o = 0; o < group->n_out; o++)
        trii_buffer_touch(s, trii_buffer_of(s, group->out[o]), entry);
}

static void live_ranges(trii_schedule *s)
{
    for (int32_t e = 0; e < s->n_entries; e++) {
        int32_t g = s->entry_group[e];

        if (g >= 0)
            touch_group(s, s->ir->groups[g], e);
        if (s->plan->entries[e].kind == TRII_ENTRY_WAIT) /* in use from the start to here */
            touch_group(s, s->ir->groups[s->entry_group[s->host_start[s->plan->entries[e].host]]],
                        e);
    }
}

static int32_t find(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] == id)
            return i;
    }
    return -1;
}

/* Whether the group reads the memory of input i, which is not a view, through that input only:
 * another input (a view, or another name of the same elements) would see what is written over
 * it. */
static bool reads_once(const trii_schedule *s, const trii_group *group, int32_t i)
{
    if (s->ir->values[group->in[i]].base >= 0)
        return false;
    for (int32_t k = 0; k < group->n_in; k++) {
        if (k != i && trii_buffer_of(s, group->in[k]) == trii_buffer_of(s, group->in[i]))
            return false;
    }
    return true;
}

/* Whether entry e's kernel may write value `out` over its own input `in`. */
static bool may_overwrite(const trii_schedule *s, int32_t e, int32_t in, int32_t out)
{
    const trii_group *group = s->ir->groups[s->entry_group[e]];
    int32_t i = find(group->in, group->n_in, in), o = find(group->out, group->n_out, out);

    if (i >= 0 && !reads_once(s, group, i))
        return false;
    if (group->kind == TRII_GROUP_HOST) {
        const trii_ir_node *host = &s->ir->nodes[group->nodes[0]];

        o = find(host->out, host->n_out, out);
        return o >= 0 && o < host->n_in && host->in[o] == in && lies_on_operand(s, group, o);
    }
    if (group->kernel == NULL || i < 0 || o < 0)
        return false;
    if (group->kernel->in_place != NULL && (group->kernel->in_place[o] >> i & 1) != 0)
        return true;
    for (int32_t n = 0; n < group->n_nodes; n++) {
        const trii_ir_node *node = &s->ir->nodes[group->nodes[n]];

        for (int32_t k = 0; k < node->n_out && k < 8; k++) {
            if (node->out[k] == out && (node->op->alias_mask >> k & 1) != 0 &&
                node->in[node->op->alias[k]] == in)
                return true;
        }
    }
    return false;
}

static const tri_tensor *bound_to(const trii_schedule *s, int32_t value)
{
    return s->step->values[s->segment->outputs[s->ir->values[value].output]].bound;
}

/* The last entry that reads memory of the tensor by way of another one that shares it; -1. */
static int32_t last_shared_read(const trii_schedule *s, const tri_tensor *tensor)
{
    int32_t last = -1;

    if (TRII_LIKELY(!tensor->shares))
        return -1;
    for (int32_t b = 0; b < s->n_buffers; b++) {
        const trii_buffer *buffer = &s->buffers[b];
        const tri_tensor *other =
            buffer->place == TRII_PLACE_INPUT ? trii_buffer_tensor(s, buffer) : NULL;

        if (other != NULL && other != tensor && buffer->last > last &&
            trii_tensors_overlap(other, tensor))
            last = buffer->last;
    }
    return last;
}

/* A bound tensor is written while the step runs, so nobody may need its old contents after the
 * first write. */
static bool safe_to_bind(const trii_schedule *s, int32_t value)
{
    const trii_ir *ir = s->ir;
    int32_t b = trii_buffer_of(s, value), first = s->buffers[b].first;
    int32_t old = ir->values[value].old, last;

    if (last_shared_read(s, bound_to(s, value)) >= first)
        return false;
    if (old < 0)
        return true;
    last = s->buffers[trii_buffer_of(s, old)].last;
    return last < first || (last == first && may_overwrite(s, first, old, value));
}

/* The last entry that may fail although recording succeeded. */
static int32_t last_risk(const trii_schedule *s)
{
    int32_t e = s->n_entries - 1;

    while (e >= 0 && !trii_entry_may_fail(s, e))
        e--;
    return e;
}

/* Whether the value would reach its tensor even if the step fails later. Running statistics,
 * counters and small parameters are held back until the end: copying them costs nothing measurable.
 * Large ones are reported as lost if it comes to that. An incomplete gradient is none, and a host
 * operation's result has to lie in its tensor. */
static bool is_hasty(const trii_schedule *s, int32_t value, int32_t risk)
{
    const trii_ir *ir = s->ir;
    const trii_buffer *b = &s->buffers[trii_buffer_of(s, value)];

    return b->first < risk && b->bytes <= SMALL_BYTES &&
           ir->groups[ir->values[value].group]->kind != TRII_GROUP_HOST &&
           !bound_to(s, value)->is_grad;
}

/* Outputs that must not be written in place until everything has succeeded go through the arena. */
static void defer_unsafe_outputs(trii_schedule *s)
{
    trii_ir *ir = s->ir;
    int32_t risk = last_risk(s);

    for (int32_t v = 0; v < ir->n_values; v++) {
        trii_buffer *b;

        if (ir->values[v].output < 0 || !ir->values[v].bound ||
            (safe_to_bind(s, v) && !is_hasty(s, v, risk)))
            continue;
        b = &s->buffers[trii_buffer_of(s, v)];
        b->place = TRII_PLACE_ARENA;
        b->last = s->n_entries + s->n_late;
        s->late[s->n_late++] = v;
    }
}

/* Element-wise kernels write over an input that nobody needs any more. */
static void merge_in_place(trii_schedule *s)
{
    for (int32_t e = 0; e < s->n_entries; e++) {
        int32_t g = s->entry_group[e];
        const trii_group *group = g >= 0 ? s->ir->groups[g] : NULL;

        if (group == NULL || group->kernel == NULL || group->kernel->in_place == NULL)
            continue;
        for (int32_t o = 0; o < group->n_out; o++) {
            int32_t to = trii_buffer_of(s, group->out[o]);

            if (s->buffers[to].place != TRII_PLACE_ARENA || s->buffers[to].first != e ||
                s->ir->values[group->out[o]].base >= 0)
                continue;
            for (int32_t i = 0; i < group->n_in; i++) {
                int32_t from = trii_buffer_of(s, group->in[i]);

                if ((group->kernel->in_place[o] >> i & 1) == 0 || from == to ||
                    s->buffers[from].place != TRII_PLACE_ARENA || s->buffers[from].last != e ||
                    s->buffers[from].packed >= 0 ||
                    s->buffers[from].bytes != s->buffers[to].bytes || !reads_once(s, group, i))
                    continue;
                s->buffers[to].first = s->buffers[from].first;
                s->buffers[from].merged = to;
                break;
            }
        }
    }
}

/* The part of the arena that belongs to the queue, or its own arena: only its values lie there. */
static tri_status plan_part(trii_schedule *s, int32_t queue, trii_interval *intervals)
{
    bool own = !trii_is_host(s->plan->queues[queue].device);
    size_t bytes = 0, begin = own ? 0 : s->plan->arena_bytes;
    int32_t n = 0;
    tri_status status;

    for (int pass = 0; pass < 2; pass++) {
        for (int32_t b = 0; b < s->n_buffers; b++) {
            trii_buffer *buf = &s->buffers[b];

            if (buf->place != TRII_PLACE_ARENA || buf->merged >= 0 || buf->last < 0 ||
                trii_buffer_queue(buf) != queue)
                continue;
            if (pass == 0)
                intervals[n++] = (trii_interval){buf->bytes, buf->first, buf->last, 0};
            else
                buf->offset = begin + intervals[n++].offset;
        }
        if (pass == 1)
            break;
        status = trii_memory_plan(intervals, n, &bytes);
        if (status != TRI_OK)
            return status;
        n = 0;
    }
    if (own)
        s->plan->queues[queue].arena_bytes = bytes;
    s->plan->own_arenas |= own && bytes > 0;
    if (!own)
        s->plan->arena_bytes += bytes;
    return TRI_OK;
}

static tri_status plan_arena(trii_schedule *s)
{
    trii_interval *intervals = trii_alloc((size_t)s->n_buffers, sizeof(*intervals), "memory plan");
    tri_status status = intervals != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int32_t l = 0; l < s->plan->n_queues && status == TRI_OK; l++)
        status = plan_part(s, l, intervals);
    trii_free(intervals);
    return status;
}

static void add_scratch(trii_schedule *s)
{
    for (int32_t e = 0; e < s->n_entries; e++) {
        const trii_group *group = s->entry_group[e] >= 0 ? s->ir->groups[s->entry_group[e]] : NULL;

        s->scratch[e] = -1;
        if (group == NULL || group->kernel == NULL || group->kernel->scratch_bytes == 0)
            continue;
        s->scratch[e] = trii_buffer_add(s, TRII_PLACE_ARENA, -1, s->entry_queue[e],
                                        group->kernel->scratch_bytes);
        trii_buffer_touch(s, s->scratch[e], e);
    }
}

/* --- the rest ------------------------------------------------------------- */

static tri_status describe_outputs(trii_schedule *s)
{
    trii_plan *plan = s->plan;

    if (TRII_NEW(&plan->pool, s->segment->n_outputs, plan->output) == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];

        for (int32_t o = 0; o < group->n_out; o++) {
            const trii_ir_value *value = &s->ir->values[group->out[o]];

            if (value->output < 0)
                continue;
            plan->output[value->output] = (trii_plan_output){.bound = value->bound,
                                                             .device = value->type.device,
                                                             .bytes = trii_value_bytes(s, group, o),
                                                             .layout = group->out_layout[o]};
        }
    }
    for (int32_t o = 0; o < s->segment->n_outputs; o++)
        plan->output[o].first = INT32_MAX;
    for (int32_t b = 0; b < s->n_buffers; b++) {
        const trii_buffer *buf = &s->buffers[b];

        if (buf->place == TRII_PLACE_OUTPUT && buf->first < s->n_entries &&
            s->kept[buf->first] >= 0 && s->kept[buf->first] < plan->output[buf->index].first) {
            plan->output[buf->index].first = s->kept[buf->first];
            plan->output[buf->index].queue = s->entry_queue[buf->first];
        }
    }
    return TRI_OK;
}

static tri_status allocate(trii_schedule *s, int32_t n_hosts)
{
    const trii_ir *ir = s->ir;
    trii_pool *pool = ir->pool;
    int32_t n_entries = ir->n_groups + n_hosts + ir->n_values;
    bool ok = TRII_NEW(pool, ir->n_values * 2 + n_entries, s->buffers) != NULL;

    ok = ok && TRII_NEW(pool, ir->n_values, s->readers) != NULL;
    ok = ok && TRII_NEW(pool, ir->n_values, s->view_of) != NULL;
    ok = ok && TRII_NEW(pool, ir->n_values, s->late) != NULL;
    ok = ok && TRII_NEW(pool, ir->n_values, s->late_to) != NULL;
    ok = ok && TRII_NEW(pool, ir->n_groups, s->host_of) != NULL;
    ok = ok && TRII_NEW(pool, ir->n_groups, s->group_entry) != NULL;
    ok = ok && TRII_NEW(pool, ir->n_groups, s->group_queue) != NULL;
    ok = ok && TRII_NEW(pool, n_hosts, s->host_state) != NULL;
    ok = ok && TRII_NEW(pool, n_hosts, s->host_start) != NULL;
    ok = ok && TRII_NEW(pool, n_hosts, s->host_group) != NULL;
    ok = ok && TRII_NEW(pool, n_hosts, s->unstarted) != NULL;
    ok = ok && TRII_NEW(pool, ir->n_groups, s->done) != NULL;
    ok = ok && TRII_NEW(pool, n_entries, s->entry_group) != NULL;
    ok = ok && TRII_NEW(pool, n_entries, s->entry_queue) != NULL;
    ok = ok && TRII_NEW(pool, n_entries, s->scratch) != NULL;
    ok = ok && TRII_NEW(pool, n_entries, s->kept) != NULL;
    ok = ok && TRII_NEW(&s->plan->pool, n_entries, s->plan->entries) != NULL;
    ok = ok && TRII_NEW(&s->plan->pool, n_hosts, s->plan->hosts) != NULL;
    return ok ? TRI_OK : TRI_ERR_NO_MEMORY;
}

tri_status trii_plan_schedule(trii_plan *plan, trii_ir *ir, const trii_step *step,
                              const trii_segment *segment)
{
    trii_schedule s = {.plan = plan, .ir = ir, .step = step, .segment = segment};
    int32_t n_hosts = 0;
    tri_status status;

    for (int32_t g = 0; g < ir->n_groups; g++)
        n_hosts += ir->groups[g]->kind == TRII_GROUP_HOST;
    status = allocate(&s, n_hosts);
    if (status != TRI_OK)
        return status;
    plan->n_hosts = 0;
    for (int32_t v = 0; v < ir->n_values; v++)
        s.view_of[v] = ir->values[v].base;
    for (int32_t g = 0; g < ir->n_groups; g++) {
        const trii_group *group = ir->groups[g];

        s.host_of[g] = -1;
        s.group_entry[g] = -1;
        if (group->kind == TRII_GROUP_HOST) {
            s.host_group[plan->n_hosts] = g;
            s.host_of[g] = plan->n_hosts++;
        }
        for (int32_t i = 0; i < group->n_in; i++)
            s.readers[group->in[i]]++;
        for (int32_t o = 0; o < group->n_out; o++)
            ir->values[group->out[o]].group = g;
    }
    status = trii_queues_find(&s);
    if (status == TRI_OK)
        status = trii_order_hosts(&s);
    if (status == TRI_OK && plan->n_queues > 1)
        status = trii_queues_order(&s);
    else if (status == TRI_OK)
        status = trii_order(&s);
    if (status != TRI_OK)
        return status;
    place_values(&s);
    live_ranges(&s);
    add_scratch(&s);
    defer_unsafe_outputs(&s);
    status = trii_prepack_find(&s);
    if (status != TRI_OK)
        return status;
    merge_in_place(&s);
    status = plan_arena(&s);
    if (status == TRI_OK)
        trii_prepack_place(&s);
    if (status == TRI_OK)
        status = trii_plan_pointers(&s);
    if (status == TRI_OK && plan->n_queues > 1)
        status = trii_queues_connect(&s);
    if (status == TRI_OK)
        status = describe_outputs(&s);
    return status;
}
