/*
 * hang.h - notices that a job does nothing: no rank begins a call, none prints (our own warnings of
 * ranks that wait do not count).
 */
#ifndef TRII_LAUNCH_HANG_H
#define TRII_LAUNCH_HANG_H

#include "launch/worker/worker.h"

typedef struct trii_hang {
    trii_timer timer;
    trii_loop *loop;
    int64_t limit_ns; /* 0 = it may take its time */
    const char *run_dir;
    trii_worker *workers;
    int n_workers;
    uint64_t progress; /* calls begun and bytes printed, of all workers */
    int64_t since_ns;  /* when that last grew */
    void (*hung)(struct trii_hang *hang);
} trii_hang;

/* Begins to watch the workers, which have been started; `hung` comes once. Looks four times
 * within limit_ms. run_dir, workers: borrowed. limit_ms 0: nothing is watched. */
void trii_hang_start(trii_hang *hang, trii_loop *loop, int64_t limit_ms, const char *run_dir,
                     trii_worker *workers, int n_workers, void (*hung)(trii_hang *hang));
void trii_hang_stop(trii_hang *hang);
/* Who is stuck and where: what the flight records say about who waits for whom; of workers without
 * records, what the kernel says. */
void trii_hang_report(const trii_hang *hang, trii_sink *sink);
/* Calls that the programs of the rank have begun by their flight records; 0 without one. */
uint64_t trii_rank_calls(const char *run_dir, int rank);

/* Whether the records of the job say that somebody waits for somebody, for longer than ranks of a
 * healthy job do, or that something else is wrong. */
bool trii_hang_is_waiting(const char *run_dir);

#endif
