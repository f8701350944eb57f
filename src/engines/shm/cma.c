/*
 * cma.c - gathers and exchanges of heap memory, each rank reading what it needs straight from its
 * peers (process_vm_readv): one copy where staging makes two, and none into lines that a peer's
 * cache holds. A broadcast is faster staged, where the root works too. Nobody writes to a peer's
 * heap: who gave up a call has its buffers back.
 */
#include <string.h>

#include "engines/shm/shm.h"
#include "os/cross_memory.h"

#define MIN_BYTES ((size_t)48 << 10) /* of a part; below, system calls cost more than a copy */
#define MIN_SUM_BYTES ((size_t)512 << 10)
#define READS                                                                                      \
    (1u << TRII_KIND_ALL_GATHER | 1u << TRII_KIND_ALL_GATHER_V | 1u << TRII_KIND_GATHER |          \
     1u << TRII_KIND_SCATTER | 1u << TRII_KIND_ALL_TO_ALL | 1u << TRII_KIND_ALL_TO_ALL_V)
#define SUMS                                                                                       \
    (1u << TRII_KIND_ALL_REDUCE | 1u << TRII_KIND_REDUCE_SCATTER | 1u << TRII_KIND_REDUCE_SCATTER_V)
/* Ranks that share cores find each other's data in their own cache when they are staged: 8 ranks
 * on 2 cores sum 1 MiB in 1140 us, out of heaps in 1620 to 1970, and gather it in 408 and 791. */
#define STAGED_IF_CROWDED (SUMS | 1u << TRII_KIND_ALL_GATHER | 1u << TRII_KIND_ALL_GATHER_V)

bool shm_cma_sums(trii_kind kind)
{
    return trii_kind_in(kind, SUMS);
}

bool shm_cma_works(shm_group *g)
{
    for (int r = 0; r < g->size; r++) {
        const shm_head *head = &g->peers[r].block->head;
        uint64_t word = 0;
        int error;

        if (!trii_cross_memory_read(head->pid, head->cma_probe_at, &word, sizeof(word), &error) ||
            word != head->nonce)
            return false;
    }
    return true;
}

bool shm_cma_pays(const shm_group *g, const trii_collective *call)
{
    size_t bytes = shm_limit(g, call) * tri_dtype_size(call->dtype);

    if (g->cma == 0 || (g->cma == 1 && g->crowded && trii_kind_in(call->kind, STAGED_IF_CROWDED)))
        return false;
    if (trii_kind_in(call->kind, SUMS))
        return bytes >= MIN_SUM_BYTES && shm_cma_sum_fits(g);
    return trii_kind_in(call->kind, READS) && bytes >= MIN_BYTES;
}

bool shm_cma_read(shm_group *g, int r, const trii_op *op, shm_buffer which, size_t offset, void *to,
                  size_t bytes)
{
    const shm_arrival *arrival = &shm_slot_of(g, r, op->call.seq)->arrival;
    unsigned flags = (unsigned)atomic_load_explicit(&arrival->place, memory_order_relaxed);
    uint64_t at = which == SHM_SRC ? arrival->data.at.src : arrival->data.at.dst;
    char what[200];
    int error;

    if (flags & (which == SHM_SRC ? SHM_SRC_IN_ARENA : SHM_DST_IN_ARENA)) {
        memcpy(to, shm_arena_at(g, r, at) + offset, bytes);
        return true;
    }
    if (trii_cross_memory_read(g->peers[r].block->head.pid, at + offset, to, bytes, &error))
        return true;
    if (shm_check_peers(g) ||
        (trii_cross_memory_is_gone(error) && shm_peer_ended(g, r, "has ended")))
        return false; /* which has its buffers back, or none any more */
    trii_collective_describe(trii_collective_whole(&op->call), what, sizeof(what));
    shm_fail(g, TRI_ERR_IO,
             "rank %d cannot read a buffer of rank %d in %s: %s; TRI_SHM_CMA=0 has each rank copy "
             "its own",
             shm_name(g, g->rank), shm_name(g, r), what, trii_cross_memory_why(error));
    return false;
}

bool shm_cma_all(shm_group *g, const trii_op *op)
{
    const trii_collective *call = &op->call;
    size_t size = tri_dtype_size(call->dtype);

    for (int i = 0; i < g->size; i++) {
        int r = (g->rank + i) % g->size;
        size_t from, to, n = shm_reads(g, call, r, &from, &to);
        char *dst = (char *)call->dst + to * size;

        if (n == 0)
            continue;
        if (r == g->rank) {
            const char *src = (const char *)call->src + from * size;

            if (src != dst)
                memcpy(dst, src, n * size);
        } else if (!shm_cma_read(g, r, op, SHM_SRC, from * size, dst, n * size)) {
            return false;
        }
    }
    return true;
}
