/*
 * hang.h - detects that a job makes no progress: no rank of any host begins a call and none prints
 * (the warnings of our library about ranks that wait do not count).
 */
#ifndef TRII_LAUNCH_HANG_H
#define TRII_LAUNCH_HANG_H

#include "launch/report/job_facts.h"
#include "os/loop.h"

typedef struct trii_hang {
    trii_timer timer;
    trii_loop *loop;
    int64_t limit_ns;  /* 0 = no limit */
    uint64_t progress; /* calls begun and bytes printed, of all workers of this host */
    int64_t since_ns;  /* when that last grew */

    /* the caller's */
    const trii_job_facts *facts; /* borrowed */
    /* When workers of any host made progress last, if those of this one did at own_ns. */
    int64_t (*last_progress)(struct trii_hang *hang, int64_t own_ns);
    void (*hung)(struct trii_hang *hang); /* called once */
} trii_hang;

/* Begins to watch the workers, which have been started. The caller has set its fields. Checks four
 * times within limit_ms. limit_ms 0: nothing is watched. */
void trii_hang_start(trii_hang *hang, trii_loop *loop, int64_t limit_ms);
void trii_hang_stop(trii_hang *hang);
/* Prints which rank is stuck and where: by the flight records, who waits for whom; for workers
 * without a record, the state that the kernel shows. */
void trii_hang_report(const trii_hang *hang, trii_sink *sink);
/* Calls that the programs of the rank (-1: of all) have begun by their flight records; 0 without
 * one. */
uint64_t trii_rank_calls(const char *run_dir, int rank);

/* Whether a rank waits for another one, by the flight records, for longer than ranks of a healthy
 * job do, or something else is wrong. */
bool trii_hang_is_waiting(const char *run_dir);

#endif
