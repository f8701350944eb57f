/*
 * rdzv_state.c - see rdzv_state.h. The rules are those of PyTorch's dynamic rendezvous
 * (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py), since its agents may take part.
 * Pure functions of a state and a time; rdzv_join.c and rdzv_lead.c decide by them what to write.
 */
#include "launch/rendezvous/rdzv_state.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"

void trii_rdzv_state_init(trii_rdzv_state *state)
{
    memset(state, 0, sizeof(*state));
}

void trii_rdzv_state_fini(trii_rdzv_state *state)
{
    trii_free(state->entries);
    trii_rdzv_state_init(state);
}

tri_status trii_rdzv_state_copy(const trii_rdzv_state *state, trii_rdzv_state *copy_out)
{
    trii_rdzv_entry *entries = NULL;

    if (state->n > 0) {
        entries = trii_alloc((size_t)state->n, sizeof(*entries), "rendezvous");
        if (entries == NULL)
            return TRI_ERR_NO_MEMORY;
        memcpy(entries, state->entries, (size_t)state->n * sizeof(*entries));
    }
    *copy_out = *state;
    copy_out->entries = entries;
    copy_out->room = state->n;
    return TRI_OK;
}

bool trii_rdzv_node_same(const trii_rdzv_node *a, const trii_rdzv_node *b)
{
    return a->pid == b->pid && a->local_id == b->local_id && strcmp(a->addr, b->addr) == 0;
}

int trii_rdzv_node_compare(const trii_rdzv_node *a, const trii_rdzv_node *b)
{
    int order = strcmp(a->addr, b->addr);

    if (order == 0)
        order = (a->pid > b->pid) - (a->pid < b->pid);
    if (order == 0)
        order = (a->local_id > b->local_id) - (a->local_id < b->local_id);
    return order;
}

trii_rdzv_entry *trii_rdzv_find(const trii_rdzv_state *state, const trii_rdzv_node *node)
{
    for (int i = 0; i < state->n; i++) {
        if (trii_rdzv_node_same(&state->entries[i].node, node))
            return &state->entries[i];
    }
    return NULL;
}

tri_status trii_rdzv_add(trii_rdzv_state *state, const trii_rdzv_node *node,
                         trii_rdzv_entry **entry_out)
{
    if (state->n == TRII_RDZV_MAX_NODES)
        return TRII_FAIL(TRI_ERR_FORMAT, "rendezvous: more than %d nodes", TRII_RDZV_MAX_NODES);
    if (trii_array_grow(&state->entries, &state->room, state->n, 8, sizeof(*state->entries),
                        "rendezvous") != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    *entry_out = &state->entries[state->n++];
    **entry_out = (trii_rdzv_entry){.node = *node};
    return TRI_OK;
}

tri_status trii_rdzv_entry_of(trii_rdzv_state *state, const trii_rdzv_node *node,
                              trii_rdzv_entry **entry_out)
{
    trii_rdzv_entry *entry = trii_rdzv_find(state, node);

    if (entry == NULL)
        return trii_rdzv_add(state, node, entry_out);
    *entry_out = entry;
    return TRI_OK;
}

int trii_rdzv_count_participants(const trii_rdzv_state *state)
{
    int n = 0;

    for (int i = 0; i < state->n; i++)
        n += state->entries[i].participant;
    return n;
}

int trii_rdzv_count_waiting(const trii_rdzv_state *state)
{
    int n = 0;

    for (int i = 0; i < state->n; i++)
        n += state->entries[i].waiting;
    return n;
}

void trii_rdzv_remove(trii_rdzv_state *state, const trii_rdzv_node *node, int min_nodes)
{
    trii_rdzv_entry *entry = trii_rdzv_find(state, node);
    bool was_participant;
    int left;

    if (entry == NULL)
        return;
    was_participant = entry->participant;
    *entry = state->entries[--state->n];
    left = trii_rdzv_count_participants(state);
    if (!was_participant)
        return;
    if (state->complete && left == 0) {
        state->complete = false;
        state->round++;
    }
    if (!state->complete && left < min_nodes)
        state->has_deadline = false;
}

tri_status trii_rdzv_participate(trii_rdzv_state *state, const trii_rdzv_node *node, int min_nodes,
                                 int max_nodes, int64_t now_us, int64_t last_call_us)
{
    trii_rdzv_entry *entry;
    tri_status status = trii_rdzv_entry_of(state, node, &entry);
    int n;

    if (status != TRI_OK)
        return status;
    entry->waiting = entry->redundant = false;
    entry->participant = entry->beats = true;
    entry->rank = 0;
    entry->beat_us = now_us;
    n = trii_rdzv_count_participants(state);
    if (n == min_nodes) {
        state->has_deadline = true;
        state->deadline_us = now_us + last_call_us;
    }
    if (n < max_nodes)
        return TRI_OK;
    trii_rdzv_complete(state);
    for (int i = 0; i < state->n; i++) { /* else its members would start again for them, for ever */
        state->entries[i].redundant |= state->entries[i].waiting;
        state->entries[i].waiting = false;
    }
    return TRI_OK;
}

void trii_rdzv_complete(trii_rdzv_state *state)
{
    state->complete = true;
    state->has_deadline = false;
    for (int i = 0; i < state->n; i++) {
        state->entries[i].rank = 0;
        for (int k = 0; k < state->n && state->entries[i].participant; k++)
            state->entries[i].rank +=
                state->entries[k].participant &&
                trii_rdzv_node_compare(&state->entries[k].node, &state->entries[i].node) < 0;
    }
}

bool trii_rdzv_is_in(const trii_rdzv_state *s, const trii_rdzv_entry *e, int64_t left)
{
    return s->complete && e->participant && s->round != left;
}

bool trii_rdzv_is_left_to_end(const trii_rdzv_state *s, const trii_rdzv_entry *e)
{
    return s->closed && e->participant;
}

tri_status trii_rdzv_want(trii_rdzv_state *s, const trii_rdzv_node *node, int64_t left,
                          const trii_rdzv_rules *rules, int64_t now_us, bool *dirty)
{
    trii_rdzv_entry *e = trii_rdzv_find(s, node);
    tri_status status;
    int n;

    if (s->closed || (e != NULL && trii_rdzv_is_in(s, e, left)))
        return TRI_OK; /* a node that waits for a place stays in a closed state until it has seen
                          that */
    if (s->complete && e != NULL && e->participant) {
        trii_rdzv_remove(s, node, rules->min_nodes);
        *dirty = true;
        e = NULL;
    }
    if (!s->complete && e != NULL && e->participant)
        return TRI_OK;
    n = trii_rdzv_count_participants(s);
    if (s->complete && e != NULL && (e->waiting || (e->redundant && n == rules->max_nodes)))
        return TRI_OK;
    *dirty = true;
    if (!s->complete)
        return trii_rdzv_participate(s, node, rules->min_nodes, rules->max_nodes, now_us,
                                     rules->last_call_us);
    if (e != NULL && e->redundant) { /* there is room again */
        e->redundant = false;
        return TRI_OK;
    }
    status = trii_rdzv_entry_of(s, node, &e);
    if (status != TRI_OK)
        return status;
    e->waiting = n < rules->max_nodes;
    e->redundant = !e->waiting;
    e->beats = true;
    e->beat_us = now_us;
    return TRI_OK;
}
