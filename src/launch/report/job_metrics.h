/*
 * job_metrics.h - the figures of a job as Prometheus reads them: in a file that is replaced as a
 * whole (for the text-file collector), or by HTTP on the loopback interface unless a host is named;
 * then connections are accepted here and served by a plug-in (metrics_http.h).
 */
#ifndef TRII_LAUNCH_JOB_METRICS_H
#define TRII_LAUNCH_JOB_METRICS_H

#include "launch/output/background.h"
#include "launch/report/job_facts.h"
#include "launch/report/metrics_http.h"

typedef struct trii_metrics {
    trii_loop *loop; /* NULL = not asked for */
    trii_job_facts *facts;
    trii_background_file *file; /* NULL = by HTTP */
    trii_timer refresh;         /* of the file */
    /* By HTTP: */
    const trii_metrics_http_api *http;
    trii_metrics_http_source source;
    void *server; /* of http; NULL = none */
    trii_watch server_watch;
    trii_timer serve_due;
    trii_watch listener;
    trii_timer resume; /* of the listener */
    int listen_fd;
    char url[320];     /* of the figures; "" in a file */
    bool port_is_ours; /* the user named none */
} trii_metrics;

/* where: a path with a slash or without a colon, else [HOST]:PORT; NULL: nothing is shown. Texts
 * and facts are borrowed. A file is written at once, and from then on by `files`. Errors:
 * INVALID_ARG, STATE (port in use), IO (also what is there and no file), UNSUPPORTED (the plug-in
 * is missing). */
tri_status trii_metrics_open(trii_metrics *metrics, trii_loop *loop, trii_background *files,
                             const char *where, trii_job_facts *facts) TRI_MUST_CHECK;
/* Replaces the file, if there is one. */
void trii_metrics_refresh(trii_metrics *metrics);
/* Writes it a last time; zero: nothing. */
void trii_metrics_close(trii_metrics *metrics);

#endif
