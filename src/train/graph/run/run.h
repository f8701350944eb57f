/*
 * run.h - what the files that run a step share.
 */
#ifndef TRII_RUN_H
#define TRII_RUN_H

#include "train/graph/step/recorder.h"

/* The contents of a value before the run that overwrites it. */
typedef struct trii_aside {
    trii_vid id;
    trii_storage *storage; /* owned */
    const trii_layout *layout;
} trii_aside;

/* What this folder keeps for a recorder. */
typedef struct trii_run_state {
    /* nan_check.c: during a run */
    trii_aside *aside;
    int32_t n_aside, cap_aside;
    bool without_rows;
} trii_run_state;
/* NULL (and the error line) without memory. */
trii_run_state *trii_run_state_of(trii_recorder *recorder);

/* nan_check.c: see there. */
tri_status trii_nan_before(trii_step *step, const trii_segment *segment);
tri_status trii_nan_after(trii_step *step, const trii_segment *segment);
void trii_nan_done(trii_recorder *recorder);
/* The reference interpreter. With `dry` (after the segment has run): keeps nothing, skips host
 * operations, which must not communicate again, and checks every result for NaN. */
tri_status trii_reference_run(trii_step *step, const trii_segment *segment, bool dry);

/* nan_find.c: whether `bytes` of contents hold one. */
bool trii_has_nan(tri_dtype dtype, const void *data, size_t bytes);
/* NAN, with the operation that made the first one. */
tri_status trii_nan_blame(const trii_step *step, int32_t node);
/* The same if this result of the node has one. */
tri_status trii_nan_check_output(const trii_step *step, int32_t node, int output, const void *data);

#endif
