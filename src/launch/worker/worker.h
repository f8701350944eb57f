/*
 * worker.h - one worker as its agent sees it.
 */
#ifndef TRII_LAUNCH_WORKER_H
#define TRII_LAUNCH_WORKER_H

#include "launch/output/output.h"
#include "os/process.h"

typedef struct trii_worker {
    trii_watch watch; /* of process.pidfd */
    void *owner;      /* its agent */
    trii_process process;
    trii_process_exit exit;
    int rank, local_rank;
    bool live;
    bool was_ending;              /* already, when the others were stopped */
    bool signalled;               /* by us, before it ended */
    bool notified;                /* of the host's preemption */
    int64_t started_ns, ended_ns; /* monotonic: their order is the order of events */
    int64_t wall_ahead_ns;        /* wall clock less the monotonic one, when it started */
    trii_stream out, err;
} trii_worker;

static inline bool trii_worker_failed(const trii_worker *worker)
{
    return !worker->live && (worker->exit.signal != 0 || worker->exit.code != 0);
}

/* "was killed by SIGSEGV (core dumped)", "exited with code 3", "succeeded", "is running". */
void trii_worker_describe(const trii_worker *worker, char *text_out, size_t bytes);

#endif
