/*
 * lane_run.h - a run of a plan with several lanes: the calling thread has the first, a thread of
 * each other device its own.
 */
#ifndef TRII_LANE_RUN_H
#define TRII_LANE_RUN_H

#include "plan/plan.h"

/* Runs all entries. On failure the first one in the plan's order is what is reported, and each
 * lane's `reached` is the last entry that it began. */
tri_status trii_lanes_run(trii_plan *plan, const trii_step *step, const trii_segment *segment,
                          const trii_run *run) TRI_MUST_CHECK;

#endif
