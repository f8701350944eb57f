/*
 * cma_sum.c - sums of heap memory: each rank reads its slice of every peer's input piece by piece
 * into memory of its own that stays in its cache, sums it into its dst, and in an all_reduce reads
 * the other slices out of the peers' dst once all are summed (reduce-scatter and all-gather, with
 * one copy where staging makes two).
 *
 * In place is no conflict: before all slices are summed a rank writes its own slice only, which no
 * peer reads.
 */
#include "engines/shm/shm.h"
#include "group/reduce/reduce.h"

#define LINE_BYTES ((size_t)64)

/* Of one peer's piece in the scratch; whole lines. */
static size_t piece_bytes(const shm_group *g)
{
    return SHM_SCRATCH_BYTES / (size_t)(g->size - 1) / LINE_BYTES * LINE_BYTES;
}

bool shm_cma_sum_fits(const shm_group *g)
{
    return g->size > 1 && piece_bytes(g) >= SHM_CMA_PIECE_MIN;
}

/* Sums elements [from, from + n) of all inputs into dst. False: the group has failed. */
static bool sum_piece(shm_group *g, const trii_op *op, size_t from, size_t n, char *dst)
{
    const trii_collective *call = &op->call;
    size_t size = tri_dtype_size(call->dtype);
    const void *src[SHM_MAX_RANKS];
    unsigned char *at = g->scratch;

    for (int r = 0; r < g->size; r++) {
        if (r == g->rank) {
            src[r] = (const char *)call->src + from * size;
            continue;
        }
        if (!shm_cma_read(g, r, op, SHM_SRC, from * size, at, n * size))
            return false;
        src[r] = at;
        at += piece_bytes(g);
    }
    trii_reduce(src, g->size, dst, n, call->dtype, call->op);
    return true;
}

/* Our slice of an all_reduce, our part of a reduce_scatter. */
static bool sum_own(shm_group *g, const trii_op *op)
{
    const trii_collective *call = &op->call;
    size_t size = tri_dtype_size(call->dtype), each = piece_bytes(g) / size;
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

/* Whether all ranks have summed what is theirs. */
static bool all_summed(const shm_group *g, uint64_t seq)
{
    for (int r = 0; r < g->size; r++) {
        if (atomic_load_explicit(&shm_slot_of(g, r, seq)->summed.value, memory_order_acquire) !=
            seq)
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
        return false; /* summed once is enough, and in place once too often */
    if (step->phase == SHM_RUNNING) {
        if (!sum_own(g, op) || shm_check_peers(g))
            return false; /* a failed peer's memory may have been its owner's again */
        atomic_store_explicit(&shm_slot_of(g, g->rank, seq)->summed.value, seq,
                              memory_order_release);
        g->must_wake = true;
        shm_wake_peers(g);
        step->phase = SHM_SUMMED;
        did = true;
    }
    if (step->phase == SHM_SUMMED) {
        if (!all_summed(g, seq))
            return did;
        if (op->call.kind != TRII_KIND_ALL_REDUCE) {
            step->phase = SHM_DONE; /* whoever has summed reads no more */
            return true;
        }
        if (!gather_slices(g, op) || shm_check_peers(g))
            return false;
        shm_finish_reading(g, op);
        did = true;
    }
    return shm_all_finished(g, op) || did;
}
