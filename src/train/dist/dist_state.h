/*
 * dist_state.h - what the files of this folder keep for a context.
 */
#ifndef TRII_DIST_STATE_H
#define TRII_DIST_STATE_H

#include "train/graph/step/recorder.h"

typedef struct trii_dist_state {
    /* backward.c: tensors of one unit, and their gradients; then what the outputs reach */
    tri_tensor **tensors;
    trii_vid *grads;
    int32_t cap_tensors, cap_grads;
    int64_t samples_elsewhere; /* samples.c */
} trii_dist_state;

/* dist_state.c: NULL (and the error line) without memory. */
trii_dist_state *trii_dist_state_of(trii_recorder *recorder);

#endif
