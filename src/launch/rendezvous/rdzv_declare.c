/*
 * rdzv_declare.c - whether the agents mean the same job. Each compares with the one that serves the
 * store (rdzv_server.c) if that is ours; else, unless ranks are given, each declares its settings
 * before anybody can see it in the shared state, and compares before it joins.
 *
 *   trireme/ID/declared/ADDR/PID/LOCAL_ID   PID MIN MAX NAME
 *
 * torchrun's agents say nothing, and are taken as they are.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "store/exchange.h"

/* As it was written on the command line. */
static void nnodes_text(int min, int max, char *text_out, size_t bytes)
{
    if (min == max)
        snprintf(text_out, bytes, "--nnodes %d", max);
    else
        snprintf(text_out, bytes, "--nnodes %d:%d", min, max);
}

static void declared_key(const trii_rendezvous *r, const trii_rdzv_node *node, char *key_out,
                         size_t bytes)
{
    snprintf(key_out, bytes, "trireme/%s/declared/%s/%lld/%lld", r->id, node->addr,
             (long long)node->pid, (long long)node->local_id);
}

#define KEY_BYTES (2 * TRII_RDZV_ADDR_BYTES + 100)

void trii_rdzv_settings_text(const trii_rendezvous *r, char *text_out, size_t bytes)
{
    snprintf(text_out, bytes, "%lld %d %d %s", (long long)r->self.pid, r->options->min_nodes,
             r->options->max_nodes, r->node_name);
}

tri_status trii_rdzv_declare(trii_rendezvous *r)
{
    char key[KEY_BYTES], text[TRII_RDZV_ADDR_BYTES + 60];

    declared_key(r, &r->self, key, sizeof(key));
    trii_rdzv_settings_text(r, text, sizeof(text));
    return tri_store_set(r->base, key, text, strlen(text));
}

void trii_rdzv_withdraw(trii_rendezvous *r, const trii_rdzv_node *node)
{
    char key[KEY_BYTES];
    bool existed;
    tri_status status;

    if (r->lead.leads || r->lead.follows)
        return; /* there is none */
    declared_key(r, node, key, sizeof(key));
    status = tri_store_delete(r->base, key, &existed);
    (void)status; /* nobody looks at it without a node in the state */
}

/* Whether an agent that says this was started with our --nnodes. */
static tri_status agrees(const trii_rendezvous *r, const char *text)
{
    char name[TRII_RDZV_ADDR_BYTES], ours[40], theirs[40];
    const trii_launch_options *o = r->options;
    long long pid;
    int min, max;

    if (sscanf(text, "%lld %d %d %255s", &pid, &min, &max, name) != 4 ||
        (min == o->min_nodes && max == o->max_nodes))
        return TRI_OK;
    nnodes_text(o->min_nodes, o->max_nodes, ours, sizeof(ours));
    nnodes_text(min, max, theirs, sizeof(theirs));
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "job %s: the agent on host %s (pid %lld) was started with %s, this one, on "
                     "host %s (pid %lld), with %s: give all agents of a job the same --nnodes",
                     r->id, name, pid, theirs, r->node_name, (long long)r->self.pid, ours);
}

tri_status trii_rdzv_agrees_with_server(trii_rendezvous *r)
{
    char key[KEY_BYTES];
    trii_store_call call = {.kind = TRII_STORE_READ, .key = key};
    tri_status status;

    snprintf(key, sizeof(key), "%s/%s", r->id, trii_rdzv_serves_key(r->handler));
    status = trii_store_exchange(r->base, &call, 1, NULL, 0, 0, NULL, NULL);
    r->ours_serves = status == TRI_OK && call.value != NULL;
    if (r->ours_serves)
        status = agrees(r, call.value);
    trii_store_calls_free(&call, 1);
    return status;
}

/* How many declarations are read at once. */
enum { CHUNK = 8 };

/* *any_out: one of the n has declared something; else it is left alone. */
static tri_status agrees_with_some(trii_rendezvous *r, const trii_rdzv_entry *entries, int n,
                                   bool *any_out)
{
    char keys[CHUNK][KEY_BYTES];
    trii_store_call calls[CHUNK];
    tri_status status;

    for (int i = 0; i < n; i++) {
        declared_key(r, &entries[i].node, keys[i], KEY_BYTES);
        calls[i] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[i]};
    }
    status = trii_store_exchange(r->base, calls, n, NULL, 0, 0, NULL, NULL);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < n && status == TRI_OK; i++) {
        if (calls[i].value == NULL)
            continue;
        *any_out = true;
        status = agrees(r, calls[i].value);
    }
    trii_store_calls_free(calls, n);
    return status;
}

/* Those in the state agree with each other, since each compared before it was there: so one that
 * has declared something is enough. Reads without waiting: torchrun's agents declare nothing, and
 * one that leaves at this moment takes its own away. */
tri_status trii_rdzv_agrees_with_all(trii_rendezvous *r, const trii_rdzv_state *state)
{
    bool any = false;
    tri_status status = TRI_OK;

    for (int i = 0; i < state->n && !any && status == TRI_OK; i += CHUNK)
        status = agrees_with_some(r, &state->entries[i],
                                  state->n - i < CHUNK ? state->n - i : CHUNK, &any);
    return status;
}
