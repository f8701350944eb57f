/*
 * job_metrics.c - see job_metrics.h.
 */
#include "launch/report/job_metrics.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/param.h"
#include "launch/report/hang.h"
#include "launch/text.h"
#include "os/clock.h"
#include "os/endpoint.h"
#include "os/file.h"

#define REFRESH_MS 5000
#define ACCEPT_PAUSE_MS 100 /* where no descriptor was left for who asks */
#define BYTES_PER_WORKER 1024

/* --- the text ----------------------------------------------------------------------------- */

typedef struct text_buffer {
    char *text;
    size_t used, room;
} text_buffer;

TRII_PRINTF(2, 3) static void add(text_buffer *b, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(b->text + b->used, b->room - b->used, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < b->room - b->used)
        b->used += (size_t)n;
    else
        b->text[b->used] = '\0'; /* whole lines only */
}

static void add_head(text_buffer *b, const char *name, const char *type, const char *help)
{
    add(b, "# HELP trirun_%s %s\n# TYPE trirun_%s %s\n", name, help, name, type);
}

/* One worker's figures, of one moment. */
typedef struct figures {
    uint64_t calls;
    int64_t cpu_ns, resident_bytes;
} figures;

static void measure(const trii_metrics_facts *facts, figures *all)
{
    for (int i = 0; i < facts->n_workers; i++) {
        const trii_worker *w = &facts->workers[i];

        all[i] =
            (figures){.calls = trii_rank_calls(facts->run_dir, w->rank), .cpu_ns = w->exit.cpu_ns};
        if (w->live)
            trii_process_usage(w->process.pid, &all[i].cpu_ns, &all[i].resident_bytes);
    }
}

/* The lines of one metric follow each other, behind its head. */
static void add_workers(text_buffer *b, const trii_metrics_facts *facts, const figures *all)
{
    int n = facts->n_workers;

    add_head(b, "worker_up", "gauge", "1 while the worker runs");
    for (int i = 0; i < n; i++)
        add(b, "trirun_worker_up{rank=\"%d\"} %d\n", facts->workers[i].rank,
            facts->workers[i].live);
    add_head(b, "worker_calls_total", "counter", "collective calls begun, by the flight record");
    for (int i = 0; i < n; i++)
        add(b, "trirun_worker_calls_total{rank=\"%d\"} %llu\n", facts->workers[i].rank,
            (unsigned long long)all[i].calls);
    add_head(b, "worker_output_bytes_total", "counter", "bytes printed");
    for (int i = 0; i < n; i++) {
        const trii_worker *w = &facts->workers[i];

        add(b,
            "trirun_worker_output_bytes_total{rank=\"%d\",stream=\"stdout\"} %llu\n"
            "trirun_worker_output_bytes_total{rank=\"%d\",stream=\"stderr\"} %llu\n",
            w->rank, (unsigned long long)trii_stream_total(&w->out), w->rank,
            (unsigned long long)trii_stream_total(&w->err));
    }
    add_head(b, "worker_cpu_seconds_total", "counter",
             "processor time of the worker, and of its children that it waited for");
    for (int i = 0; i < n; i++)
        add(b, "trirun_worker_cpu_seconds_total{rank=\"%d\"} %.6f\n", facts->workers[i].rank,
            (double)all[i].cpu_ns / TRII_NS_PER_S);
    add_head(b, "worker_resident_bytes", "gauge", "memory of the worker, 0 once it has ended");
    for (int i = 0; i < n; i++)
        add(b, "trirun_worker_resident_bytes{rank=\"%d\"} %lld\n", facts->workers[i].rank,
            (long long)all[i].resident_bytes);
}

/* All of it, to be released; NULL without memory. */
static char *make_text(const trii_metrics_facts *facts, size_t *bytes_out)
{
    text_buffer b = {.room = 4096 + (size_t)facts->n_workers * BYTES_PER_WORKER};
    figures *all = trii_alloc((size_t)facts->n_workers + 1, sizeof(*all), "metrics");
    char id[300];
    int live = 0;

    b.text = all != NULL ? trii_alloc(1, b.room, "metrics") : NULL;
    if (b.text == NULL) {
        trii_free(all);
        return NULL;
    }
    measure(facts, all);
    for (int i = 0; i < facts->n_workers; i++)
        live += facts->workers[i].live;
    add_head(&b, "info", "gauge", "the job");
    add(&b, "trirun_info{run_id=%s} 1\n", trii_metrics_quote(facts->run_id, id, sizeof(id)));
    add_head(&b, "start_time_seconds", "gauge", "when the job started, since 1970");
    add(&b, "trirun_start_time_seconds %.3f\n", (double)facts->started_wall_ns / TRII_NS_PER_S);
    add_head(&b, "workers", "gauge", "workers of this host that run");
    add(&b, "trirun_workers %d\n", live);
    add_head(&b, "restarts_total", "counter", "how often the workers were started again");
    add(&b, "trirun_restarts_total %d\n", facts->restarts);
    add_head(&b, "restarts_max", "gauge", "how often they may be");
    add(&b, "trirun_restarts_max %d\n", facts->max_restarts);
    add_head(&b, "failures_total", "counter", "failures of workers that were a cause");
    add(&b, "trirun_failures_total %d\n", facts->failures);
    if (facts->n_workers > 0)
        add_workers(&b, facts, all);
    trii_free(all);
    *bytes_out = b.used;
    return b.text;
}

/* --- the file ----------------------------------------------------------------------------- */

static tri_status put(void *target, const char *data, size_t bytes)
{
    return trii_file_replace(target, data, bytes);
}

static const trii_background_kind kind = {.put = put, .release = trii_free, .newest = true};

static tri_status write_first(const char *path, const trii_metrics_facts *facts)
{
    size_t bytes;
    char *text = make_text(facts, &bytes);
    tri_status status = text != NULL ? trii_file_replace(path, text, bytes) : TRI_ERR_NO_MEMORY;

    trii_free(text);
    return status;
}

void trii_metrics_refresh(trii_metrics *metrics)
{
    size_t bytes;
    char *text;

    if (metrics->loop == NULL || metrics->file == NULL)
        return;
    text = make_text(metrics->facts, &bytes);
    if (text != NULL)
        trii_background_put(metrics->file, text, bytes);
    trii_free(text);
}

static void refresh_due(trii_timer *timer)
{
    trii_metrics *metrics = TRII_CONTAINER(timer, trii_metrics, refresh);

    trii_metrics_refresh(metrics);
    trii_loop_timer(metrics->loop, timer, trii_deadline_ms(REFRESH_MS), refresh_due);
}

/* --- HTTP --------------------------------------------------------------------------------- */

static void client_close(trii_metrics_client *client)
{
    trii_loop_unwatch(&client->watch);
    trii_socket_close(client->fd);
    trii_free(client->reply);
    client->reply = NULL;
    client->fd = -1;
}

/* Whether it is "METHOD /metrics ...", also with a query. */
static bool asks_for_figures(const char *request)
{
    const char *path = request + strcspn(request, " \r\n");

    return strncmp(path, " /metrics", 9) == 0 && path[9] != '\0' && strchr(" ?\r\n", path[9]);
}

static char *make_refusal(size_t *bytes_out)
{
    char *text = trii_strdup("trirun: the figures of the job are at /metrics\n", "metrics");

    *bytes_out = text != NULL ? strlen(text) : 0;
    return text;
}

static bool make_reply(trii_metrics_client *client)
{
    bool found = asks_for_figures(client->request);
    size_t bytes = 0;
    char *text = found ? make_text(client->owner->facts, &bytes) : make_refusal(&bytes);

    if (text == NULL)
        return false;
    client->reply = trii_alloc(1, bytes + 256, "metrics");
    if (client->reply != NULL) {
        int head =
            snprintf(client->reply, 256,
                     "HTTP/1.0 %s\r\nContent-Type: text/plain%s\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                     found ? "200 OK" : "404 Not Found", found ? "; version=0.0.4" : "", bytes);

        memcpy(client->reply + head, text, bytes);
        client->bytes = (size_t)head + bytes;
        client->sent = 0;
    }
    trii_free(text);
    return client->reply != NULL;
}

static void client_send(trii_metrics_client *client)
{
    while (client->sent < client->bytes) {
        const trii_span span = {client->reply + client->sent, client->bytes - client->sent};
        size_t sent;
        tri_status status = trii_socket_send(client->fd, &span, 1, &sent);

        if (status == TRI_INPROGRESS) {
            trii_loop_change(&client->watch, TRII_WRITABLE);
            return;
        }
        if (status != TRI_OK)
            break;
        client->sent += sent;
    }
    client_close(client);
}

/* The first line decides; of a request that is too long the rest is dropped. */
static void client_ready(trii_watch *watch, unsigned events)
{
    trii_metrics_client *client = TRII_CONTAINER(watch, trii_metrics_client, watch);
    size_t got;
    tri_status status;

    (void)events;
    if (client->reply != NULL) {
        client_send(client);
        return;
    }
    status = trii_socket_recv(client->fd, client->request + client->got,
                              sizeof(client->request) - 1 - client->got, &got);
    if (status == TRI_INPROGRESS)
        return;
    if (status == TRI_OK) {
        client->got += got;
        client->request[client->got] = '\0';
        if (strstr(client->request, "\r\n\r\n") == NULL &&
            client->got < sizeof(client->request) - 1)
            return;
    }
    if (status != TRI_OK || !make_reply(client))
        client_close(client);
    else
        client_send(client);
}

static void resume(trii_timer *timer)
{
    trii_loop_change(&TRII_CONTAINER(timer, trii_metrics, resume)->listener, TRII_READABLE);
}

static void listener_ready(trii_watch *watch, unsigned events)
{
    trii_metrics *metrics = TRII_CONTAINER(watch, trii_metrics, listener);
    int fd, free_slot = 0;
    tri_status status = trii_socket_accept(metrics->listen_fd, &fd);

    (void)events;
    if (status != TRI_OK && status != TRI_INPROGRESS) { /* it stays ready: no asking without end */
        trii_loop_change(watch, 0);
        trii_loop_timer(metrics->loop, &metrics->resume, trii_deadline_ms(ACCEPT_PAUSE_MS), resume);
    }
    if (status != TRI_OK)
        return;
    while (free_slot < TRII_METRICS_CLIENTS && metrics->clients[free_slot].fd >= 0)
        free_slot++;
    if (free_slot == TRII_METRICS_CLIENTS) { /* one that is slow makes room */
        free_slot = 0;
        client_close(&metrics->clients[0]);
    }
    metrics->clients[free_slot].fd = fd;
    metrics->clients[free_slot].got = 0;
    metrics->clients[free_slot].owner = metrics;
    if (trii_loop_watch(metrics->loop, &metrics->clients[free_slot].watch, fd, TRII_READABLE,
                        client_ready) != TRI_OK)
        client_close(&metrics->clients[free_slot]);
}

static tri_status listen_on(trii_metrics *metrics, const char *where)
{
    char host[256];
    int port = -1, bound;
    tri_status status = trii_endpoint_read(where, "--metrics", host, sizeof(host), &port);

    if (status == TRI_OK && port < 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "--metrics %s: a port is missing: %s:PORT", where,
                           where);
    if (status != TRI_OK)
        return status;
    if (host[0] == '\0')
        snprintf(host, sizeof(host), "127.0.0.1");
    status = trii_socket_listen(host, port, &metrics->listen_fd, &bound);
    if (status == TRI_OK) {
        bool six = strchr(host, ':') != NULL;

        metrics->port_is_ours = port == 0;
        snprintf(metrics->url, sizeof(metrics->url), "http://%s%s%s:%d/metrics", six ? "[" : "",
                 host, six ? "]" : "", bound);
        status = trii_loop_watch(metrics->loop, &metrics->listener, metrics->listen_fd,
                                 TRII_READABLE, listener_ready);
    }
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "--metrics");
}

static tri_status begin_file(trii_metrics *metrics, trii_background *files, const char *path)
{
    char what[TRII_LOG_PATH_BYTES], *target;
    tri_status status;

    if (path[strspn(path, "0123456789")] == '\0')
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "--metrics %s: a port is :%s, a file of that name ./%s", path, path, path);
    status = write_first(path, metrics->facts);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "--metrics %s", path);
    target = trii_strdup(path, "path");
    if (target == NULL)
        return TRI_ERR_NO_MEMORY;
    snprintf(what, sizeof(what), "--metrics %s is not up to date", path);
    return trii_background_open(files, &kind, what, target, &metrics->file);
}

tri_status trii_metrics_open(trii_metrics *metrics, trii_loop *loop, trii_background *files,
                             const char *where, const trii_metrics_facts *facts)
{
    tri_status status;

    memset(metrics, 0, sizeof(*metrics));
    metrics->listen_fd = -1;
    for (int i = 0; i < TRII_METRICS_CLIENTS; i++)
        metrics->clients[i].fd = -1;
    if (where == NULL)
        return TRI_OK;
    metrics->facts = facts;
    if (strchr(where, '/') == NULL && strchr(where, ':') != NULL) {
        metrics->loop = loop;
        return listen_on(metrics, where);
    }
    status = begin_file(metrics, files, where);
    if (status != TRI_OK)
        return status;
    metrics->loop = loop;
    trii_loop_timer(loop, &metrics->refresh, trii_deadline_ms(REFRESH_MS), refresh_due);
    return TRI_OK;
}

void trii_metrics_close(trii_metrics *metrics)
{
    if (metrics->loop == NULL)
        return;
    trii_metrics_refresh(metrics);
    trii_background_close(metrics->file);
    metrics->file = NULL;
    trii_loop_timer_stop(metrics->loop, &metrics->refresh);
    trii_loop_timer_stop(metrics->loop, &metrics->resume);
    trii_loop_unwatch(&metrics->listener);
    trii_socket_close(metrics->listen_fd);
    for (int i = 0; i < TRII_METRICS_CLIENTS; i++) {
        if (metrics->clients[i].fd >= 0)
            client_close(&metrics->clients[i]);
    }
    metrics->loop = NULL;
}
