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

/* For the first lane's communication, which other entries of its own do not wait for: whether what
 * entry e waits for in other lanes is complete. */
bool trii_lanes_passed(const trii_plan *plan, int32_t e);
/* Until it is; ABORTED if that will not be, because a lane has failed. */
tri_status trii_lanes_wait(const trii_plan *plan, int32_t e) TRI_MUST_CHECK;
/* ABORTED if a lane has failed in front of what the first one runs now: peers may wait for what it
 * did not make. */
tri_status trii_lanes_check(const trii_plan *plan) TRI_MUST_CHECK;

#endif
