/*
 * random_state.c - see random_state.h.
 */
#include "nn/random_state.h"

#include "graph/step.h"

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
    uint64_t count;

    *state_out = (trii_random_state){
        .seed = trii_seed(&count), .step = tri_step_number(), .generator = *trii_generator()};
}

void trii_random_state_set(const trii_random_state *state)
{
    tri_manual_seed(state->seed);
    tri_step_number_set(state->step);
    *trii_generator() = state->generator;
}
