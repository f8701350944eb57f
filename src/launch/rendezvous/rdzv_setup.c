/*
 * rdzv_setup.c - the settings of a rendezvous, who serves the store, and by which address others
 * know us.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "launch/rendezvous/rdzv_etcd.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/limits.h"
#include "os/process.h"
#include "os/random.h"
#include "os/secret.h"
#include "store/tcp_client.h"

/* Seconds of --rdzv-conf, as milliseconds. */
static tri_status read_ms(const trii_launch_options *o, const char *key, int64_t fallback_ms,
                          int64_t *ms_out)
{
    char text[64], *end;
    double seconds;

    *ms_out = fallback_ms;
    if (!trii_rdzv_conf(o, key, text, sizeof(text)))
        return TRI_OK;
    seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !(seconds > 0 && seconds < 1e7))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-conf: %s=%s is not a number of seconds", key,
                         text);
    *ms_out = (int64_t)(seconds * 1000);
    return TRI_OK;
}

tri_status trii_rdzv_read_settings(trii_rendezvous *r)
{
    const trii_launch_options *o = r->options;
    int64_t attempts_ms;
    tri_status status = read_ms(o, r->is_static ? "timeout" : "join_timeout",
                                r->is_static ? 900000 : 600000, &r->join_ms);

    if (status == TRI_OK)
        status = read_ms(o, "last_call_timeout", 30000, &r->last_call_ms);
    if (status == TRI_OK)
        status = read_ms(o, "close_timeout", 30000, &r->close_ms);
    if (status == TRI_OK)
        status = read_ms(o, "keep_alive_interval", 5000, &r->beat_ms);
    if (status == TRI_OK)
        status = read_ms(o, "keep_alive_max_attempt", 3000, &attempts_ms);
    if (status == TRI_OK)
        status = read_ms(o, "read_timeout", 60000, &r->read_ms);
    if (status == TRI_OK)
        r->dead_ms = r->beat_ms * attempts_ms / 1000;
    return status;
}

/* Whether the store's address is one of ours: only such a one can be bound. */
static bool is_own_address(const char *host)
{
    int fd, port;

    if (trii_socket_is_loopback(host))
        return true;
    if (trii_socket_listen(host, 0, &fd, &port) != TRI_OK)
        return false;
    trii_socket_close(fd);
    return true;
}

static bool is_yes(const char *text)
{
    return *text == '1' || *text == 't' || *text == 'T' || *text == 'y' || *text == 'Y';
}

/* With given ranks this is the workers' store, too. */
static int max_clients(const trii_rendezvous *r)
{
    int n = r->options->nproc;

    if (!r->is_static)
        return trii_descriptors_share(TRII_RDZV_QUARTERS, 0, 1);
    return trii_descriptors_share(3, TRII_FDS_OF_AGENT + TRII_FDS_OF_WORKER * n,
                                  n + TRII_FDS_OF_AGENT);
}

tri_status trii_rdzv_serve(trii_rendezvous *r)
{
    const trii_launch_options *o = r->options;
    bool loopback = trii_socket_is_loopback_text(o->rdzv_host), must = false;
    trii_job_key key = {0};
    trii_tcp_server_options server = {.host = loopback ? o->rdzv_host : NULL,
                                      .port = r->server_port,
                                      .key = &key,
                                      /* given ranks: PyTorch's workers use this store too */
                                      .key_optional = loopback && r->is_static,
                                      .open_is_told = true,
                                      .max_connections = max_clients(r),
                                      .loop = r->setup.loop};
    char text[16];
    tri_status status;

    if (r->is_static) {
        must = o->node_rank == 0;
        if (!must)
            return TRI_OK;
    } else if (trii_rdzv_conf(o, "is_host", text, sizeof(text))) {
        must = is_yes(text);
        if (!must)
            return TRI_OK;
    } else if (!is_own_address(o->rdzv_host)) {
        return TRI_OK;
    }
    status = trii_job_key_load(&key);
    if (status == TRI_OK)
        status = trii_tcp_server_create(&server, &r->server);
    trii_secret_wipe(&key, sizeof(key));
    if (status == TRI_ERR_STATE && !must)
        return TRI_OK; /* another agent of this host was first */
    if (status == TRI_ERR_STATE)
        return trii_rdzv_port_taken(r);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "the agents'");
    r->server_port = trii_tcp_server_port(r->server);
    return TRI_OK;
}

static bool is_etcd(const trii_launch_options *o)
{
    return strncmp(o->rdzv_backend, "etcd", 4) == 0;
}

/* Who we are: the name that was given, the one by which others reach the store that we serve, or
 * the address of our end of the connection to it. */
static void find_self(trii_rendezvous *r)
{
    const trii_launch_options *o = r->options;
    char host[TRII_ADDR_TEXT];
    uint32_t any = 0;

    /* Two containers may have the same name and process numbers. */
    if (trii_random_bytes(&any, sizeof(any)))
        r->self.local_id = any >> 1;
    if (o->local_addr != NULL) {
        snprintf(r->self.addr, sizeof(r->self.addr), "%s", o->local_addr);
        return;
    }
    if (is_etcd(o)) {
        trii_rdzv_etcd_address(o->rdzv_endpoint, r->self.addr, sizeof(r->self.addr));
        return;
    }
    snprintf(r->self.addr, sizeof(r->self.addr), "%s",
             strcmp(o->rdzv_host, "localhost") == 0 ? "127.0.0.1" : o->rdzv_host);
    if (!trii_rdzv_serves(r) && trii_tcp_local_host(r->base, host) == TRI_OK)
        snprintf(r->self.addr, sizeof(r->self.addr), "%s", host);
}

static tri_status begin_etcd(trii_rendezvous *r)
{
    tri_status status = trii_rdzv_etcd_create(r->options, r->id, r->read_ms, &r->backend);

    if (status != TRI_OK)
        return status;
    r->base = tri_store_ref(r->backend->store);
    find_self(r);
    return trii_rdzv_declare(r);
}

tri_status trii_rdzv_begin(trii_rendezvous *r)
{
    const trii_launch_options *o = r->options;
    /* torchrun's rank 0 counts who has connected before it goes on */
    tri_store_tcp_options options = {.timeout_ms = r->is_static ? r->join_ms : r->read_ms,
                                     .world_size = r->is_static ? o->max_nodes : 0};
    tri_status status;

    if (is_etcd(o))
        return begin_etcd(r);
    status = tri_store_tcp(trii_rdzv_serves(r) && trii_socket_is_loopback_text(o->rdzv_host)
                               ? o->rdzv_host
                               : (trii_rdzv_serves(r) ? "localhost" : o->rdzv_host),
                           r->server_port, &options, &r->base);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s",
                             *o->rdzv_endpoint != '\0' || !r->is_static ? "--rdzv-endpoint"
                                                                        : "--master-addr");
    find_self(r);
    status = trii_rdzv_watch_own(r);
    if (r->is_static || status != TRI_OK)
        return status;
    status = trii_rdzv_c10d_create(r->base, r->id, &r->backend);
    return status == TRI_OK ? trii_rdzv_declare(r) : status;
}
