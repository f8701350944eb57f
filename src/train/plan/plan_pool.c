/*
 * plan_pool.c - see plan_pool.h. Every pass allocates from the pool of the plan that is compiled,
 * so that nothing has to be freed one by one when a pass fails.
 */
#include "train/plan/plan_pool.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

#define CHUNK_BYTES ((size_t)32 << 10)
#define ALIGN ((size_t)64)

typedef struct trii_pool_chunk {
    struct trii_pool_chunk *next;
    size_t used, bytes; /* of the whole chunk, this head included */
} trii_pool_chunk;

void *trii_pool_alloc(trii_pool *pool, size_t n, size_t size)
{
    trii_pool_chunk *chunk = pool->chunks;
    size_t bytes;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2) {
        trii_err_set("plan: %zu x %zu bytes overflow", n, size);
        return NULL;
    }
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (chunk == NULL || chunk->bytes - chunk->used < bytes) {
        size_t total = bytes + ALIGN > CHUNK_BYTES ? bytes + ALIGN : CHUNK_BYTES;

        chunk = trii_alloc_aligned(ALIGN, total, "plan");
        if (chunk == NULL)
            return NULL;
        chunk->next = pool->chunks;
        chunk->used = ALIGN;
        chunk->bytes = total;
        pool->chunks = chunk;
    }
    p = (char *)chunk + chunk->used;
    chunk->used += bytes;
    return memset(p, 0, bytes);
}

void trii_pool_fini(trii_pool *pool)
{
    while (pool->chunks != NULL) {
        trii_pool_chunk *chunk = pool->chunks;

        pool->chunks = chunk->next;
        trii_free(chunk);
    }
}
