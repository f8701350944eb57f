/*
 * rdzv_server.c - the agents' store: which agent serves it, how this agent reaches it, whether the
 * address that all were given leads to it, and whether all agents were started with the same
 * --nnodes. Called by rendezvous.c (serving), by rdzv_join.c and by the handlers (the rest).
 *
 * An agent compares its --nnodes with those of the agent that serves the store, if that is one of
 * trirun; else with those of the nodes in the shared state, before it joins. They are in the nodes'
 * numbers, where torchrun's agents have a small one, so those are taken as they are:
 *
 *   local_id   bits 33 to 46: MIN, 19 to 32: MAX, 0 to 18: random
 *
 *   ID/trireme/own      a number, by which its server knows it (store/own_address.h)
 *   ID/trireme/serves   PID MIN MAX NAME of its server; .../serves_ranks where ranks are given
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "os/limits.h"
#include "os/random.h"
#include "os/secret.h"
#include "store/exchange.h"
#include "store/tcp_client.h"

#define KEY_BYTES (TRII_RDZV_ADDR_BYTES + 64)

bool trii_rdzv_is_own_address(const char *host)
{
    int fd, port;

    if (trii_socket_is_loopback(host))
        return true;
    if (trii_socket_listen(host, 0, &fd, &port) != TRI_OK)
        return false;
    trii_socket_close(fd);
    return true;
}

static int max_clients(const trii_rendezvous *r)
{
    int n = r->options->nproc;

    if (!r->handler->fixed_hosts)
        return trii_descriptors_share(TRII_RDZV_QUARTERS, 0, 1);
    return trii_descriptors_share(3, TRII_FDS_OF_AGENT + TRII_FDS_OF_WORKER * n,
                                  n + TRII_FDS_OF_AGENT);
}

tri_status trii_rdzv_serve(trii_rendezvous *r)
{
    const trii_launch_options *o = r->options;
    bool loopback = trii_socket_is_loopback(o->rdzv_host);
    trii_rdzv_server task = r->handler->server != NULL ? r->handler->server(o) : TRII_RDZV_CLIENT;
    trii_job_key key = {0};
    trii_tcp_server_options server = {.host = loopback ? o->rdzv_host : NULL,
                                      .port = r->server_port,
                                      .key = &key,
                                      /* given ranks: PyTorch's workers use this store too */
                                      .key_optional = loopback && r->handler->fixed_hosts,
                                      .no_open_warning = true,
                                      .max_connections = max_clients(r),
                                      .loop = r->setup.loop};
    char why[TRII_ERR_BYTES], key_name[KEY_BYTES];
    tri_status status;

    if (task == TRII_RDZV_CLIENT)
        return TRI_OK;
    status = trii_job_key_load(&key);
    if (status == TRI_OK)
        status = trii_tcp_server_create(&server, &r->server);
    trii_secret_wipe(&key, sizeof(key));
    if (status == TRI_ERR_STATE && task == TRII_RDZV_MAY_SERVE)
        return TRI_OK; /* another agent of this host was first */
    if (status == TRI_ERR_STATE) {
        snprintf(why, sizeof(why), "%s", tri_last_error());
        return r->handler->port_taken(r, why);
    }
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "the agents'");
    r->server_port = trii_tcp_server_port(r->server);
    /* before the first client can look for it */
    snprintf(key_name, sizeof(key_name), "%s/%s", r->id,
             trii_rdzv_serves_key(r->handler->fixed_hosts));
    trii_rdzv_settings_text(r, why, sizeof(why));
    return trii_tcp_server_tell(r->server, key_name, why);
}

const char *trii_rdzv_serves_key(bool given_ranks)
{
    return given_ranks ? "trireme/serves_ranks" : "trireme/serves";
}

const char *trii_rdzv_place_option(const trii_rendezvous *r)
{
    return r->handler->fixed_hosts && *r->options->rdzv_endpoint == '\0' ? "--master-addr"
                                                                         : "--rdzv-endpoint";
}

enum { NNODES_MOST = (1 << 14) - 1, MIN_AT = 33, MAX_AT = 19 };

static int64_t at_most(int n)
{
    return n < NNODES_MOST ? n : NNODES_MOST;
}

int64_t trii_rdzv_local_id(const trii_launch_options *o, uint32_t random)
{
    return at_most(o->min_nodes) << MIN_AT | at_most(o->max_nodes) << MAX_AT |
           (random & ((1u << MAX_AT) - 1));
}

bool trii_rdzv_name_self(trii_rendezvous *r)
{
    uint32_t any = 0;
    /* Two containers may have the same name and process numbers. */
    bool has_any = trii_random_bytes(&any, sizeof(any));

    (void)has_any;
    r->self.local_id = trii_rdzv_local_id(r->options, any);
    if (r->options->local_addr == NULL)
        return false;
    snprintf(r->self.addr, sizeof(r->self.addr), "%s", r->options->local_addr);
    return true;
}

tri_status trii_rdzv_connect(trii_rendezvous *r, const tri_store_tcp_options *options)
{
    const char *host = r->options->rdzv_host;
    char local[TRII_ADDR_TEXT];
    bool serves = r->server != NULL;
    tri_status status = tri_store_tcp(serves && !trii_socket_is_loopback(host) ? "localhost" : host,
                                      r->server_port, options, &r->base);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", trii_rdzv_place_option(r));
    if (trii_rdzv_name_self(r))
        return TRI_OK;
    snprintf(r->self.addr, sizeof(r->self.addr), "%s",
             strcmp(host, "localhost") == 0 ? "127.0.0.1" : host);
    if (!serves && trii_tcp_local_host(r->base, local) == TRI_OK)
        snprintf(r->self.addr, sizeof(r->self.addr), "%s", local);
    return TRI_OK;
}

tri_status trii_rdzv_watch_own(trii_rendezvous *r)
{
    char proof[KEY_BYTES], claim_key[KEY_BYTES];
    const trii_own_search search = {.host = r->options->rdzv_host,
                                    .port = r->server_port,
                                    .store = r->base,
                                    .proof_key = proof,
                                    .claim_key = claim_key,
                                    .setting = trii_rdzv_place_option(r)};

    if (r->server == NULL)
        return TRI_OK;
    snprintf(proof, sizeof(proof), "%s/trireme/own", r->id);
    snprintf(claim_key, sizeof(claim_key), "%s/%s", r->id,
             trii_rdzv_serves_key(r->handler->fixed_hosts));
    return trii_own_address_start(&search, &r->own);
}

tri_status trii_rdzv_check_own(const trii_rendezvous *r)
{
    char theirs[TRII_ERR_BYTES];

    if (r->own == NULL ||
        trii_own_address_verdict(r->own, theirs, sizeof(theirs)) != TRII_OWN_OTHER)
        return TRI_OK;
    return r->handler->other_server(r, theirs);
}

/* --- whether all agents mean the same job --------------------------------- */

/* As it was written on the command line. */
static void nnodes_text(int64_t min, int64_t max, char *text_out, size_t bytes)
{
    if (min == max)
        snprintf(text_out, bytes, "--nnodes %d", (int)max);
    else
        snprintf(text_out, bytes, "--nnodes %d:%d", (int)min, (int)max);
}

static tri_status compare_nnodes(const trii_rendezvous *r, int64_t min, int64_t max,
                                 const char *host, int64_t pid)
{
    const trii_launch_options *o = r->options;
    char ours[40], theirs[40];

    if (at_most(o->min_nodes) == at_most((int)min) && at_most(o->max_nodes) == at_most((int)max))
        return TRI_OK;
    nnodes_text(o->min_nodes, o->max_nodes, ours, sizeof(ours));
    nnodes_text(min, max, theirs, sizeof(theirs));
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "job %s: the agent on host %s (pid %lld) was started with %s, this one, on "
                     "host %s (pid %lld), with %s: give all agents of a job the same --nnodes",
                     r->id, host, (long long)pid, theirs, r->node_name, (long long)r->self.pid,
                     ours);
}

void trii_rdzv_settings_text(const trii_rendezvous *r, char *text_out, size_t bytes)
{
    snprintf(text_out, bytes, "%lld %d %d %s", (long long)r->self.pid, r->options->min_nodes,
             r->options->max_nodes, r->node_name);
}

static tri_status another_kind(const trii_rendezvous *r, const char *host, int64_t pid)
{
    bool given = r->handler->fixed_hosts;

    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "job %s: the agent on host %s (pid %lld) was started with "
                     "--rdzv-backend %s, this one, on host %s (pid %lld), with %s: give all agents "
                     "of a job the same",
                     r->id, host, (long long)pid, given ? "c10d" : "static", r->node_name,
                     (long long)r->self.pid, given ? "static" : "c10d");
}

tri_status trii_rdzv_agrees_with_server(trii_rendezvous *r)
{
    char keys[2][KEY_BYTES], name[TRII_RDZV_ADDR_BYTES];
    trii_store_call calls[] = {{.kind = TRII_STORE_READ, .key = keys[0]},
                               {.kind = TRII_STORE_READ, .key = keys[1]}};
    const char *text;
    long long pid;
    int min, max;
    tri_status status;

    snprintf(keys[0], KEY_BYTES, "%s/%s", r->id, trii_rdzv_serves_key(r->handler->fixed_hosts));
    snprintf(keys[1], KEY_BYTES, "%s/%s", r->id, trii_rdzv_serves_key(!r->handler->fixed_hosts));
    status = trii_store_calls(r->base, calls, 2);
    r->ours_serves = status == TRI_OK && calls[0].value != NULL;
    text = r->ours_serves ? calls[0].value : calls[1].value;
    if (text != NULL && sscanf(text, "%lld %d %d %255s", &pid, &min, &max, name) == 4)
        status =
            r->ours_serves ? compare_nnodes(r, min, max, name, pid) : another_kind(r, name, pid);
    trii_store_calls_free(calls, 2);
    return status;
}

tri_status trii_rdzv_agrees_with_all(const trii_rendezvous *r, const trii_rdzv_state *s)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < s->n && status == TRI_OK; i++) {
        const trii_rdzv_node *node = &s->entries[i].node;
        int64_t id = node->local_id;

        if (id >> MIN_AT != 0) /* not torchrun's */
            status =
                compare_nnodes(r, id >> MIN_AT, id >> MAX_AT & NNODES_MOST, node->addr, node->pid);
    }
    return status;
}
