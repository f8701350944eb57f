/*
 * occupied.h - which bytes of an arena are taken at which time, so that the lowest offset that is
 * free for some time is found without looking at every buffer; for memory.c.
 *
 * A binary tree over time. A node knows, as disjoint ranges in order, which bytes are taken at any
 * time within its span, and which bytes are taken by buffers that span it whole. Buffers that are
 * placed as low as they fit lie close together; ranges that touch become one, so lists stay short.
 */
#ifndef TRII_OCCUPIED_H
#define TRII_OCCUPIED_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

#include "train/plan/plan_pool.h"

typedef struct trii_byte_range {
    size_t begin, end;
} trii_byte_range;

/* Disjoint ranges in ascending order that do not touch. */
typedef struct trii_byte_ranges {
    trii_byte_range *at;
    int32_t n, room;
} trii_byte_ranges;

typedef struct trii_occupied {
    trii_pool pool;
    int32_t n_leaves;              /* a power of two */
    trii_byte_ranges *any, *whole; /* [2 * n_leaves]; node i has children 2 i and 2 i + 1 */
    int64_t n_looks;               /* visits of ranges in all calls together: the cost, for tests */
} trii_occupied;

/* Times are 0 .. times - 1. Errors: NO_MEMORY; call trii_occupied_fini even then. */
tri_status trii_occupied_init(trii_occupied *o, int32_t times) TRI_MUST_CHECK;
void trii_occupied_fini(trii_occupied *o);
/* Where the lowest `bytes` bytes begin that are free from `first` to `last`, both included. */
size_t trii_occupied_lowest(trii_occupied *o, int32_t first, int32_t last, size_t bytes);
/* Marks them as taken. Errors: NO_MEMORY. */
tri_status trii_occupied_take(trii_occupied *o, int32_t first, int32_t last, size_t at,
                              size_t bytes) TRI_MUST_CHECK;

#endif
