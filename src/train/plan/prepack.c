/*
 * prepack.c - copies of parameters in another layout, which a plan need not make in every run
 * ("prepacked weights"): a run finds them at the tensor (train/tensor/packed.h), or makes them, in
 * memory that the tensor keeps if they are wanted again, else in the arena.
 *
 * A step that is one plan reads each of them once, and then updates the parameter. But a pipeline
 * over remote modules, and accumulated gradients, run a plan several times with the same weights:
 * without this, the backward of each piece of ResNet-50's second half spent 14 to 22 ms of 250 on
 * changes of layout.
 *
 * Found when buffers have their places, called by schedule.c; used by run.c.
 */
#include "train/plan/schedule.h"
#include "train/tensor/device_memory.h"

/* --- in the schedule ------------------------------------------------------ */

/* A parameter that the plan does not write. Whether it is one is asked again in each run, since the
 * key of the plan does not say it. */
static bool is_parameter(const trii_schedule *s, int32_t v)
{
    const trii_ir_value *value = &s->ir->values[v];
    const trii_value *in;

    if (value->input < 0 || value->updated)
        return false;
    in = &s->step->values[s->segment->inputs[value->input]];
    return in->leaf != NULL && in->leaf->is_parameter;
}

/* How many groups write each buffer. */
static void count_writers(const trii_schedule *s, int32_t *writers)
{
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];

        for (int32_t o = 0; o < group->n_out && group->kind != TRII_GROUP_VIEW; o++)
            writers[trii_buffer_of(s, group->out[o])]++;
    }
}

/* The copy lies in memory of its own, in an order that other plans know, too. */
static bool may_be_kept(const trii_schedule *s, const trii_group *group, const int32_t *writers)
{
    const trii_ir_value *value = &s->ir->values[group->out[0]];
    int32_t b = trii_buffer_of(s, group->out[0]);

    return value->output < 0 && value->base < 0 && s->buffers[b].place == TRII_PLACE_ARENA &&
           s->buffers[b].packed < 0 && writers[b] == 1 &&
           (group->out_layout[0] == NULL || group->out_layout[0]->strides == NULL);
}

static void add(trii_schedule *s, const trii_group *group, int32_t g, int32_t from)
{
    trii_plan *plan = s->plan;
    const trii_ir_value *value = &s->ir->values[group->out[0]];
    int32_t b = trii_buffer_of(s, group->out[0]), e = s->group_entry[g];
    bool host = trii_is_host(value->type.device);

    s->buffers[b].packed = plan->n_packed;
    plan->entries[e].kind = TRII_ENTRY_PACK;
    plan->entries[e].host = plan->n_packed;
    plan->packed[plan->n_packed++] = (trii_plan_packed){
        .input = from >= 0 ? plan->packed[from].input : s->ir->values[group->in[0]].input,
        .from = from,
        .kind = {.layout = group->out_layout[0],
                 .device = host ? TRI_CPU(0) : value->type.device,
                 .bytes = trii_value_bytes(s, group, 0)},
        .buffer = b,
        .queue = host ? -1 : trii_buffer_queue(&s->buffers[b])};
}

/* Number of the copy that the value is, or is a view of; -1 = none. */
static int32_t packed_of(const trii_schedule *s, int32_t value)
{
    int32_t b = trii_buffer_of(s, value);

    return b >= 0 ? s->buffers[b].packed : -1;
}

/* Whether the group makes a copy of a parameter, or of the copy *from_out. */
static bool makes_copy(const trii_schedule *s, const trii_group *group, int32_t *from_out)
{
    if (group->kind != TRII_GROUP_REORDER)
        return false;
    *from_out = packed_of(s, group->in[0]);
    return *from_out >= 0 ? s->ir->values[group->in[0]].base < 0 : is_parameter(s, group->in[0]);
}

static void find_readers(const trii_schedule *s)
{
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];
        int32_t e = s->group_entry[g];

        if (e >= 0 && s->plan->entries[e].kind == TRII_ENTRY_PACK)
            continue;
        for (int32_t i = 0; i < group->n_in; i++) {
            int32_t k = packed_of(s, group->in[i]);

            if (k >= 0)
                s->plan->packed[k].is_read = true;
        }
    }
}

tri_status trii_prepack_find(trii_schedule *s)
{
    int32_t *writers, n = 0;

    for (int32_t g = 0; g < s->ir->n_groups; g++)
        n += s->ir->groups[g]->kind == TRII_GROUP_REORDER;
    if (n == 0)
        return TRI_OK;
    if (TRII_NEW(s->ir->pool, s->n_buffers, writers) == NULL ||
        TRII_NEW(&s->plan->pool, n, s->plan->packed) == NULL)
        return TRI_ERR_NO_MEMORY;
    count_writers(s, writers);
    for (int32_t e = 0; e < s->n_entries; e++) {
        int32_t g = s->entry_group[e];
        const trii_group *group = g >= 0 ? s->ir->groups[g] : NULL;
        int32_t from = -1;

        if (group != NULL && makes_copy(s, group, &from) && may_be_kept(s, group, writers))
            add(s, group, g, from);
    }
    find_readers(s);
    return TRI_OK;
}

void trii_prepack_place(trii_schedule *s)
{
    for (int32_t k = 0; k < s->plan->n_packed; k++)
        s->plan->packed[k].offset = s->buffers[s->plan->packed[k].buffer].offset;
}

/* --- in a run ------------------------------------------------------------- */

static void take(const trii_step *step, const trii_segment *segment, trii_plan_packed *p)
{
    const trii_value *value = &step->values[segment->inputs[p->input]];
    tri_tensor *tensor = value->leaf != NULL ? value->leaf : value->bound;

    p->tensor = NULL;
    p->use = (trii_packed_use){0};
    if (!p->is_read || tensor == NULL || !tensor->is_parameter || tensor->stays_plain ||
        tensor->address_lent || value->version < 0)
        return;
    p->tensor = tensor;
    p->use = trii_packed_take(tensor, &p->kind, value->version);
}

static void *place_of(const trii_plan *plan, const trii_plan_packed *p)
{
    void *arena = p->queue < 0 ? plan->arena : plan->queues[p->queue].arena;

    return p->use.storage != NULL ? p->use.storage->data : (char *)arena + p->offset;
}

/* One that nobody else reads need not be made if all that are made of it are there. */
static void choose(trii_plan *plan)
{
    for (int32_t k = 0; k < plan->n_packed; k++)
        plan->packed[k].runs = plan->packed[k].is_read && !plan->packed[k].use.ready;
    for (int32_t k = plan->n_packed - 1; k >= 0; k--) {
        trii_plan_packed *from =
            plan->packed[k].from >= 0 ? &plan->packed[plan->packed[k].from] : NULL;

        if (from != NULL && plan->packed[k].runs)
            from->runs = !from->use.ready;
    }
    plan->spared_bytes = 0;
    for (int32_t k = 0; k < plan->n_packed; k++)
        plan->spared_bytes += plan->packed[k].runs ? 0 : plan->packed[k].kind.bytes;
}

void trii_prepack_begin(trii_plan *plan, const trii_step *step, const trii_segment *segment)
{
    trii_step_lock();
    for (int32_t k = 0; k < plan->n_packed; k++)
        take(step, segment, &plan->packed[k]);
    trii_step_unlock();
    for (int32_t k = 0; k < plan->n_packed; k++) {
        trii_plan_packed *p = &plan->packed[k];

        trii_storage_unref(p->use.dropped);
        p->use.dropped = NULL;
        if (p->use.wanted &&
            trii_storage_create_on(p->kind.device, p->kind.bytes, &p->use.storage) != TRI_OK)
            p->use.storage = NULL; /* memory is short: not kept then */
        trii_slots_set(&plan->packed_slots, k, place_of(plan, p));
    }
    choose(plan);
}

void trii_prepack_end(trii_plan *plan, const trii_step *step, const trii_segment *segment,
                      bool complete)
{
    trii_step_lock();
    for (int32_t k = 0; k < plan->n_packed && complete; k++) {
        trii_plan_packed *p = &plan->packed[k];

        if (p->use.storage != NULL && p->runs)
            p->use.dropped =
                trii_packed_keep(p->tensor, &p->kind,
                                 step->values[segment->inputs[p->input]].version, p->use.storage);
    }
    trii_step_unlock();
    for (int32_t k = 0; k < plan->n_packed; k++) {
        trii_storage_unref(plan->packed[k].use.storage);
        trii_storage_unref(plan->packed[k].use.dropped);
        plan->packed[k].use.storage = plan->packed[k].use.dropped = NULL;
    }
}
