/*
 * random_state.c - see random_state.h.
 */
#include "train/nn/random_state.h"

#include "train/graph/step/step.h"

trii_mt19937 *trii_generator(void)
{
    static _Thread_local uint64_t seen;
    uint64_t count, seed = trii_seed(&count);

    if (count != seen) {
        trii_mt_seed(trii_mt_default(), seed);
        seen = count;
    }
    return trii_mt_default();
}

void trii_random_state_get(trii_random_state *state_out)
{
    *state_out = (trii_random_state){.steps = tri_rng_state(), .generator = *trii_generator()};
}

void trii_random_state_set(const trii_random_state *state)
{
    tri_manual_seed(state->steps.seed);
    tri_rng_state_set(&state->steps);
    *trii_generator() = state->generator;
}
