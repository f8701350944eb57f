/*
 * rdzv_server.c - the agents' store: who serves it, how this agent reaches it, and whether the
 * address that all were given leads to the one that we serve. Called by rendezvous.c (serving) and
 * by the handlers (the rest).
 *
 *   ID/trireme/own      a number, by which its server knows it (store/own_address.h)
 *   ID/trireme/serves   PID MIN MAX NAME of who serves it; .../serves_ranks where ranks are given
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "os/limits.h"
#include "os/random.h"
#include "os/secret.h"
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
    snprintf(key_name, sizeof(key_name), "%s/%s", r->id, trii_rdzv_serves_key(r->handler));
    trii_rdzv_settings_text(r, why, sizeof(why));
    return trii_tcp_server_tell(r->server, key_name, why);
}

const char *trii_rdzv_serves_key(const trii_rdzv_handler *handler)
{
    return handler->fixed_hosts ? "trireme/serves_ranks" : "trireme/serves";
}

const char *trii_rdzv_place_option(const trii_rendezvous *r)
{
    return r->handler->fixed_hosts && *r->options->rdzv_endpoint == '\0' ? "--master-addr"
                                                                         : "--rdzv-endpoint";
}

bool trii_rdzv_name_self(trii_rendezvous *r)
{
    uint32_t any = 0;

    /* Two containers may have the same name and process numbers. */
    if (trii_random_bytes(&any, sizeof(any)))
        r->self.local_id = any >> 1;
    if (r->options->local_addr == NULL)
        return false;
    snprintf(r->self.addr, sizeof(r->self.addr), "%s", r->options->local_addr);
    return true;
}

tri_status trii_rdzv_connect(trii_rendezvous *r, const tri_store_tcp_options *options)
{
    const char *host = r->options->rdzv_host;
    char local[TRII_ADDR_TEXT];
    bool serves = trii_rdzv_serves(r);
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

    if (!trii_rdzv_serves(r))
        return TRI_OK;
    snprintf(proof, sizeof(proof), "%s/trireme/own", r->id);
    snprintf(claim_key, sizeof(claim_key), "%s/%s", r->id, trii_rdzv_serves_key(r->handler));
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
