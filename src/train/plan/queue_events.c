/*
 * queue_events.c - which entries of one queue must wait for which entries of another (CUDA:
 * events). Called by schedule.c for plans over several devices, after queue_order.c and pointers.c.
 *
 * In a queue entries run in order. Between queues, an entry waits for every earlier entry that
 * touches the same bytes, if one of the two writes them: so results cross when they are complete,
 * and a buffer gets its next value when nobody reads the last one any more. Only entries that touch
 * memory of another queue can be affected: copies between devices, readers of a value that another
 * device made in shared memory, and communication, which the first queue does for all. Every wait
 * is for an entry that is earlier in one common order, so there is no deadlock.
 *
 * Queues of one kind of device may wait for each other by its events, which hold up no thread.
 * Everybody else waits until the entry is complete: other kinds, communication, and updates that
 * must not be written if it fails.
 */
#include <string.h>

#include "train/plan/queue_progress.h"
#include "train/plan/schedule.h"

typedef struct events {
    trii_schedule *s;
    int n_queues;
    trii_access *accesses;
    int32_t n_accesses;
    /* [entry, queue] the last entry of that queue that it waits for; -1. And the last one that has
     * to be complete for the host. */
    int32_t *need, *complete;
    int32_t *place; /* [entry] its number in its queue */
    /* [waits until complete][queue][other] how much of the other one it has waited for */
    int32_t known[2][TRII_PLAN_QUEUES][TRII_PLAN_QUEUES];
    int32_t n_waits;
} events;

/* --- who touches what ----------------------------------------------------- */

static void add(events *v, int32_t entry, int32_t buffer, bool write)
{
    if (buffer >= 0)
        v->accesses[v->n_accesses++] = (trii_access){entry, trii_buffer_root(v->s, buffer), write};
}

static void add_group(events *v, int32_t entry, const trii_group *group)
{
    for (int32_t i = 0; i < group->n_in; i++)
        add(v, entry, trii_buffer_of(v->s, group->in[i]), false);
    for (int32_t o = 0; o < group->n_out; o++)
        add(v, entry, trii_buffer_of(v->s, group->out[o]), true);
}

static void list_accesses(events *v)
{
    const trii_schedule *s = v->s;
    int32_t first_late = s->n_entries - s->n_late;

    for (int32_t e = 0; e < s->n_entries; e++) {
        const trii_entry *entry = &s->plan->entries[s->kept[e] >= 0 ? s->kept[e] : 0];

        if (s->kept[e] < 0)
            continue;
        if (e >= first_late) {
            add(v, e, trii_buffer_of(s, s->late[e - first_late]), false);
            add(v, e, s->late_to[e - first_late], true);
        } else if (entry->kind == TRII_ENTRY_WAIT) {
            add_group(v, e, s->ir->groups[s->entry_group[s->host_start[entry->host]]]);
        } else {
            add_group(v, e, s->ir->groups[s->entry_group[e]]);
            add(v, e, s->scratch[e], true);
        }
    }
}

/* --- who waits for whom --------------------------------------------------- */

/* For an entry to be complete. */
static void wait_for(events *v, int32_t entry, int32_t earlier)
{
    int32_t *complete = &v->complete[entry * v->n_queues + v->s->entry_queue[earlier]];

    if (v->s->entry_queue[earlier] != v->s->entry_queue[entry] && *complete < earlier)
        *complete = earlier;
}

/* The last entry of its queue up to this one. A join has no entry of its own and is complete with
 * the entries before it. -1 = none. */
static int32_t last_kept(const trii_schedule *s, int32_t entry)
{
    int32_t e = entry;

    while (e >= 0 && (s->kept[e] < 0 || s->entry_queue[e] != s->entry_queue[entry]))
        e--;
    return e;
}

/* The entries that communication must come after without touching their memory. */
static void wait_for_others(events *v)
{
    const trii_schedule *s = v->s;

    for (int32_t h = 0; h < s->plan->n_hosts; h++) {
        const trii_ir_node *node = &s->ir->nodes[s->ir->groups[s->host_group[h]]->nodes[0]];

        for (int32_t i = 0; i < node->n_after; i++) {
            int32_t g = trii_order_source(s, s->ir->values[node->after[i]].group);
            int32_t e = g >= 0 && s->host_of[g] < 0 ? last_kept(s, s->group_entry[g]) : -1;

            if (e >= 0)
                wait_for(v, s->host_start[h], e);
        }
    }
}

/* Updates are written when nothing before them can fail any more, in any queue. */
static void wait_for_risks(events *v)
{
    const trii_schedule *s = v->s;
    int32_t risk[TRII_PLAN_QUEUES], e = 0;

    for (int l = 0; l < v->n_queues; l++)
        risk[l] = -1;
    for (int32_t i = 0; i < v->n_accesses; i++) {
        const trii_access *x = &v->accesses[i];
        const trii_buffer *b = &s->buffers[x->buffer];

        for (; e < x->entry; e++) {
            if (s->kept[e] >= 0 && trii_entry_may_fail(s, e))
                risk[s->entry_queue[e]] = e;
        }
        if (!x->write || b->place != TRII_PLACE_OUTPUT || trii_buffer_tensor(s, b) == NULL ||
            trii_buffer_tensor(s, b)->is_grad)
            continue;
        for (int l = 0; l < v->n_queues; l++) {
            if (risk[l] >= 0)
                wait_for(v, x->entry, risk[l]);
        }
    }
}

/* --- into the plan -------------------------------------------------------- */

static tri_status list_entries(events *v)
{
    trii_schedule *s = v->s;
    trii_plan *plan = s->plan;

    for (int l = 0; l < v->n_queues; l++) {
        if (TRII_NEW(&plan->pool, s->n_entries, plan->queues[l].entries) == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    for (int32_t e = 0; e < s->n_entries; e++) {
        trii_plan_queue *queue = &plan->queues[s->entry_queue[e]];

        if (s->kept[e] < 0)
            continue;
        v->place[e] = queue->n_entries;
        queue->entries[queue->n_entries++] = s->kept[e];
    }
    return TRI_OK;
}

static bool has_events(const trii_plan_queue *queue, const trii_plan_queue *other)
{
    return queue->ops == other->ops && queue->ops->wait != NULL;
}

/* Entry e waits for an earlier one of queue l, -1 = none, until it is complete or by its event. A
 * queue need not wait again for what it has waited for already. */
static void add_wait(events *v, int32_t e, int32_t l, int32_t earlier, bool complete)
{
    const trii_schedule *s = v->s;
    trii_plan *plan = s->plan;
    int32_t *known = &v->known[complete][s->entry_queue[e]][l], count, kept;

    if (earlier < 0 || v->place[earlier] < *known)
        return;
    count = v->place[earlier] + 1;
    kept = s->kept[earlier];
    if (plan->entries[s->kept[e]].kind != TRII_ENTRY_START) /* which delays nobody */
        *known = count;
    plan->signals[kept] = true;
    if (complete)
        plan->completes[kept] = true;
    else if (plan->events[kept] < 0)
        plan->events[kept] = plan->queues[l].n_events++;
    plan->waits[v->n_waits++] = (trii_queue_wait){l, count, complete ? -1 : plan->events[kept]};
}

static void list_waits(events *v)
{
    const trii_schedule *s = v->s;
    trii_plan *plan = s->plan;

    memset(v->known, 0, sizeof(v->known));
    memset(plan->events, 0xff, (size_t)plan->n_entries * sizeof(*plan->events));
    for (int32_t e = 0; e < s->n_entries; e++) {
        if (s->kept[e] < 0)
            continue;
        plan->first_wait[s->kept[e]] = v->n_waits;
        for (int32_t l = 0; l < v->n_queues; l++) {
            int32_t need = v->need[e * v->n_queues + l];
            int32_t complete = v->complete[e * v->n_queues + l];

            if (!has_events(&plan->queues[s->entry_queue[e]], &plan->queues[l]))
                complete = need > complete ? need : complete;
            add_wait(v, e, l, complete, true);
            if (need > complete)
                add_wait(v, e, l, need, false);
        }
    }
    plan->first_wait[plan->n_entries] = v->n_waits;
}

tri_status trii_queues_connect(trii_schedule *s)
{
    trii_plan *plan = s->plan;
    trii_pool *pool = s->ir->pool;
    events v = {.s = s, .n_queues = plan->n_queues};
    size_t room = 2 * (size_t)s->n_late, n = (size_t)s->n_entries * (size_t)v.n_queues;
    tri_status status;

    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];

        room += (size_t)(group->n_in + group->n_out + 1) * 2;
    }
    if (TRII_NEW(pool, room, v.accesses) == NULL || TRII_NEW(pool, n, v.need) == NULL ||
        TRII_NEW(pool, n, v.complete) == NULL || TRII_NEW(pool, s->n_entries, v.place) == NULL ||
        TRII_NEW(&plan->pool, plan->n_entries + 1, plan->first_wait) == NULL ||
        TRII_NEW(&plan->pool, 2 * n, plan->waits) == NULL ||
        TRII_NEW(&plan->pool, plan->n_entries, plan->signals) == NULL ||
        TRII_NEW(&plan->pool, plan->n_entries, plan->completes) == NULL ||
        TRII_NEW(&plan->pool, plan->n_entries, plan->events) == NULL ||
        TRII_NEW(&plan->pool, plan->n_queues, plan->queue_states) == NULL)
        return TRI_ERR_NO_MEMORY;
    memset(v.need, 0xff, n * sizeof(*v.need));
    memset(v.complete, 0xff, n * sizeof(*v.complete));
    list_accesses(&v);
    status = trii_queue_conflicts(s, v.accesses, v.n_accesses, v.need);
    if (status != TRI_OK)
        return status;
    wait_for_others(&v);
    wait_for_risks(&v);
    status = list_entries(&v);
    if (status == TRI_OK)
        list_waits(&v);
    return status;
}
