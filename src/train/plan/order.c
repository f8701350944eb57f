/*
 * order.c - the order of entries on one device; called by schedule.c. Groups run in record order;
 * host operations start as soon as their inputs are complete, in record order among those of their
 * group of ranks, and are waited for before the first reader of their outputs. A host operation
 * that reads what another one makes gets its place as if that were complete already: when it really
 * starts is found when the plan runs (host_run.c).
 *
 * What an urgent host operation needs comes first of all.
 *
 * If the output of a host operation is read at once, groups before it that it does not depend on
 * move after its start: they run while it is under way (the sums of SyncBatchNorm beside the
 * gradient of a weight), and few values live longer for it. queue_order.c uses the waits and starts
 * of this file for plans over several devices.
 */
#include "train/plan/schedule.h"

#include "train/graph/step/type.h"

static void add_entry(trii_schedule *s, trii_entry_kind kind, int32_t group, int32_t host)
{
    trii_entry *entry = &s->plan->entries[s->n_entries];

    entry->kind = kind;
    entry->host = host;
    entry->node = -1;
    s->entry_queue[s->n_entries] = group >= 0 ? s->group_queue[group] : 0;
    s->entry_group[s->n_entries++] = group;
}

/* The host operation that makes the value, if that is a token, which nobody reads; else -1. */
static int32_t sender_of(const trii_schedule *s, int32_t value)
{
    int32_t group = s->ir->values[value].group;

    return group >= 0 && trii_type_numel(&s->ir->values[value].type) == 0 ? s->host_of[group] : -1;
}

/* What it came after is complete when it is, if it is the answer to a message: the memory of that
 * is free from here on, and not from the end of the plan. */
static void wait_host(trii_schedule *s, int32_t host)
{
    const trii_ir_node *node = &s->ir->nodes[s->ir->groups[s->host_group[host]]->nodes[0]];

    if (s->host_state[host] != 1)
        return;
    add_entry(s, TRII_ENTRY_WAIT, -1, host);
    s->host_state[host] = 2;
    for (int32_t i = 0; i < node->n_after; i++) {
        int32_t sender = sender_of(s, node->after[i]);

        if (sender >= 0 && s->host_state[sender] == 1) {
            add_entry(s, TRII_ENTRY_WAIT, -1, sender);
            s->host_state[sender] = 2;
        }
    }
}

/* Waits for the host operations whose outputs the group reads, straight or through views. */
static void wait_inputs(trii_schedule *s, const trii_group *group)
{
    for (int32_t i = 0; i < group->n_in; i++) {
        int32_t from = s->ir->values[group->in[i]].group;

        if (from >= 0 && s->host_of[from] >= 0)
            wait_host(s, s->host_of[from]);
    }
}

int32_t trii_order_source(const trii_schedule *s, int32_t g)
{
    while (g >= 0 && s->ir->groups[g]->kind == TRII_GROUP_VIEW)
        g = s->ir->values[s->ir->groups[g]->in[0]].group;
    return g;
}

static inline bool is_done(const trii_schedule *s, int32_t value)
{
    return s->ir->values[value].group < 0 || s->done[s->ir->values[value].group];
}

/* Everything that the host operation reads or comes after is made, or under way. */
static bool may_arrive(const trii_schedule *s, int32_t host)
{
    const trii_ir_node *node = &s->ir->nodes[s->ir->groups[s->host_group[host]]->nodes[0]];
    const trii_group *group = s->ir->groups[s->host_group[host]];
    bool may = true;

    for (int32_t i = 0; i < group->n_in && may; i++)
        may = is_done(s, group->in[i]);
    for (int32_t i = 0; i < node->n_after && may; i++)
        may = is_done(s, node->after[i]);
    return may;
}

static void start_host(trii_schedule *s, int32_t group)
{
    int32_t host = s->host_of[group];

    s->host_start[host] = s->n_entries;
    add_entry(s, TRII_ENTRY_START, group, host);
    s->plan->entries[s->n_entries - 1].node = s->ir->nodes[s->ir->groups[group]->nodes[0]].source;
    s->group_entry[group] = s->n_entries - 1;
    s->host_state[host] = 1;
    s->done[group] = true;
    for (int32_t k = 0; k < s->n_unstarted; k++) {
        int32_t next = host + 1;

        if (s->unstarted[k] != host)
            continue;
        while (next < s->plan->n_hosts && s->plan->hosts[next].before != host)
            next++;
        if (next < s->plan->n_hosts)
            s->unstarted[k] = next;
        else
            s->unstarted[k] = s->unstarted[--s->n_unstarted];
        return;
    }
}

static const trii_host_op *op_of(const trii_schedule *s, int32_t host)
{
    const trii_ir_node *node = &s->ir->nodes[s->ir->groups[s->host_group[host]]->nodes[0]];

    return s->step->nodes[s->segment->first_node + node->source].host;
}

static uint64_t ranks_of(const trii_schedule *s, int32_t host)
{
    return op_of(s, host)->group;
}

/* Adds the host operation that this group is, or is a view of, once. */
static void add_need(trii_schedule *s, int32_t host, int32_t group)
{
    trii_plan_host *to = &s->plan->hosts[host];
    int32_t from = trii_order_source(s, group);

    if (from < 0 || s->host_of[from] < 0)
        return;
    for (int32_t k = 0; k < to->n_needs; k++) {
        if (to->needs[k] == s->host_of[from])
            return;
    }
    to->needs[to->n_needs++] = s->host_of[from];
}

tri_status trii_order_hosts(trii_schedule *s)
{
    for (int32_t h = 0; h < s->plan->n_hosts; h++) {
        const trii_group *group = s->ir->groups[s->host_group[h]];
        const trii_ir_node *node = &s->ir->nodes[group->nodes[0]];
        trii_plan_host *host = &s->plan->hosts[h];
        uint64_t ranks = ranks_of(s, h);

        if (TRII_NEW(&s->plan->pool, group->n_in + node->n_after, host->needs) == NULL)
            return TRI_ERR_NO_MEMORY;
        for (int32_t i = 0; i < group->n_in; i++)
            add_need(s, h, s->ir->values[group->in[i]].group);
        for (int32_t i = 0; i < node->n_after; i++)
            add_need(s, h, s->ir->values[node->after[i]].group);
        host->before = ranks != 0 ? h - 1 : -1;
        while (host->before >= 0 && ranks_of(s, host->before) != ranks)
            host->before--;
        if (host->before < 0)
            s->unstarted[s->n_unstarted++] = h;
    }
    return TRI_OK;
}

void trii_order_group(trii_schedule *s, int32_t g)
{
    const trii_group *group = s->ir->groups[g];

    if (group->kind == TRII_GROUP_HOST) {
        start_host(s, g);
        return;
    }
    wait_inputs(s, group);
    s->done[g] = true;
    s->group_entry[g] = s->n_entries;
    add_entry(s, TRII_ENTRY_KERNEL, g, -1);
    if (group->kind != TRII_GROUP_REORDER)
        s->plan->entries[s->n_entries - 1].node = s->ir->nodes[group->nodes[0]].source;
}

void trii_order_end(trii_schedule *s)
{
    for (int32_t h = 0; h < s->plan->n_hosts; h++)
        wait_host(s, h);
}

static void start_all(trii_schedule *s)
{
    for (int32_t k = 0; k < s->n_unstarted;) {
        if (may_arrive(s, s->unstarted[k])) {
            start_host(s, s->host_group[s->unstarted[k]]);
            k = 0; /* another one may have all its operands now */
        } else {
            k++;
        }
    }
}

/* Groups before a host operation that may change places with it. */
#define AHEAD 8
/* It is read at once if its reader is one of the next few groups. */
#define BEHIND 3

static bool is_read_at_once(const trii_schedule *s, int32_t host)
{
    for (int32_t g = host + 1; g <= host + BEHIND && g < s->ir->n_groups; g++) {
        const trii_group *group = s->ir->groups[g];

        for (int32_t i = 0; i < group->n_in && group->kind != TRII_GROUP_VIEW; i++)
            if (trii_order_source(s, s->ir->values[group->in[i]].group) == host)
                return true;
    }
    return false;
}

/* Bits of the groups from `begin` on that made one of the values. */
static uint32_t makers(const trii_schedule *s, int32_t begin, const int32_t *values, int32_t n)
{
    uint32_t made = 0;

    for (int32_t i = 0; i < n; i++) {
        int32_t g = values[i] >= 0 ? s->ir->values[values[i]].group : -1;

        if (g >= begin)
            made |= 1u << (g - begin);
    }
    return made;
}

/* Among the groups from g on, brings the next host operation to the front if it is near and read at
 * once, with everything that it needs. */
static void order_next_host(trii_schedule *s, int32_t g)
{
    const trii_ir_node *node;
    int32_t host = g;
    uint32_t needed;

    while (host < g + AHEAD && host < s->ir->n_groups &&
           s->ir->groups[host]->kind != TRII_GROUP_HOST)
        host++;
    if (host == g || host == g + AHEAD || host == s->ir->n_groups || s->done[host] ||
        !is_read_at_once(s, host))
        return;
    node = &s->ir->nodes[s->ir->groups[host]->nodes[0]];
    needed = makers(s, g, s->ir->groups[host]->in, s->ir->groups[host]->n_in) |
             makers(s, g, node->after, node->n_after);
    for (int32_t k = host - 1; k >= g; k--)
        if ((needed >> (k - g) & 1) != 0)
            needed |= makers(s, g, s->ir->groups[k]->in, s->ir->groups[k]->n_in);
    for (int32_t k = g; k < host; k++)
        if ((needed >> (k - g) & 1) != 0 && !s->done[k])
            trii_order_group(s, k);
    start_all(s);
}

static void need(const trii_schedule *s, bool *needed, const int32_t *values, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t g = values[i] >= 0 ? s->ir->values[values[i]].group : -1;

        if (g >= 0)
            needed[g] = true;
    }
}

/* What this host operation needs that has no place yet, in record order, and its start. What it
 * needs of other ranks starts after all that was recorded before it of any ranks: they may wait for
 * that first, and have nothing that is urgent. */
static tri_status order_urgent(trii_schedule *s, int32_t host)
{
    int32_t before;
    bool *needed;

    if (TRII_NEW(s->ir->pool, host + 1, needed) == NULL)
        return TRI_ERR_NO_MEMORY;
    needed[host] = true;
    for (int32_t g = host; g >= 0; g--) {
        const trii_group *group = s->ir->groups[g];

        if (!needed[g])
            continue;
        need(s, needed, group->in, group->n_in);
        if (group->kind != TRII_GROUP_HOST)
            continue;
        need(s, needed, s->ir->nodes[group->nodes[0]].after, s->ir->nodes[group->nodes[0]].n_after);
        before = ranks_of(s, s->host_of[g]) != 0 ? s->host_of[g] - 1 : -1;
        while (before >= 0 && ranks_of(s, before) == 0)
            before--;
        if (before >= 0)
            needed[s->host_group[before]] = true;
    }
    for (int32_t g = 0; g < host; g++) {
        if (!needed[g] || s->done[g])
            continue;
        trii_order_group(s, g);
        start_all(s);
    }
    return TRI_OK;
}

tri_status trii_order(trii_schedule *s)
{
    start_all(s); /* groups without operands */
    for (int32_t h = 0; h < s->plan->n_hosts; h++) {
        tri_status status = op_of(s, h)->kind->urgent ? order_urgent(s, s->host_group[h]) : TRI_OK;

        if (status != TRI_OK)
            return status;
    }
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        if (s->done[g])
            continue; /* a host operation that started early, or a group that one needed */
        order_next_host(s, g);
        if (s->done[g])
            continue;
        trii_order_group(s, g);
        start_all(s);
    }
    trii_order_end(s);
    return TRI_OK;
}
