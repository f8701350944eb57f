/*
 * job_metrics.c - see job_metrics.h. Called by monitor.c, which knows the figures; the file is
 * written by output/background.h, HTTP is spoken by plugins/metrics-http.
 */
#include "launch/report/job_metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "launch/report/hang.h"
#include "launch/output/escape.h"
#include "os/clock.h"
#include "os/endpoint.h"
#include "os/file.h"
#include "os/library.h"

#define REFRESH_MS 5000
#define ACCEPT_PAUSE_MS 100 /* where no descriptor was left for a client */
#define BYTES_PER_WORKER 1024

/* --- the text ------------------------------------------------------------- */

/* One worker's figures, of one moment. */
typedef struct figures {
    double up, calls, stdout_bytes, stderr_bytes, cpu_seconds, resident_bytes;
} figures;

static const struct {
    const char *name, *type;
    const char *help; /* NULL: as the row before, of which it is another label */
    const char *label;
    size_t figure; /* its offset in `figures` */
} worker_metrics[] = {
    {"up", "gauge", "1 while the worker runs", "", offsetof(figures, up)},
    {"calls_total", "counter", "collective calls begun, by the flight record", "",
     offsetof(figures, calls)},
    {"output_bytes_total", "counter", "bytes printed", ",stream=\"stdout\"",
     offsetof(figures, stdout_bytes)},
    {"output_bytes_total", NULL, NULL, ",stream=\"stderr\"", offsetof(figures, stderr_bytes)},
    {"cpu_seconds_total", "counter",
     "processor time of the worker, and of its children that it waited for", "",
     offsetof(figures, cpu_seconds)},
    {"resident_bytes", "gauge", "memory of the worker, 0 once it has ended", "",
     offsetof(figures, resident_bytes)},
};

static figures measure(const trii_job_facts *facts, trii_worker *w)
{
    int64_t cpu_ns = w->exit.cpu_ns, resident_bytes = 0;

    if (w->live)
        trii_process_usage(w->process.pid, &cpu_ns, &resident_bytes);
    return (figures){.up = w->live,
                     .calls = (double)trii_rank_calls(facts->run_dir, w->rank),
                     .stdout_bytes = (double)trii_stream_total(&w->out),
                     .stderr_bytes = (double)trii_stream_total(&w->err),
                     .cpu_seconds = (double)cpu_ns / TRII_NS_PER_S,
                     .resident_bytes = (double)resident_bytes};
}

static void add_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP trirun_%s %s\n# TYPE trirun_%s %s\n", name, help, name, type);
}

static void add(FILE *out, const char *name, const char *type, const char *help, double value)
{
    add_head(out, name, type, help);
    fprintf(out, "trirun_%s %.15g\n", name, value);
}

/* The lines of one metric follow each other, after its head. */
static void add_workers(FILE *out, const trii_job_facts *facts, const figures *all)
{
    for (size_t k = 0; k < TRII_COUNT_OF(worker_metrics); k++) {
        char name[40];

        snprintf(name, sizeof(name), "worker_%s", worker_metrics[k].name);
        if (worker_metrics[k].help != NULL)
            add_head(out, name, worker_metrics[k].type, worker_metrics[k].help);
        for (int i = 0; i < facts->n_workers; i++)
            fprintf(out, "trirun_%s{rank=\"%d\"%s} %.15g\n", name, facts->workers[i].rank,
                    worker_metrics[k].label,
                    *(const double *)((const char *)&all[i] + worker_metrics[k].figure));
    }
}

static void write_text(FILE *out, const trii_job_facts *facts, figures *all)
{
    char id[300];
    int live = 0;

    for (int i = 0; i < facts->n_workers; i++) {
        all[i] = measure(facts, &facts->workers[i]);
        live += facts->workers[i].live;
    }
    add_head(out, "info", "gauge", "the job");
    fprintf(out, "trirun_info{run_id=%s} 1\n", trii_metrics_quote(facts->run_id, id, sizeof(id)));
    add(out, "start_time_seconds", "gauge", "when the job started, since 1970",
        (double)facts->started_wall_ns / TRII_NS_PER_S);
    add(out, "workers", "gauge", "workers of this host that run", live);
    add(out, "restarts_total", "counter", "how often the workers were started again",
        facts->restarts);
    add(out, "restarts_max", "gauge", "how often they may be", facts->max_restarts);
    add(out, "failures_total", "counter", "failures of workers that were a cause", facts->failures);
    if (facts->n_workers > 0)
        add_workers(out, facts, all);
}

/* All of it, to be released; NULL without memory. */
static char *make_text(void *job_facts, size_t *bytes_out)
{
    const trii_job_facts *facts = job_facts;
    size_t room = 4096 + (size_t)facts->n_workers * BYTES_PER_WORKER;
    figures *all = trii_alloc((size_t)facts->n_workers + 1, sizeof(*all), "metrics");
    char *text = all != NULL ? trii_alloc(1, room, "metrics") : NULL;
    FILE *out = text != NULL ? fmemopen(text, room, "w") : NULL;

    if (out != NULL) {
        write_text(out, facts, all);
        *bytes_out = (size_t)ftell(out);
    }
    if (out == NULL || fclose(out) != 0) {
        trii_free(text);
        text = NULL;
    }
    trii_free(all);
    return text;
}

/* --- the file ------------------------------------------------------------- */

static tri_status put(void *target, const char *data, size_t bytes)
{
    return trii_file_replace(target, data, bytes);
}

static const trii_background_kind kind = {.put = put, .release = trii_free, .newest = true};

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

/* --- HTTP ----------------------------------------------------------------- */

static void serve_due(trii_timer *timer);

static void resume(trii_timer *timer)
{
    trii_loop_change(&TRII_CONTAINER(timer, trii_metrics, resume)->listener, TRII_READABLE);
}

/* Lets the server do what is ready, and comes again when it asks to. */
static void serve(trii_metrics *metrics)
{
    int64_t wait_ms = metrics->http->run(metrics->server);

    trii_loop_timer(metrics->loop, &metrics->serve_due,
                    wait_ms < 0 ? TRII_NO_DEADLINE : trii_deadline_ms(wait_ms), serve_due);
}

static void serve_due(trii_timer *timer)
{
    serve(TRII_CONTAINER(timer, trii_metrics, serve_due));
}

static void server_ready(trii_watch *watch, unsigned events)
{
    (void)events;
    serve(TRII_CONTAINER(watch, trii_metrics, server_watch));
}

static void listener_ready(trii_watch *watch, unsigned events)
{
    trii_metrics *metrics = TRII_CONTAINER(watch, trii_metrics, listener);
    int fd;
    tri_status status = trii_socket_accept(metrics->listen_fd, &fd);

    (void)events;
    if (status != TRI_OK && status != TRI_INPROGRESS) { /* it stays ready: no asking without end */
        trii_loop_change(watch, 0);
        trii_loop_timer(metrics->loop, &metrics->resume, trii_deadline_ms(ACCEPT_PAUSE_MS), resume);
    }
    if (status != TRI_OK)
        return;
    metrics->http->add(metrics->server, fd);
    serve(metrics);
}

static tri_status load_server(const char *where, const trii_metrics_http_api **http_out)
{
    char places[300];
    void *library = NULL;
    const trii_metrics_http_api *http;
    tri_status status =
        trii_library_load_plugin(TRII_METRICS_HTTP_PLUGIN, places, sizeof(places), &library);

    if (status == TRI_ERR_NOT_FOUND)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "--metrics %s needs the plug-in %s, which is not in%s: it is built where "
                         "libmicrohttpd's development files are (Debian: libmicrohttpd-dev); "
                         "TRI_PLUGIN_PATH names more folders. --metrics ./FILE needs none",
                         where, TRII_METRICS_HTTP_PLUGIN, places);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(TRI_ERR_UNSUPPORTED, "--metrics %s", where);
    http = trii_library_symbol(library, TRII_METRICS_HTTP_SYMBOL);
    if (http == NULL || http->abi != TRII_METRICS_HTTP_ABI || http->size != sizeof(*http))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "--metrics %s: %s is of another version of Trireme",
                         where, TRII_METRICS_HTTP_PLUGIN);
    *http_out = http;
    return TRI_OK;
}

static tri_status start_server(trii_metrics *metrics)
{
    int fd;
    tri_status status;

    metrics->source =
        (trii_metrics_http_source){.make = make_text, .release = trii_free, .arg = metrics->facts};
    metrics->server = metrics->http->open(&metrics->source, &fd);
    if (metrics->server == NULL)
        return TRII_FAIL(TRI_ERR_IO, "libmicrohttpd cannot start its server");
    status =
        trii_loop_watch(metrics->loop, &metrics->server_watch, fd, TRII_READABLE, server_ready);
    if (status == TRI_OK)
        status = trii_loop_watch(metrics->loop, &metrics->listener, metrics->listen_fd,
                                 TRII_READABLE, listener_ready);
    return status;
}

static tri_status listen_on(trii_metrics *metrics, const char *where)
{
    char host[256];
    int port = -1, bound;
    tri_status status = trii_endpoint_read(where, "--metrics", host, sizeof(host), &port);

    if (status == TRI_OK && port < 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "--metrics %s: a port is missing: %s:PORT", where,
                           where);
    if (status == TRI_OK)
        status = load_server(where, &metrics->http);
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
        status = start_server(metrics);
    }
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "--metrics");
}

static tri_status begin_file(trii_metrics *metrics, trii_background *files, const char *path)
{
    char what[TRII_LOG_PATH_BYTES], *target, *text;
    size_t bytes;
    tri_status status;

    if (path[strspn(path, "0123456789")] == '\0')
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "--metrics %s: a port is :%s, a file of that name ./%s", path, path, path);
    text = make_text(metrics->facts, &bytes);
    status = text != NULL ? trii_file_replace(path, text, bytes) : TRI_ERR_NO_MEMORY;
    trii_free(text);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "--metrics %s", path);
    target = trii_strdup(path, "path");
    if (target == NULL)
        return TRI_ERR_NO_MEMORY;
    snprintf(what, sizeof(what), "--metrics %s is not up to date", path);
    return trii_background_open(files, &kind, what, target, &metrics->file);
}

tri_status trii_metrics_open(trii_metrics *metrics, trii_loop *loop, trii_background *files,
                             const char *where, trii_job_facts *facts)
{
    tri_status status;

    memset(metrics, 0, sizeof(*metrics));
    metrics->listen_fd = -1;
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
    trii_loop_timer_stop(metrics->loop, &metrics->serve_due);
    trii_loop_unwatch(&metrics->server_watch);
    if (metrics->server != NULL)
        metrics->http->close(metrics->server);
    metrics->loop = NULL;
}
