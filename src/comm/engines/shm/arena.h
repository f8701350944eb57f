/*
 * arena.h - memory that all ranks map, and its addresses.
 */
#ifndef TRII_SHM_ARENA_H
#define TRII_SHM_ARENA_H

#include "comm/engines/shm/shm_group.h"

tri_status shm_arena_init(shm_group *g);
tri_status shm_arena_alloc(void *self, size_t bytes, void **p_out);
void shm_arena_free(void *self, void *p);
void shm_arena_release(shm_group *g);
/* Arena address of `bytes` at p (extent + 1 << 48 | offset), or 0 if they do not lie in our
 * arena. */
static inline uint64_t shm_arena_find(const shm_group *g, const void *p, size_t bytes)
{
    int n = atomic_load_explicit(&g->arena->n_extents, memory_order_acquire);

    for (int e = 0; e < n; e++) {
        const shm_extent *extent = &g->arena->extents[e];
        uintptr_t base = (uintptr_t)extent->memory[g->rank].base, at = (uintptr_t)p;

        if (at >= base && at - base < extent->bytes && bytes <= extent->bytes &&
            at - base <= extent->bytes - bytes)
            return (uint64_t)(e + 1) << 48 | (uint64_t)(at - base);
    }
    return 0;
}
/* Where a rank's arena address lies in this process. */
static inline char *shm_arena_at(const shm_group *g, int rank, uint64_t at)
{
    return (char *)g->arena->extents[(at >> 48) - 1].memory[rank].base +
           (at & ((UINT64_C(1) << 48) - 1));
}

#endif
