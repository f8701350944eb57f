/*
 * queue_progress.h - the progress of a run's queues, and waiting for it.
 */
#ifndef TRII_QUEUE_PROGRESS_H
#define TRII_QUEUE_PROGRESS_H

#include <stdatomic.h>

#include "base/err.h"
#include "train/plan/plan.h"

typedef struct trii_queue_state {
    /* How many of its entries are complete, or have been put on a queue of which others wait for
     * events; set where others wait for it. INT_MAX: it has ended */
    atomic_int done;
    char apart[60]; /* on another cache line than fields that its own thread writes */
    int32_t failed; /* entry; INT32_MAX = none */
    tri_status status;
    char line[TRII_ERR_BYTES];
    struct queue_run *run;
    atomic_int *failed_at; /* of the run: first entry that has failed; later ones need not run */
    int32_t queue;
} trii_queue_state;

/* For the first queue's communication, which other entries of that queue do not wait for: whether
 * everything that entry e waits for in other queues is complete. */
bool trii_queues_passed(const trii_plan *plan, int32_t e);
/* Waits until it is; ABORTED if it never will be, because a queue has failed. */
tri_status trii_queues_wait(const trii_plan *plan, int32_t e) TRI_MUST_CHECK;
/* ABORTED if a queue has failed at an entry before the one that the first queue runs now: peers may
 * wait for data that it did not make. */
tri_status trii_queues_check(const trii_plan *plan) TRI_MUST_CHECK;

#endif
