/*
 * reduce.h - the one place where numbers of several ranks are added, shared by all engines.
 *
 * Canonical order: the balanced binary tree over ranks 0..n-1 in rank order, split at the
 * largest power of two below n (n = 5: ((0 1) (2 3)) 4). f16 and bf16 are widened to f32,
 * combined there and rounded once. avg is the sum divided by n, before the rounding. min and
 * max: a NaN wins, equal values keep the lower rank's. Integers wrap around. A sum of bool is
 * or. Every kernel gives these bits (tests/testing/reduce_scalar.c); the payload of a NaN is free.
 * Denormal numbers count and all is rounded to the nearest, whatever the calling thread does.
 */
#ifndef TRII_REDUCE_H
#define TRII_REDUCE_H

#include <trireme/types.h>

#include <trireme/status.h>

/* dst[i] = op over r < n_src of src[r][i]; dst may be any of the sources (exactly). */
void trii_reduce(const void *const *src, int n_src, void *dst, size_t count, tri_dtype dtype,
                 tri_redop op);
/* The same into n_dst places; any of them may be any of the sources (exactly). */
void trii_reduce_push(const void *const *src, int n_src, void *const *dst, int n_dst, size_t count,
                      tri_dtype dtype, tri_redop op);

/* f16 or bf16 as f32, and f32 rounded to the nearest of them, ties to even; places apart. */
void trii_widen(const uint16_t *src, float *dst, size_t n, tri_dtype dtype);
void trii_narrow(const float *src, uint16_t *dst, size_t n, tri_dtype dtype);

/* Largest power of two below n (n >= 2): where the tree over n ranks splits. */
static inline int trii_reduce_split(int n)
{
    int half = 1;

    while (half * 2 < n)
        half *= 2;
    return half;
}

#endif
