/*
 * cma.c - gathers and exchanges of memory that the peers do not map, by cross-memory attach: each
 * rank reads what it needs straight from its peers (process_vm_readv), in one copy where staging
 * makes two, and none of them into lines that a peer's cache holds. Nobody writes to a peer's
 * memory, so a caller that gave up has its buffers to itself again. Sums: cma_sum.c.
 */
/* build: hot */
#include "comm/engines/shm/paths.h"

#include <string.h>

#include "comm/engines/shm/arena.h"
#include "comm/engines/shm/fault.h"
#include "comm/engines/shm/parts.h"
#include "comm/engines/shm/slot.h"
#include "os/cross_memory.h"

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

bool shm_cma_read(shm_group *g, int r, const trii_op *op, shm_buffer which, size_t offset, void *to,
                  size_t bytes)
{
    const shm_arrival *arrival = &shm_slot_of(g, r, op->call.seq)->arrival;
    unsigned flags = (unsigned)shm_load(&arrival->site);
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
        return false; /* the peer gave up or died, and its buffer may be gone */
    trii_op_describe(op, what, sizeof(what));
    shm_fail(g, TRI_ERR_IO,
             "rank %d cannot read a buffer of rank %d in %s: %s; TRI_SHM_CMA=0 has each rank copy "
             "its own",
             shm_name(g, g->rank), shm_name(g, r), what, trii_cross_memory_why(error));
    return false;
}

/* All that this rank needs of the others. */
static bool read_peers(shm_group *g, const trii_op *op)
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

bool shm_cma_advance(shm_group *g, trii_op *op)
{
    return shm_slot_advance_reading(g, op, read_peers);
}
