/*
 * rng_state.c - the random state of a context: what its operations draw from, and which of them
 * draw elsewhere.
 */
#include "train/graph/step/recorder.h"

/* Nodes recorded before keep the old state: they may not have run yet, or may run again for
 * backward. */
static tri_status put_aside(trii_step *step)
{
    void *array = step->seeded;
    tri_status status = trii_grow(&array, &step->cap_seeded, step->n_seeded + 1,
                                  sizeof(*step->seeded), "seeds of a step");

    step->seeded = array;
    if (status == TRI_OK)
        step->seeded[step->n_seeded++] = step->random;
    return status;
}

void tri_manual_seed(uint64_t seed)
{
    trii_step *step = trii_recorder_now != NULL ? &trii_recorder_now->step : NULL;

    trii_seed_set(seed);
    if (step == NULL)
        return;
    if (step->random_count > 0 && put_aside(step) != TRI_OK)
        trii_step_fail(step, TRI_ERR_NO_MEMORY);
    step->random.seed = seed;
    step->random.step = 0;
    step->random_count = 0;
}

tri_rng tri_rng_state(void)
{
    uint64_t count;

    return trii_recorder_now != NULL ? trii_recorder_now->step.random
                                     : (tri_rng){.seed = trii_seed(&count)};
}

void tri_rng_state_set(const tri_rng *state)
{
    trii_recorder *r = trii_recorder_current();

    if (r == NULL)
        return;
    if (state != NULL)
        r->step.random = *state;
    else
        trii_step_fail(trii_step_current(),
                       TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_rng_state_set: the state is NULL"));
}

trii_random_place trii_random_take(trii_step *step, uint32_t n)
{
    const trii_random_place place = {.first = step->random_count, .seeded = step->n_seeded};

    step->random_count += n;
    return place;
}

tri_rng trii_random_from(const trii_step *step, const trii_random_place *place)
{
    return place->seeded < step->n_seeded ? step->seeded[place->seeded] : step->random;
}

void trii_random_continue(trii_step *step, const tri_rng *state, uint32_t first)
{
    step->random = *state;
    step->random_count = first;
}

/* The counter has room for 16 bits of the stream; the rest goes into the key. */
trii_random trii_step_random(const trii_step *step, const trii_node *node)
{
    const tri_rng *state =
        node->random_seeded < step->n_seeded ? &step->seeded[node->random_seeded] : &step->random;
    uint64_t high = state->stream >> 16;

    high = (high ^ high >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    high = (high ^ high >> 27) * UINT64_C(0x94d049bb133111eb);
    return (trii_random){.seed = state->seed ^ high ^ high >> 31,
                         .step = (uint64_t)state->step,
                         .stream = (uint32_t)(state->stream & 0xffff),
                         .index = node->random_index};
}

void trii_random_stream_set(uint64_t stream)
{
    trii_recorder *r = trii_recorder_current();

    if (r != NULL)
        r->step.random.stream = stream;
}
