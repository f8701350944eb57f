/*
 * job_metrics.h - the figures of a job as Prometheus reads them: in a file that is replaced as a
 * whole (for the text-file collector), or by HTTP on the loopback interface unless a host is named.
 */
#ifndef TRII_LAUNCH_JOB_METRICS_H
#define TRII_LAUNCH_JOB_METRICS_H

#include "launch/output/background.h"
#include "launch/worker/worker.h"

#define TRII_METRICS_CLIENTS 8

/* What is shown; the monitor keeps it. */
typedef struct trii_metrics_facts {
    const char *run_id, *run_dir;
    const trii_worker *workers;
    int n_workers;
    int restarts, max_restarts;
    int failures; /* of workers that were a cause */
    int64_t started_wall_ns;
} trii_metrics_facts;

typedef struct trii_metrics_client {
    trii_watch watch;
    struct trii_metrics *owner;
    int fd; /* -1 = free */
    char request[512];
    size_t got;
    char *reply; /* NULL until the request is complete */
    size_t bytes, sent;
} trii_metrics_client;

typedef struct trii_metrics {
    trii_loop *loop; /* NULL = nobody asked */
    const trii_metrics_facts *facts;
    trii_background_file *file; /* NULL = by HTTP */
    trii_timer refresh;         /* of the file */
    trii_watch listener;
    trii_timer resume; /* of the listener */
    int listen_fd;
    char url[320];     /* by HTTP: of the figures; else "" */
    bool port_is_ours; /* nobody named it */
    trii_metrics_client clients[TRII_METRICS_CLIENTS];
} trii_metrics;

/* where: a path with a slash or without a colon, else [HOST]:PORT; NULL: nothing is shown. Texts
 * and facts are borrowed. A file is written at once, and from then on by `files`. Errors:
 * INVALID_ARG, STATE (port in use), IO (also what is there and no file). */
tri_status trii_metrics_open(trii_metrics *metrics, trii_loop *loop, trii_background *files,
                             const char *where, const trii_metrics_facts *facts) TRI_MUST_CHECK;
/* Writes the file anew, if there is one. */
void trii_metrics_refresh(trii_metrics *metrics);
/* Writes it a last time; zero: nothing. */
void trii_metrics_close(trii_metrics *metrics);

#endif
