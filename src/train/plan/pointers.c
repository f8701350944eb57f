/*
 * pointers.c - the pointers of a plan's entries: which argument points into an input, an output or
 * an arena, and at which offset; and which copies have nothing to do. The last pass; called by
 * schedule.c. At run time only the slots that are found here are written (run.c).
 */
#include "train/plan/schedule.h"
#include "train/tensor/device_memory.h"

/* All slots of all entries, with the buffers that they point into. */
typedef struct wiring {
    const trii_schedule *s;
    void ***slots;
    int32_t *buffers;
    int64_t *offsets; /* from the start of the buffer */
    int32_t n;
} wiring;

static void wire_buffer(wiring *w, void **slot, int32_t b)
{
    w->slots[w->n] = slot;
    w->offsets[w->n] = 0;
    w->buffers[w->n++] = trii_buffer_root(w->s, b);
}

static void wire(wiring *w, void **slot, int32_t value)
{
    wire_buffer(w, slot, trii_buffer_of(w->s, value));
    w->offsets[w->n - 1] = w->s->ir->values[value].offset;
}

static tri_status wire_host(wiring *w, const trii_group *group, trii_plan_host *host)
{
    trii_pool *pool = &w->s->plan->pool;
    const trii_ir_node *node = &w->s->ir->nodes[group->nodes[0]];
    const trii_layout **in_layout, **out_layout;

    if (TRII_NEW(pool, node->n_in, host->buffers.in) == NULL ||
        TRII_NEW(pool, node->n_out, host->buffers.out) == NULL ||
        TRII_NEW(pool, node->n_in, in_layout) == NULL ||
        TRII_NEW(pool, node->n_out, out_layout) == NULL)
        return TRI_ERR_NO_MEMORY;
    host->node = node->source;
    for (int32_t i = 0; i < node->n_in; i++) {
        wire(w, &host->buffers.in[i], node->in[i]);
        for (int32_t k = 0; k < group->n_in; k++) {
            if (group->in[k] == node->in[i])
                in_layout[i] = group->in_layout[k];
        }
    }
    for (int32_t o = 0; o < node->n_out; o++) {
        wire(w, &host->buffers.out[o], node->out[o]);
        for (int32_t k = 0; k < group->n_out; k++) {
            if (group->out[k] == node->out[o])
                out_layout[o] = group->out_layout[k];
        }
    }
    host->buffers.in_layout = in_layout;
    host->buffers.out_layout = out_layout;
    return TRI_OK;
}

static void make_copy(trii_entry *entry, const trii_type *from, const trii_type *to, size_t bytes)
{
    bool host = trii_is_host(from->device) && trii_is_host(to->device);

    entry->kind = host ? TRII_ENTRY_COPY : TRII_ENTRY_MOVE;
    entry->from = from->device;
    entry->to = to->device;
    entry->bytes = bytes;
}

static tri_status wire_entry(wiring *w, int32_t e)
{
    const trii_schedule *s = w->s;
    trii_entry *entry = &s->plan->entries[e];
    const trii_group *group = s->ir->groups[s->entry_group[e]];
    int32_t n = 0;

    if (entry->kind == TRII_ENTRY_START)
        return wire_host(w, group, &s->plan->hosts[entry->host]);
    if (TRII_NEW(&s->plan->pool, group->n_in + group->n_out + 1, entry->args) == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t i = 0; i < group->n_in; i++)
        wire(w, &entry->args[n++], group->in[i]);
    for (int32_t o = 0; o < group->n_out; o++)
        wire(w, &entry->args[n++], group->out[o]);
    if (s->scratch[e] >= 0)
        wire_buffer(w, &entry->args[n++], s->scratch[e]);
    entry->kernel = group->kernel;
    if (group->kind == TRII_GROUP_VIEW || group->kind == TRII_GROUP_JOIN ||
        group->kind == TRII_GROUP_TRANSFER) {
        make_copy(entry, &s->ir->values[group->in[0]].type, &s->ir->values[group->out[0]].type,
                  trii_value_bytes(s, group, 0));
    }
    return TRI_OK;
}

/* Number of the buffer among those that have slots of this kind (ARENA: copies that may be kept);
 * -1 = it has none. */
static int32_t number_of(const trii_buffer *b, trii_place where)
{
    if (where == TRII_PLACE_ARENA)
        return b->packed;
    return b->place == where ? b->index : -1;
}

/* Sorts the slots of one kind by index. */
static tri_status fill_slots(const wiring *w, trii_slots *slots, trii_place where, int32_t n)
{
    trii_pool *pool = &w->s->plan->pool;
    const trii_buffer *buffers = w->s->buffers;
    int32_t total = 0;

    slots->n = n;
    if (TRII_NEW(pool, n + 1, slots->first) == NULL || TRII_NEW(pool, n, slots->now) == NULL ||
        TRII_NEW(pool, w->n, slots->slots) == NULL || TRII_NEW(pool, w->n, slots->offsets) == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t k = 0; k < w->n; k++) {
        if (number_of(&buffers[w->buffers[k]], where) >= 0)
            slots->first[number_of(&buffers[w->buffers[k]], where) + 1]++;
    }
    for (int32_t i = 0; i < n; i++)
        slots->first[i + 1] += slots->first[i];
    total = slots->first[n];
    for (int32_t k = w->n - 1; k >= 0; k--) {
        int32_t i = number_of(&buffers[w->buffers[k]], where);

        if (i >= 0) {
            int32_t at = --slots->first[i + 1];

            slots->slots[at] = w->slots[k];
            slots->offsets[at] = w->offsets[k];
        }
    }
    /* first[i + 1] is where i begins now: shift back. */
    for (int32_t i = 0; i < n; i++)
        slots->first[i] = slots->first[i + 1];
    slots->first[n] = total;
    return TRI_OK;
}

static int32_t arena_of(const trii_plan *plan, const trii_buffer *b)
{
    return trii_is_host(plan->queues[trii_buffer_queue(b)].device) ? -1 : trii_buffer_queue(b);
}

static tri_status fill_arena_slots(const wiring *w)
{
    trii_plan *plan = w->s->plan;

    if (TRII_NEW(&plan->pool, w->n, plan->arena_slots) == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t k = 0; k < w->n; k++) {
        const trii_buffer *b = &w->s->buffers[w->buffers[k]];

        if (b->place == TRII_PLACE_ARENA && b->packed < 0)
            plan->arena_slots[plan->n_arena_slots++] = (trii_arena_slot){
                w->slots[k], b->offset + (size_t)w->offsets[k], arena_of(plan, b)};
    }
    return TRI_OK;
}

/* Copies of outputs that are written at the end, after all other entries. They write through the
 * output's slot. */
static tri_status add_late_copies(wiring *w, trii_schedule *s)
{
    for (int32_t l = 0; l < s->n_late; l++) {
        trii_ir_value *value = &s->ir->values[s->late[l]];
        trii_entry *entry = &s->plan->entries[s->n_entries];
        int32_t from = trii_buffer_of(s, s->late[l]);
        int32_t to = trii_buffer_add(s, TRII_PLACE_OUTPUT, value->output,
                                     trii_type_queue(s, &value->type), s->buffers[from].bytes);

        trii_buffer_touch(s, to, s->n_entries);
        *entry = (trii_entry){.node = -1};
        make_copy(entry, &value->type, &value->type, s->buffers[from].bytes);
        if (TRII_NEW(&s->plan->pool, 2, entry->args) == NULL)
            return TRI_ERR_NO_MEMORY;
        wire_buffer(w, &entry->args[0], from);
        wire_buffer(w, &entry->args[1], to);
        s->late_to[l] = to;
        s->entry_queue[s->n_entries] = trii_buffer_queue(&s->buffers[to]);
        s->entry_group[s->n_entries++] = -1;
    }
    return TRI_OK;
}

/* Views that share their input's buffer, and copies of no elements, whose memory may be none
 * (NULL). */
static bool has_nothing_to_do(const trii_schedule *s, const trii_entry *entry,
                              const trii_group *group)
{
    return entry->bytes == 0 ||
           (group != NULL && trii_buffer_of(s, group->in[0]) == trii_buffer_of(s, group->out[0]));
}

tri_status trii_plan_pointers(trii_schedule *s)
{
    trii_plan *plan = s->plan;
    int32_t room = 2 * s->n_late, n_planned = s->n_entries, kept = 0;
    wiring w = {.s = s};
    tri_status status = TRI_OK;

    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];
        const trii_ir_node *node = &s->ir->nodes[group->nodes[0]];

        room += group->n_in + group->n_out + 1;
        if (group->kind == TRII_GROUP_HOST)
            room += node->n_in + node->n_out;
    }
    if (TRII_NEW(s->ir->pool, room, w.slots) == NULL ||
        TRII_NEW(s->ir->pool, room, w.buffers) == NULL ||
        TRII_NEW(s->ir->pool, room, w.offsets) == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int32_t e = 0; status == TRI_OK && e < n_planned; e++) {
        if (s->entry_group[e] >= 0)
            status = wire_entry(&w, e);
    }
    if (status == TRI_OK)
        status = add_late_copies(&w, s);
    if (status == TRI_OK)
        status = fill_slots(&w, &plan->inputs, TRII_PLACE_INPUT, s->segment->n_inputs);
    if (status == TRI_OK)
        status = fill_slots(&w, &plan->outputs, TRII_PLACE_OUTPUT, s->segment->n_outputs);
    if (status == TRI_OK)
        status = fill_slots(&w, &plan->packed_slots, TRII_PLACE_ARENA, plan->n_packed);
    if (status == TRI_OK)
        status = fill_arena_slots(&w);
    for (int32_t e = 0; e < s->n_entries; e++) {
        const trii_entry *entry = &plan->entries[e];
        const trii_group *group = s->entry_group[e] >= 0 ? s->ir->groups[s->entry_group[e]] : NULL;
        bool moves = entry->kind == TRII_ENTRY_COPY || entry->kind == TRII_ENTRY_MOVE;

        s->kept[e] = -1;
        if (moves && has_nothing_to_do(s, entry, group))
            continue;
        s->kept[e] = kept;
        if (moves)
            plan->copied_bytes += entry->bytes;
        else if (group != NULL && group->kind == TRII_GROUP_REORDER)
            plan->copied_bytes += trii_value_bytes(s, group, 0);
        plan->entries[kept++] = *entry;
    }
    plan->n_entries = kept;
    for (int32_t h = 0; h < plan->n_hosts; h++) {
        trii_plan_host *host = &plan->hosts[h];

        host->start = s->kept[s->host_start[h]];
        host->at_once = host->start + 1 < kept &&
                        plan->entries[host->start + 1].kind == TRII_ENTRY_WAIT &&
                        plan->entries[host->start + 1].host == h;
    }
    return status;
}
