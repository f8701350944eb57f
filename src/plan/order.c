/*
 * order.c - the order of entries on one device: as the groups are sorted; host operations start as
 * soon as their inputs are complete, in record order among themselves, and are waited for before
 * the first reader of their outputs.
 */
#include "plan/schedule.h"

static void add_entry(trii_schedule *s, trii_entry_kind kind, int32_t group, int32_t host)
{
    trii_entry *entry = &s->plan->entries[s->n_entries];

    entry->kind = kind;
    entry->host = host;
    entry->node = -1;
    s->entry_lane[s->n_entries] = group >= 0 ? s->group_lane[group] : 0;
    s->entry_group[s->n_entries++] = group;
}

static void wait_host(trii_schedule *s, int32_t host)
{
    if (s->host_state[host] != 1)
        return;
    add_entry(s, TRII_ENTRY_WAIT, -1, host);
    s->host_state[host] = 2;
}

/* Before the group reads outputs of host operations, straight or through views. */
static void wait_inputs(trii_schedule *s, const trii_group *group)
{
    for (int32_t i = 0; i < group->n_in; i++) {
        int32_t from = s->ir->values[group->in[i]].group;

        if (from >= 0 && s->host_of[from] >= 0)
            wait_host(s, s->host_of[from]);
    }
}

static bool inputs_done(const trii_schedule *s, const trii_group *group)
{
    for (int32_t i = 0; i < group->n_in; i++) {
        int32_t from = s->ir->values[group->in[i]].group;

        if (from < 0)
            continue;
        if (!s->done[from] || (s->host_of[from] >= 0 && s->host_state[s->host_of[from]] != 2))
            return false;
    }
    return true;
}

static void start_host(trii_schedule *s, int32_t group)
{
    int32_t host = s->host_of[group];

    s->host_start[host] = s->n_entries;
    add_entry(s, TRII_ENTRY_START, group, host);
    s->plan->entries[s->n_entries - 1].node = s->ir->nodes[s->ir->groups[group]->nodes[0]].source;
    s->group_entry[group] = s->n_entries - 1;
    s->host_state[host] = 1;
    s->next_host++;
    s->done[group] = true;
}

void trii_order_group(trii_schedule *s, int32_t g)
{
    const trii_group *group = s->ir->groups[g];

    wait_inputs(s, group);
    if (group->kind == TRII_GROUP_HOST) {
        start_host(s, g);
        return;
    }
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

void trii_order(trii_schedule *s)
{
    for (int32_t g = 0; g < s->ir->n_groups; g++) {
        if (s->done[g])
            continue; /* a host operation that started early */
        trii_order_group(s, g);
        while (s->next_host < s->plan->n_hosts &&
               inputs_done(s, s->ir->groups[s->host_group[s->next_host]]))
            start_host(s, s->host_group[s->next_host]);
    }
    trii_order_end(s);
}
