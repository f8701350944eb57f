/*
 * draws.h - the random numbers of one transform of one sample.
 */
#ifndef TRII_DRAWS_H
#define TRII_DRAWS_H

#include <trireme/data.h>

struct tri_draws {
    uint64_t seed;
    uint32_t counter[4]; /* index (two words), epoch, transform << 24 | blocks so far */
    uint32_t words[4];
    int left;
};

/* Of the request's first sample, for the transform at this place, 0 to 63. */
tri_draws trii_draws_of(const tri_request *request, int place);

#endif
