/*
 * queue_run.h - runs a plan with several queues: the calling thread has the first queue, a thread
 * of each other device its own.
 */
#ifndef TRII_QUEUE_RUN_H
#define TRII_QUEUE_RUN_H

#include "train/plan/plan.h"

/* Runs all entries. Of several failures the first in the plan's order is reported, and each queue's
 * `reached` is the last entry that it began. */
tri_status trii_queues_run(trii_plan *plan, const trii_step *step,
                           const trii_segment *segment) TRI_MUST_CHECK;

#endif
