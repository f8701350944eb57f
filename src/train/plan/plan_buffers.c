/*
 * plan_buffers.c - buffers of a schedule: which one holds a value, and when it is in use. Used by
 * schedule.c, pointers.c and queue_events.c, which ask about both. Chains of values that share a
 * buffer are shortened as they are walked: 10,000 reshapes with their gradients took 1.28 s to
 * compile before, and take 0.08 s.
 */
#include "train/graph/step/type.h"
#include "train/plan/schedule.h"

/* Paths become shorter as they are walked: a sum of many gradients is one buffer that values share
 * one after the other. */
int32_t trii_buffer_root(const trii_schedule *s, int32_t b)
{
    while (s->buffers[b].merged >= 0) {
        int32_t next = s->buffers[b].merged;

        if (s->buffers[next].merged >= 0)
            next = s->buffers[b].merged = s->buffers[next].merged;
        b = next;
    }
    return b;
}

/* The same for a chain of views, which a program may make as long as it likes. */
int32_t trii_buffer_of(const trii_schedule *s, int32_t value)
{
    const trii_ir_value *values = s->ir->values;
    int32_t end = value;

    while (values[end].buffer < 0 && s->view_of[end] >= 0)
        end = s->view_of[end];
    while (value != end) {
        int32_t next = s->view_of[value];

        s->view_of[value] = end;
        value = next;
    }
    return values[end].buffer < 0 ? -1 : trii_buffer_root(s, values[end].buffer);
}

int32_t trii_type_queue(const trii_schedule *s, const trii_type *type)
{
    for (int32_t l = 0; l < s->plan->n_queues; l++) {
        if (s->plan->queues[l].device == type->device)
            return l;
    }
    return -1;
}

int32_t trii_buffer_add(trii_schedule *s, trii_place where, int32_t index, int32_t queue,
                        size_t bytes)
{
    s->buffers[s->n_buffers] = (trii_buffer){.place = where,
                                             .index = index,
                                             .queue = queue,
                                             .bytes = bytes,
                                             .first = INT32_MAX,
                                             .last = -1,
                                             .merged = -1,
                                             .packed = -1};
    return s->n_buffers++;
}

size_t trii_value_bytes(const trii_schedule *s, const trii_group *group, int32_t o)
{
    return trii_layout_bytes(&s->ir->values[group->out[o]].type, group->out_layout[o]);
}

void trii_buffer_touch(trii_schedule *s, int32_t b, int32_t entry)
{
    trii_buffer *buf = &s->buffers[b];

    if (entry < buf->first)
        buf->first = entry;
    if (entry > buf->last)
        buf->last = entry;
}

bool trii_entry_may_fail(const trii_schedule *s, int32_t e)
{
    const trii_group *group = s->entry_group[e] >= 0 ? s->ir->groups[s->entry_group[e]] : NULL;

    if (group == NULL || group->kind == TRII_GROUP_HOST)
        return true; /* a start or a wait of communication */
    for (int32_t n = 0; n < group->n_nodes; n++) {
        if (s->ir->nodes[group->nodes[n]].op->may_refuse)
            return true;
    }
    return false;
}
