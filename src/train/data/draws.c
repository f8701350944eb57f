/*
 * draws.c - see draws.h: Philox by a counter, so that nothing has to be kept between samples.
 */
#include "train/data/draws.h"

#include "base/philox.h"

tri_draws trii_draws_of(const tri_request *request, int place)
{
    uint64_t index = (uint64_t)request->indices[0];

    return (tri_draws){.seed = request->seed,
                       .counter = {(uint32_t)index, (uint32_t)(index >> 32),
                                   (uint32_t)request->epoch, (uint32_t)(place + 1) << 24}};
}

static uint32_t next_word(tri_draws *draws)
{
    if (draws->left == 0) {
        trii_philox(draws->counter, draws->seed, draws->words);
        draws->counter[3]++;
        draws->left = 4;
    }
    return draws->words[--draws->left];
}

double tri_draws_uniform(tri_draws *draws)
{
    uint64_t high, low;

    if (draws == NULL)
        return 0;
    high = next_word(draws);
    low = next_word(draws);
    return (double)((high << 32 | low) >> 11) * 0x1p-53;
}

int64_t tri_draws_below(tri_draws *draws, int64_t n)
{
    int64_t drawn = n > 0 ? (int64_t)(tri_draws_uniform(draws) * (double)n) : 0;

    /* with a large n the product may be rounded up to n */
    return drawn < n ? drawn : n > 0 ? n - 1 : 0;
}
