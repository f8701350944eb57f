/*
 * cma_sum.c - sums of memory that the peers do not map: each rank reads its slice of every peer's
 * input piece by piece (cma.c) into memory of its own that stays in its cache, sums it into its
 * dst, and in an all_reduce reads the other slices out of the peers' dst once all are summed
 * (reduce-scatter and all-gather, with one copy where staging makes two).
 *
 * In place works: before all slices are summed a rank writes its own slice only, which no peer
 * reads.
 */
/* build: hot leaf */
#include "comm/engines/shm/paths.h"

#include "comm/engines/shm/fault.h"
#include "comm/engines/shm/parts.h"
#include "comm/engines/shm/slot.h"
#include "comm/group/reduce/reduce.h"

/* Sums elements [from, from + n) of all inputs into dst. False: the group has failed. */
static bool sum_piece(shm_group *g, const trii_op *op, size_t from, size_t n, char *dst)
{
    const trii_collective *call = &op->call;
    size_t size = tri_dtype_size(call->dtype);
    const void *src[TRII_HOST_MAX_RANKS];
    unsigned char *at = g->scratch;

    for (int r = 0; r < g->size; r++) {
        if (r == g->rank) {
            src[r] = (const char *)call->src + from * size;
            continue;
        }
        if (!shm_cma_read(g, r, op, SHM_SRC, from * size, at, n * size))
            return false;
        src[r] = at;
        at += shm_cma_sum_piece_bytes(g);
    }
    trii_reduce(src, g->size, dst, n, call->dtype, call->op);
    return true;
}

/* Our slice of an all_reduce, our part of a reduce_scatter. */
static bool sum_own_part(shm_group *g, const trii_op *op)
{
    const trii_collective *call = &op->call;
    size_t size = tri_dtype_size(call->dtype), each = shm_cma_sum_piece_bytes(g) / size;
    size_t from, to, n;
    char *dst = call->dst;

    if (call->kind == TRII_KIND_ALL_REDUCE) {
        shm_slice(g, g->rank, call->count, size, &from, &to);
        dst += from * size;
    } else {
        shm_sums(g, call, &from, &n);
        to = from + n;
    }
    for (size_t at = from; at < to; at += each) {
        n = to - at < each ? to - at : each;
        if (!sum_piece(g, op, at, n, dst + (at - from) * size))
            return false;
    }
    return true;
}

/* all_reduce: the slices that the others have summed. */
static bool gather_slices(shm_group *g, const trii_op *op)
{
    const trii_collective *call = &op->call;
    size_t size = tri_dtype_size(call->dtype), from, to;

    for (int i = 1; i < g->size; i++) {
        int r = (g->rank + i) % g->size;

        shm_slice(g, r, call->count, size, &from, &to);
        if (to > from && !shm_cma_read(g, r, op, SHM_DST, from * size,
                                       (char *)call->dst + from * size, (to - from) * size))
            return false;
    }
    return true;
}

/* Whether all ranks have summed their slice or part. */
static bool all_parts_summed(const shm_group *g, uint64_t seq)
{
    for (int r = 0; r < g->size; r++) {
        if (shm_load_acquire(&shm_slot_of(g, r, seq)->summed.value) != seq)
            return false;
    }
    return true;
}

bool shm_cma_sum_advance(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    uint64_t seq = op->call.seq;
    bool did = false;

    if (step->phase < SHM_WAITING && trii_fault_status(g->fault) != TRI_OK)
        return false; /* nothing is summed any more: in place, a second sum would be wrong */
    if (step->phase == SHM_RUNNING) {
        if (!sum_own_part(g, op) || shm_check_peers(g))
            return false; /* a failed peer may have had its buffers back while we read them */
        shm_publish(g, &shm_slot_of(g, g->rank, seq)->summed.value, seq);
        shm_wake_peers(g);
        step->phase = SHM_SUMMED;
        did = true;
    }
    if (step->phase == SHM_SUMMED) {
        if (!all_parts_summed(g, seq))
            return did;
        if (op->call.kind != TRII_KIND_ALL_REDUCE) {
            step->phase = SHM_DONE; /* a rank that has summed reads no more */
            return true;
        }
        if (!gather_slices(g, op) || shm_check_peers(g))
            return false;
        shm_slot_finish(g, op);
        did = true;
    }
    return shm_slot_all_finished(g, op) || did;
}
