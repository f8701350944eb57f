/*
 * rendezvous.c - see rendezvous.h: what agent_hosts.c calls. Chooses the handler (rdzv_static.c or
 * rdzv_dynamic.c), starts the thread (rdzv_thread.c), queues orders for it and its events for the
 * agent.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "os/host.h"
#include "os/process.h"

const trii_rdzv_time trii_rdzv_real_time = {.now_ns = trii_now_ns,
                                            .wall_ns = trii_wall_ns,
                                            .wait_until = trii_cond_wait_until,
                                            .notify = trii_cond_broadcast,
                                            .start = trii_thread_start,
                                            .join = trii_thread_join};

static const trii_rdzv_handler *const handlers[] = {
    [TRII_RDZV_STATIC] = &trii_rdzv_static,
    [TRII_RDZV_C10D] = &trii_rdzv_c10d,
    [TRII_RDZV_ETCD] = &trii_rdzv_etcd,
};

static void order(trii_rendezvous *r, const trii_rdzv_order *o)
{
    bool is_news = o->kind == TRII_ORDER_HEARD || o->kind == TRII_ORDER_LOST;

    trii_mutex_lock(&r->mutex);
    if (o->kind == TRII_ORDER_QUIT && !trii_rendezvous_has_begun(r))
        r->n_orders = 0; /* no agent shall hear of us now */
    /* However many agents are lost at once, there is room for what this one does next. */
    if (r->n_orders < (is_news ? TRII_RDZV_ORDERS - 8 : TRII_RDZV_ORDERS))
        r->orders[r->n_orders++] = *o;
    r->time->notify(&r->changed);
    trii_mutex_unlock(&r->mutex);
}

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
    int64_t attempts_ms, unused_ms;
    const struct {
        const char *key;
        int64_t fallback_ms, *out;
    } settings[] = {{r->handler->timeout_key, r->handler->timeout_ms, &r->join_ms},
                    {"last_call_timeout", 30000, &r->last_call_ms},
                    {"close_timeout", 30000, &unused_ms}, /* torch's word */
                    {"keep_alive_interval", 5000, &r->beat_ms},
                    {"keep_alive_max_attempt", 3000, &attempts_ms},
                    {"read_timeout", 60000, &r->read_ms}};
    tri_status status = TRI_OK;

    for (size_t i = 0; i < TRII_COUNT_OF(settings) && status == TRI_OK; i++)
        status = read_ms(o, settings[i].key, settings[i].fallback_ms, settings[i].out);
    if (status == TRI_OK)
        r->dead_ms = r->beat_ms * attempts_ms / 1000;
    r->rules = (trii_rdzv_rules){o->min_nodes, o->max_nodes, r->last_call_ms * 1000};
    r->exchange_ms = r->handler->fixed_hosts ? r->join_ms : r->read_ms;
    return status;
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
    r->handler = setup->handler != NULL ? setup->handler : handlers[o->rdzv];
    r->time = setup->time != NULL ? setup->time : &trii_rdzv_real_time;
    r->server_port = o->rdzv_port > 0 ? o->rdzv_port : trii_rdzv_default_port(o);
    snprintf(r->id, sizeof(r->id), "%s", o->run_id);
    trii_host_name(r->node_name, sizeof(r->node_name));
    r->self.pid = trii_process_id();
    trii_mutex_init(&r->mutex);
    trii_cond_init(&r->changed);
    status = read_settings(r);
    if (status == TRI_OK)
        status = trii_rdzv_serve(r);
    if (status == TRI_OK)
        status = trii_wakeup_create(&r->event_fd);
    if (status == TRI_OK)
        status = r->time->start(&r->thread, "rendezvous", trii_rdzv_main, r);
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
    int64_t deadline;
    bool done;

    if (r == NULL)
        return;
    deadline = trii_rdzv_deadline(r, patience_ms);
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_QUIT});
    for (;;) {
        done = r->phase == TRII_RDZV_DONE;
        if (done || trii_rdzv_now(r) > deadline)
            break;
        if (r->setup.loop != NULL) { /* it may serve the store, and the end needs that */
            trii_loop_run_once(r->setup.loop, trii_rdzv_deadline(r, 1));
            continue;
        }
        trii_mutex_lock(&r->mutex);
        r->time->wait_until(&r->changed, &r->mutex, trii_rdzv_deadline(r, 1));
        trii_mutex_unlock(&r->mutex);
    }
    if (!done)
        return;
    r->time->join(&r->thread);
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
    return r->phase != TRII_RDZV_CONNECTING;
}

int trii_rendezvous_open_port(const trii_rendezvous *r)
{
    return r->server != NULL && trii_tcp_server_is_open(r->server) ? r->server_port : 0;
}

int64_t trii_rendezvous_answered_ns(const trii_rendezvous *r)
{
    return atomic_load(&r->answered_ns);
}

/* Some have joined, and there is room for more. */
static void describe_came(const trii_rendezvous *r, int came, const char *at, char *text_out,
                          size_t bytes)
{
    const trii_launch_options *o = r->options;

    if (came >= o->min_nodes)
        snprintf(text_out, bytes,
                 "%d of at most %d hosts joined job %s at %s, which is enough; it starts within "
                 "%g s, with those that have joined by then",
                 came, o->max_nodes, r->id, at, (double)r->last_call_ms / 1000);
    else
        snprintf(text_out, bytes, "%d of %s%d hosts joined job %s at %s; start trirun on %d more",
                 came, o->min_nodes < o->max_nodes ? "at least " : "", o->min_nodes, r->id, at,
                 o->min_nodes - came);
}

void trii_rendezvous_describe(trii_rendezvous *r, char *text_out, size_t bytes)
{
    const trii_launch_options *o = r->options;
    int came = atomic_load(&r->came), met = atomic_load(&r->met);
    char at[300];

    r->handler->describe_place(o, r->server_port, at, sizeof(at));
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
        snprintf(text_out, bytes, "all %d hosts joined job %s; waiting for them to be ready", came,
                 r->id);
    else
        describe_came(r, came, at, text_out, bytes);
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
          &(trii_rdzv_order){.kind = TRII_ORDER_JOIN, .port = worker_port, .restarts = restarts});
}

void trii_rendezvous_finish(trii_rendezvous *r)
{
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_FINISH});
}

void trii_rendezvous_heard(trii_rendezvous *r, int64_t round, const trii_rdzv_news *news)
{
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_HEARD, .round = round, .news = *news});
}

void trii_rendezvous_lost(trii_rendezvous *r, const trii_rdzv_round *round,
                          const trii_rdzv_news *news)
{
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_LOST,
                                .round = round->number,
                                .gone = round->agents[news->gone],
                                .news = *news});
}

void trii_rendezvous_leave(trii_rendezvous *r)
{
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_LEAVE});
}

void trii_rendezvous_close(trii_rendezvous *r)
{
    order(r, &(trii_rdzv_order){.kind = TRII_ORDER_CLOSE});
}
