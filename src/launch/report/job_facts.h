/*
 * job_facts.h - what is known of a job on this host while it runs: the monitor keeps it, the
 * metrics show it and the detector of hangs looks at it.
 */
#ifndef TRII_LAUNCH_JOB_FACTS_H
#define TRII_LAUNCH_JOB_FACTS_H

#include "launch/worker/worker.h"

typedef struct trii_job_facts {
    const char *run_id, *run_dir;
    trii_worker *workers; /* of the attempt; NULL before the first */
    int n_workers;
    int restarts, max_restarts;
    int failures; /* of workers that were a cause */
    int64_t started_wall_ns;
} trii_job_facts;

#endif
