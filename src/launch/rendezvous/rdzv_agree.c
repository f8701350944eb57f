/*
 * rdzv_agree.c - whether agents that meet mean the same job: the same --nnodes, and given ranks
 * once each. torchrun compares nothing of this, and its jobs then hang or run with the wrong size;
 * its agents say nothing, so they are taken as they are.
 *
 *   trireme/ID/declared/ADDR/PID/LOCAL_ID   MIN MAX NAME     of a dynamic rendezvous
 *   trireme/claim/RANK                      PID NNODES NAME  of a static one, or "gone ROUND"
 *   trireme/nnodes                          NNODES RANK PID NAME
 *   trireme/serves                          PID NNODES NAME  who serves the store, if not static
 *   trireme/own                             a number, by which it knows it (store/own_address.h)
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "store/exchange.h"

#define PROBE_MS 1000 /* for a store to answer that has the port we want */

/* As it was written on the command line. */
static void nnodes_text(int min, int max, char *text_out, size_t bytes)
{
    if (min == max)
        snprintf(text_out, bytes, "--nnodes %d", max);
    else
        snprintf(text_out, bytes, "--nnodes %d:%d", min, max);
}

/* --- dynamic ---------------------------------------------------------------------------------- */

static void declared_key(const trii_rendezvous *r, const trii_rdzv_node *node, char *key_out,
                         size_t bytes)
{
    snprintf(key_out, bytes, "trireme/%s/declared/%s/%lld/%lld", r->id, node->addr,
             (long long)node->pid, (long long)node->local_id);
}

#define KEY_BYTES (2 * TRII_RDZV_ADDR_BYTES + 100)

tri_status trii_rdzv_declare(trii_rendezvous *r)
{
    char key[KEY_BYTES], text[TRII_RDZV_ADDR_BYTES + 40];

    declared_key(r, &r->self, key, sizeof(key));
    snprintf(text, sizeof(text), "%d %d %s", r->options->min_nodes, r->options->max_nodes,
             r->node_name);
    return tri_store_set(r->base, key, text, strlen(text));
}

void trii_rdzv_withdraw(trii_rendezvous *r)
{
    char key[KEY_BYTES];
    bool existed;
    tri_status status = TRI_OK;

    declared_key(r, &r->self, key, sizeof(key));
    if (!r->is_static && r->base != NULL)
        status = tri_store_delete(r->base, key, &existed);
    (void)status; /* nobody looks at it without a node in the state */
}

/* text: its declaration. */
static tri_status agrees_with(const trii_rendezvous *r, const trii_rdzv_node *node,
                              const char *text)
{
    char name[TRII_RDZV_ADDR_BYTES], ours[40], theirs[40];
    const trii_launch_options *o = r->options;
    int min, max;

    if (sscanf(text, "%d %d %255s", &min, &max, name) != 3 ||
        (min == o->min_nodes && max == o->max_nodes))
        return TRI_OK;
    nnodes_text(o->min_nodes, o->max_nodes, ours, sizeof(ours));
    nnodes_text(min, max, theirs, sizeof(theirs));
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "job %s: the agent on host %s (pid %lld) was started with %s, this one, on "
                     "host %s (pid %lld), with %s: give all agents of a job the same --nnodes",
                     r->id, name, (long long)node->pid, theirs, r->node_name,
                     (long long)r->self.pid, ours);
}

/* Reads without waiting: torchrun's agents declare nothing, and one that leaves at this moment
 * takes its own away. */
tri_status trii_rdzv_agrees(trii_rendezvous *r, const trii_rdzv_state *state)
{
    size_t n = (size_t)state->n;
    char(*keys)[KEY_BYTES] = trii_alloc(n + 1, sizeof(*keys), "rendezvous");
    trii_store_call *calls = trii_alloc(n + 1, sizeof(*calls), "rendezvous");
    tri_status status = TRI_ERR_NO_MEMORY;

    if (keys != NULL && calls != NULL) {
        for (int i = 0; i < state->n; i++) {
            declared_key(r, &state->entries[i].node, keys[i], KEY_BYTES);
            calls[i] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[i]};
        }
        status =
            n > 0 ? trii_store_exchange(r->base, calls, state->n, NULL, 0, 0, NULL, NULL) : TRI_OK;
        for (int i = 0; i < state->n && status == TRI_OK; i++) {
            if (calls[i].value != NULL)
                status = agrees_with(r, &state->entries[i].node, calls[i].value);
        }
        trii_store_calls_free(calls, state->n);
    }
    trii_free(calls);
    trii_free(keys);
    return status;
}

/* --- static ----------------------------------------------------------------------------------- */

static tri_status rank_taken(const trii_rendezvous *r, const char *claim)
{
    char name[TRII_RDZV_ADDR_BYTES];
    int pid, nnodes;

    if (sscanf(claim, "%d %d %255s", &pid, &nnodes, name) != 3)
        return TRII_FAIL(TRI_ERR_FORMAT, "job %s: claim \"%s\"", r->id, claim);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "job %s: the agent on host %s (pid %d) has --node-rank %d already, and this "
                     "one, on host %s (pid %d), was given it too: give every agent its own, 0 to "
                     "%d",
                     r->id, name, pid, r->options->node_rank, r->node_name, (int)r->self.pid,
                     r->options->max_nodes - 1);
}

/* Writes the text if `expected` is there ("": nothing), else gives out what is, to be freed. NULL:
 * ours is there. */
static tri_status put(trii_rendezvous *r, const char *key, const char *expected, const char *text,
                      char **other_out)
{
    void *value;
    size_t bytes;
    tri_status status = tri_store_compare_set(r->kv, key, expected, strlen(expected), text,
                                              strlen(text), &value, &bytes);

    *other_out = NULL;
    if (status != TRI_OK)
        return status;
    if (strcmp(value, text) == 0)
        tri_store_free(value);
    else
        *other_out = value;
    return TRI_OK;
}

static tri_status claim_nnodes(trii_rendezvous *r)
{
    char text[TRII_RDZV_ADDR_BYTES + 60], name[TRII_RDZV_ADDR_BYTES], *other;
    int nnodes, rank, pid;
    tri_status status;

    snprintf(text, sizeof(text), "%d %d %d %s", r->options->max_nodes, r->options->node_rank,
             (int)r->self.pid, r->node_name);
    status = put(r, "trireme/nnodes", "", text, &other);
    if (status != TRI_OK || other == NULL)
        return status;
    if (sscanf(other, "%d %d %d %255s", &nnodes, &rank, &pid, name) == 4 &&
        nnodes != r->options->max_nodes)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "job %s: the agent on host %s (pid %d), --node-rank %d, was started with "
                      "--nnodes %d, this one, on host %s (pid %d), --node-rank %d, with "
                      "--nnodes %d: give all agents of a job the same --nnodes",
                      r->id, name, pid, rank, nnodes, r->node_name, (int)r->self.pid,
                      r->options->node_rank, r->options->max_nodes);
    tri_store_free(other);
    return status;
}

static void claim_key(int rank, char *key_out, size_t bytes)
{
    snprintf(key_out, bytes, "trireme/claim/%d", rank);
}

tri_status trii_rdzv_claim(trii_rendezvous *r)
{
    char key[64], text[TRII_RDZV_ADDR_BYTES + 40], *other, *last = NULL;
    long long lost_round;
    tri_status status = claim_nnodes(r);

    if (status != TRI_OK)
        return status;
    claim_key(r->options->node_rank, key, sizeof(key));
    snprintf(text, sizeof(text), "%d %d %s", (int)r->self.pid, r->options->max_nodes, r->node_name);
    status = put(r, key, "", text, &other);
    if (status == TRI_OK && other != NULL && sscanf(other, "gone %lld", &lost_round) == 1) {
        last = other;
        status = put(r, key, last, text, &other);
        if (status == TRI_OK && other == NULL)
            r->round.number = lost_round + 1;
    }
    tri_store_free(last);
    if (status != TRI_OK || other == NULL)
        return status;
    status = rank_taken(r, other);
    tri_store_free(other);
    return status;
}

bool trii_rdzv_may_replace(const trii_rendezvous *r)
{
    return r->round.restarts < r->options->max_restarts && !r->round.mixed;
}

tri_status trii_rdzv_vacate(trii_rendezvous *r, int rank, int64_t pid, int64_t round)
{
    char key[64], text[40], *other = NULL;
    trii_store_call call = {.kind = TRII_STORE_READ, .key = key};
    long long claimed = -1;
    tri_status status;

    claim_key(rank, key, sizeof(key));
    snprintf(text, sizeof(text), "gone %lld", (long long)round);
    status = trii_store_exchange(r->kv, &call, 1, NULL, 0, 0, NULL, NULL);
    if (status == TRI_OK && call.value != NULL && sscanf(call.value, "%lld", &claimed) == 1 &&
        claimed == pid)
        status = put(r, key, call.value, text, &other); /* another may have been quicker */
    tri_store_free(other);
    trii_store_calls_free(&call, 1);
    return status;
}

/* Two that serve: on one host the port tells. */
tri_status trii_rdzv_watch_own(trii_rendezvous *r)
{
    char proof[KEY_BYTES], claim[KEY_BYTES], text[TRII_RDZV_ADDR_BYTES + 40];
    const trii_own_search search = {.host = r->options->rdzv_host,
                                    .port = r->server_port,
                                    .store = r->base,
                                    .proof_key = proof,
                                    .claim_key = claim,
                                    .setting = r->is_static && *r->options->rdzv_endpoint == '\0'
                                                   ? "--master-addr"
                                                   : "--rdzv-endpoint"};
    tri_status status = TRI_OK;

    if (!trii_rdzv_serves(r))
        return TRI_OK;
    snprintf(proof, sizeof(proof), "%s/trireme/own", r->id);
    snprintf(claim, sizeof(claim), "%s/trireme/%s", r->id, r->is_static ? "claim/0" : "serves");
    snprintf(text, sizeof(text), "%d %d %s", (int)r->self.pid, r->options->max_nodes, r->node_name);
    if (!r->is_static)
        status = tri_store_set(r->base, claim, text, strlen(text));
    return status == TRI_OK ? trii_own_address_start(&search, &r->own) : status;
}

tri_status trii_rdzv_check_own(const trii_rendezvous *r)
{
    char theirs[TRII_ERR_BYTES], name[TRII_RDZV_ADDR_BYTES];
    int pid, nnodes;

    if (r->own == NULL ||
        trii_own_address_verdict(r->own, theirs, sizeof(theirs)) != TRII_OWN_OTHER)
        return TRI_OK;
    if (r->is_static)
        return rank_taken(r, theirs);
    if (sscanf(theirs, "%d %d %255s", &pid, &nnodes, name) != 3)
        return TRII_FAIL(TRI_ERR_FORMAT, "job %s: server \"%s\"", r->id, theirs);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "job %s: %s port %d leads to the store of the agent on host %s (pid %d), and "
                     "this one, on host %s (pid %d), was told to serve it too: give is_host to one "
                     "agent only",
                     r->id, r->options->rdzv_host, r->server_port, name, pid, r->node_name,
                     (int)r->self.pid);
}

tri_status trii_rdzv_port_taken(const trii_rendezvous *r)
{
    const trii_launch_options *o = r->options;
    const tri_store_tcp_options options = {.timeout_ms = PROBE_MS};
    char why[TRII_ERR_BYTES];
    tri_store *store, *kv = NULL;
    void *value = NULL;
    tri_status status;

    snprintf(why, sizeof(why), "%s", tri_last_error());
    if (!r->is_static)
        return TRII_FAIL(TRI_ERR_STATE,
                         "the agents' %s: another agent, job or program has the port (who: ss "
                         "-ltnp | grep :%d); choose another one in --rdzv-endpoint, the same on "
                         "all hosts, or give is_host to one agent only",
                         why, r->server_port);
    status = tri_store_tcp(o->rdzv_host, r->server_port, &options, &store);
    if (status == TRI_OK) {
        status = tri_store_prefix(r->id, store, &kv);
        if (status == TRI_OK)
            status = tri_store_get(kv, "trireme/claim/0", PROBE_MS, &value, NULL);
        tri_store_unref(kv);
        tri_store_unref(store);
    }
    if (status != TRI_OK)
        return TRII_FAIL(TRI_ERR_STATE,
                         "the agents' %s: another job or program has the port (who: ss -ltnp | "
                         "grep :%d); choose another %s, the same on all hosts",
                         why, r->server_port,
                         *o->rdzv_endpoint != '\0' ? "one in --rdzv-endpoint" : "--master-port");
    status = rank_taken(r, value);
    tri_store_free(value);
    return status;
}
