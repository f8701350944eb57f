/*
 * dist_state.c - see dist_state.h.
 */
#include "train/dist/dist_state.h"

#include "base/alloc.h"

static void state_release(void *state)
{
    trii_dist_state *own = state;

    trii_free(own->tensors);
    trii_free(own->grads);
}

trii_dist_state *trii_dist_state_of(trii_recorder *r)
{
    return trii_floor_state_of(r, TRII_FLOOR_DIST, sizeof(trii_dist_state), state_release);
}
