/*
 * philox.h - Philox4x32-10: random numbers by counter, so that the n-th one needs no state and
 * no order (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; SC 2011).
 */
#ifndef TRII_PHILOX_H
#define TRII_PHILOX_H

#include <stdint.h>

/* out[4] from counter[4] and a 64-bit key. About 10 ns. */
static inline void trii_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xd2511f53) * c0;
        uint64_t p1 = UINT64_C(0xcd9e8d57) * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* 0 .. n-1 from one draw (its bias is below n / 2^32). */
static inline uint32_t trii_philox_below(uint32_t draw, uint32_t n)
{
    return (uint32_t)(((uint64_t)draw * n) >> 32);
}

#endif
