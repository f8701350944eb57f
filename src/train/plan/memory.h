/*
 * memory.h - assigns offsets in an arena to buffers, given when each is alive.
 */
#ifndef TRII_MEMORY_H
#define TRII_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

/* Alive in entries [first, last] of a schedule, both included. */
typedef struct trii_interval {
    size_t bytes;
    int32_t first, last;
    size_t offset; /* result: a multiple of TRII_MEMORY_ALIGN */
} trii_interval;

#define TRII_MEMORY_ALIGN ((size_t)64)

/* Places all intervals so that no two that are alive at the same time overlap, largest first,
 * each as low as it fits; writes the arena's size. Errors: NO_MEMORY. */
tri_status trii_memory_plan(trii_interval *intervals, int32_t n, size_t *bytes_out) TRI_MUST_CHECK;

#endif
