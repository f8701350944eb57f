/*
 * random_state.h - the random state to save and restore: the context's, and the generator of
 * initial values.
 */
#ifndef TRII_RANDOM_STATE_H
#define TRII_RANDOM_STATE_H

#include <stdint.h>

#include <trireme/tensor.h>

#include "base/mt19937.h"

typedef struct trii_random_state {
    tri_rng steps;          /* of the current context */
    trii_mt19937 generator; /* of the thread */
} trii_random_state;

void trii_random_state_get(trii_random_state *state_out);
void trii_random_state_set(const trii_random_state *state);
/* This thread's generator of initial values; starts again after each tri_manual_seed. */
trii_mt19937 *trii_generator(void);

#endif
