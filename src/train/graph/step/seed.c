/*
 * seed.c - the seed of tri_manual_seed, with which contexts begin that are made after it.
 */
#include <stdatomic.h>

#include "train/graph/step/recorder.h"

static atomic_uint_fast64_t seed_now, seed_count;

void trii_seed_set(uint64_t seed)
{
    atomic_store(&seed_now, seed);
    atomic_fetch_add(&seed_count, 1);
}

uint64_t trii_seed(uint64_t *count_out)
{
    *count_out = atomic_load(&seed_count);
    return atomic_load(&seed_now);
}
