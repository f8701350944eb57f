/*
 * monitor.h - what a job publishes while it runs: events, metrics, the job file that `trireme ps`
 * shows, and whether it hangs. The agent reports what happened; nothing here decides.
 */
#ifndef TRII_LAUNCH_MONITOR_H
#define TRII_LAUNCH_MONITOR_H

#include "base/err.h"
#include "launch/worker/environment.h"
#include "launch/report/events.h"
#include "launch/report/hang.h"
#include "launch/report/job_metrics.h"
#include "launch/cli/options.h"

/* What a job is, for its monitor; borrowed. */
typedef struct trii_monitor_setup {
    const trii_launch_options *options;
    trii_loop *loop;
    trii_sink *sink;
    trii_background *files; /* writes the metrics file */
    const char *run_id, *run_dir;
    void (*hung)(void *agent); /* the job hangs; the ranks that are stuck have been printed */
    /* When workers of any host made progress last, if those of this one did at own_ns. */
    int64_t (*last_progress)(void *agent, int64_t own_ns);
    void *agent;
} trii_monitor_setup;

typedef struct trii_monitor {
    trii_monitor_setup of;
    trii_background *event_files; /* a thread of its own: events may go to a reader that is slow */
    trii_events events;
    trii_metrics metrics;
    trii_job_facts facts;
    trii_launch_job job;        /* of the attempt; its texts are the agent's */
    trii_timer job_file;        /* written once the job has lived a moment */
    char waits[TRII_ERR_BYTES]; /* for other hosts; "" = workers run */
    trii_hang hang;
} trii_monitor;

/* Errors: those of --events and --metrics. */
tri_status trii_monitor_open(trii_monitor *monitor, const trii_monitor_setup *setup) TRI_MUST_CHECK;
/* No worker runs, and the agent waits for other hosts: `what` says for whom and where. */
void trii_monitor_waits(trii_monitor *monitor, const char *what);
/* All workers of the attempt run; borrowed until trii_monitor_ended. */
void trii_monitor_started(trii_monitor *monitor, const trii_launch_job *job, trii_worker *workers);
void trii_monitor_worker_ended(trii_monitor *monitor, const trii_worker *worker);
/* The job hangs, as `why` says: prints which rank of this host is stuck where, and calls `hung`. */
void trii_monitor_hung(trii_monitor *monitor, const char *why);
/* The user's signal `number` is about to be passed on to the workers. */
void trii_monitor_signal(trii_monitor *monitor, int number);
/* host: another host that will be taken away, NULL = this one. left_ms: -1 = not known when.
 * notified: number of this host's workers that were notified; -1 for another host. */
void trii_monitor_preemption(trii_monitor *monitor, const char *host, int64_t left_ms,
                             int notified);
/* No worker runs any more; cause: NULL = none failed. more: another attempt follows. */
void trii_monitor_ended(trii_monitor *monitor, const trii_worker *cause, bool more);
/* The job is over: its last events are queued. */
void trii_monitor_close(trii_monitor *monitor, int exit_status);
/* Call once those are written, or after giving up. */
void trii_monitor_destroy(trii_monitor *monitor);

#endif
