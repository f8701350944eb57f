/*
 * rdzv_setup.c - beginning and end of a rendezvous: its settings, who serves the store, by which
 * address others know us, and the orders that the agent gives to the thread.
 */
#include "launch/rendezvous/rdzv_inside.h"

#include <string.h>

#include "base/alloc.h"
#include "launch/rendezvous/rdzv_etcd.h"
#include "os/clock.h"
#include "os/limits.h"
#include "os/process.h"
#include "os/secret.h"
#include "os/unix.h"
#include "store/tcp_client.h"

static void order(trii_rendezvous *r, const trii_rdzv_order *o)
{
    trii_mutex_lock(&r->mutex);
    if (o->kind == TRII_ORDER_QUIT && !atomic_load(&r->begun))
        r->n_orders = 0; /* nobody shall hear of us now */
    if (r->n_orders < TRII_RDZV_ORDERS)
        r->orders[r->n_orders++] = *o;
    trii_cond_broadcast(&r->changed);
    trii_mutex_unlock(&r->mutex);
}

/* --- beginning and end --- */

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

static tri_status read_settings(trii_rendezvous *r)
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

static tri_status serve(trii_rendezvous *r)
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
    r->serves = true;
    return TRI_OK;
}

/* Who we are: the name that was given, the one by which others reach the store that we serve, or
 * the address of our end of the connection to it. */
static bool is_etcd(const trii_launch_options *o)
{
    return strncmp(o->rdzv_backend, "etcd", 4) == 0;
}

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
    if (!r->serves && trii_tcp_local_host(r->base, host) == TRI_OK)
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
    status =
        tri_store_tcp(r->serves && r->server != NULL && trii_socket_is_loopback_text(o->rdzv_host)
                          ? o->rdzv_host
                          : (r->serves ? "localhost" : o->rdzv_host),
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

tri_status trii_rendezvous_create(const trii_rdzv_setup *setup, trii_rendezvous **rdzv_out)
{
    const trii_launch_options *o = setup->options;
    trii_rendezvous *r = trii_alloc(1, sizeof(*r), "rendezvous");
    tri_status status;

    if (r == NULL)
        return TRI_ERR_NO_MEMORY;
    r->options = o;
    r->setup = *setup;
    r->event_fd = -1;
    r->is_static = strcmp(o->rdzv_backend, "static") == 0;
    r->server_port = o->rdzv_port > 0 ? o->rdzv_port : trii_rdzv_default_port(o);
    snprintf(r->id, sizeof(r->id), "%s", o->run_id);
    trii_process_host(r->node_name, sizeof(r->node_name));
    r->self.pid = trii_process_id();
    trii_mutex_init(&r->mutex);
    trii_cond_init(&r->changed);
    status = read_settings(r);
    if (status == TRI_OK && !is_etcd(o))
        status = serve(r);
    if (status == TRI_OK)
        status = trii_wakeup_create(&r->event_fd);
    if (status == TRI_OK)
        status = trii_thread_start(&r->thread, "rendezvous", trii_rdzv_main, r);
    if (status != TRI_OK) {
        trii_tcp_server_destroy(r->server);
        trii_socket_close(r->event_fd);
        trii_free(r);
        return status;
    }
    *rdzv_out = r;
    return TRI_OK;
}

void trii_rendezvous_destroy(trii_rendezvous *r, int64_t patience_ms)
{
    int64_t deadline = trii_deadline_ms(patience_ms);
    bool done;

    if (r == NULL)
        return;
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_QUIT});
    for (;;) {
        trii_mutex_lock(&r->mutex);
        done = r->done;
        trii_mutex_unlock(&r->mutex);
        if (done || trii_now_ns() > deadline)
            break;
        /* the store may be served by this thread's loop, and the end needs it */
        trii_loop_run_once(r->setup.loop, trii_now_ns() + TRII_NS_PER_MS);
    }
    if (!done)
        return;
    trii_thread_join(&r->thread);
    trii_tcp_server_destroy(r->server);
    while (r->events != NULL) {
        trii_rdzv_event_list *next = r->events->next;

        trii_free(r->events->event.round.agents);
        trii_free(r->events);
        r->events = next;
    }
    trii_socket_close(r->event_fd);
    trii_cond_fini(&r->changed);
    trii_mutex_fini(&r->mutex);
    trii_free(r);
}

int trii_rendezvous_fd(const trii_rendezvous *r)
{
    return r->event_fd;
}

bool trii_rendezvous_has_begun(const trii_rendezvous *r)
{
    return atomic_load(&r->begun);
}

int trii_rendezvous_open_port(const trii_rendezvous *r)
{
    return r->server != NULL && trii_tcp_server_is_open(r->server) ? r->server_port : 0;
}

int64_t trii_rendezvous_answered_ns(const trii_rendezvous *r)
{
    return atomic_load(&r->answered_ns);
}

void trii_rendezvous_describe(trii_rendezvous *r, char *text_out, size_t bytes)
{
    const trii_launch_options *o = r->options;
    int came = atomic_load(&r->came), met = atomic_load(&r->met);
    char at[300], wanted[32];

    if (is_etcd(o))
        snprintf(at, sizeof(at), "%s", o->rdzv_endpoint);
    else
        snprintf(at, sizeof(at), "%s:%d%s", o->rdzv_host, r->server_port,
                 !r->is_static && *o->rdzv_endpoint == '\0' ? " (no --rdzv-endpoint)" : "");
    if (o->min_nodes == o->max_nodes)
        snprintf(wanted, sizeof(wanted), "%d", o->max_nodes);
    else
        snprintf(wanted, sizeof(wanted), "%d to %d", o->min_nodes, o->max_nodes);
    if (met > 0) {
        trii_mutex_lock(&r->mutex);
        snprintf(text_out, bytes, "the %d hosts of job %s have met; waiting for %s to be ready",
                 met, r->id, r->waited_for);
        trii_mutex_unlock(&r->mutex);
    } else if (came == 0)
        snprintf(text_out, bytes, "no answer yet from %s, where the hosts of job %s meet", at,
                 r->id);
    else if (came < 0)
        snprintf(text_out, bytes, "waiting at %s for a place in job %s", at, r->id);
    else if (came >= o->max_nodes)
        snprintf(text_out, bytes, "all %d hosts of job %s came; waiting for them to be ready", came,
                 r->id);
    else
        snprintf(text_out, bytes, "%d of %s hosts came; waiting at %s for job %s", came, wanted, at,
                 r->id);
}

void trii_rendezvous_next(trii_rendezvous *r, trii_rdzv_event *event_out)
{
    trii_rdzv_event_list *item;

    trii_mutex_lock(&r->mutex);
    item = r->events;
    if (item != NULL)
        r->events = item->next;
    else
        trii_wakeup_clear(r->event_fd);
    trii_mutex_unlock(&r->mutex);
    event_out->kind = TRII_RDZV_NOTHING;
    if (item != NULL)
        *event_out = item->event;
    trii_free(item);
}

void trii_rendezvous_join(trii_rendezvous *r, int worker_port, int restarts)
{
    order(r,
          &(trii_rdzv_order){.kind = TRII_ORDER_JOIN, .number = worker_port, .restarts = restarts});
}

void trii_rendezvous_finish(trii_rendezvous *r)
{
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_FINISH});
}

void trii_rendezvous_tell(trii_rendezvous *r, bool over, bool counts, const char *why)
{
    trii_rdzv_order o = {.kind = TRII_ORDER_TELL, .over = over, .counts = counts};

    snprintf(o.why, sizeof(o.why), "%s", why);
    order(r, &o);
}

void trii_rendezvous_lost(trii_rendezvous *r, const trii_rdzv_round *round, int group_rank,
                          const char *why)
{
    trii_rdzv_order o = {.kind = TRII_ORDER_LOST,
                         .number = group_rank,
                         .round = round->number,
                         .node = round->agents[group_rank].node,
                         .serves = round->agents[group_rank].serves};

    snprintf(o.why, sizeof(o.why), "%s", why);
    order(r, &o);
}

void trii_rendezvous_leave(trii_rendezvous *r, const char *why)
{
    trii_rdzv_order o = {.kind = TRII_ORDER_LEAVE};

    snprintf(o.why, sizeof(o.why), "%s", why);
    order(r, &o);
}

void trii_rendezvous_close(trii_rendezvous *r)
{
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_CLOSE});
}
