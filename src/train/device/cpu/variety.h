/*
 * variety.h - whether a kind of operation comes in so many sizes that it is not worth compiling
 * code for each of them.
 */
#ifndef TRII_VARIETY_H
#define TRII_VARIETY_H

#include <stdbool.h>
#include <stdint.h>

/* A hash of what the sizes have in common: starts as 0. */
uint64_t trii_kind_add(uint64_t kind, int64_t property);
/* Of the sizes that the process asks about, the first `few` are worth it, for good. Kinds with
 * equal hashes share that number. */
bool trii_kind_varies(uint64_t kind, int64_t size, int few);

#endif
