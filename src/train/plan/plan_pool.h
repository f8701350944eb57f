/*
 * plan_pool.h - a memory pool for many small things that are freed together: a plan, or what
 * compiling one needs.
 */
#ifndef TRII_PLAN_POOL_H
#define TRII_PLAN_POOL_H

#include <stddef.h>

typedef struct trii_pool {
    struct trii_pool_chunk *chunks;
} trii_pool;

/* n * size zeroed bytes, aligned to 64; NULL (and the error line) when memory is out. Freed by
 * trii_pool_fini. A pool starts as {0}. */
void *trii_pool_alloc(trii_pool *pool, size_t n, size_t size);
void trii_pool_fini(trii_pool *pool);

#endif
