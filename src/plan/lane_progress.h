/*
 * lane_progress.h - how far the lanes of a run are.
 */
#ifndef TRII_LANE_PROGRESS_H
#define TRII_LANE_PROGRESS_H

#include <stdatomic.h>

#include "base/err.h"
#include "plan/plan.h"

typedef struct trii_lane_state {
    /* How many of its entries are complete, as far as others wait for them; INT_MAX: it has ended.
     */
    atomic_int done;
    char apart[60]; /* from what its own thread writes */
    int32_t failed; /* entry; INT32_MAX = none */
    tri_status status;
    char line[TRII_ERR_BYTES];
    struct lane_run *run;
    atomic_int
        *failed_at; /* of the run: the first entry that has failed; later ones need not run */
    int32_t lane;
} trii_lane_state;

/* For the first lane's communication, which other entries of its own do not wait for: whether what
 * entry e waits for in other lanes is complete. */
bool trii_lanes_passed(const trii_plan *plan, int32_t e);
/* Until it is; ABORTED if that will not be, because a lane has failed. */
tri_status trii_lanes_wait(const trii_plan *plan, int32_t e) TRI_MUST_CHECK;
/* ABORTED if a lane has failed in front of what the first one runs now: peers may wait for what it
 * did not make. */
tri_status trii_lanes_check(const trii_plan *plan) TRI_MUST_CHECK;

#endif
