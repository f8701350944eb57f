/*
 * run_state.c - what this folder keeps for a recorder.
 */
#include "base/alloc.h"
#include "train/graph/run/run.h"

static void state_release(void *state)
{
    trii_free(((trii_run_state *)state)->aside);
}

trii_run_state *trii_run_state_of(trii_recorder *r)
{
    return trii_floor_state_of(r, TRII_FLOOR_RUN, sizeof(trii_run_state), state_release);
}
