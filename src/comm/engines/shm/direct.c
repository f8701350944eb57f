/*
 * direct.c - collectives of which all buffers lie in arenas, which all ranks map: every rank reads
 * its peers' buffers where they are. slot.c chooses it; nobody waits here: shm.c calls again.
 *
 * all_reduce and reduce: the vector is cut into a slice per rank and slices into chunks. A chunk is
 * summed once over all buffers and stored to all of them (2 bytes touched per byte and rank).
 * Chunks are claimed, not owned: every rank begins with its own slice and then takes what is
 * left of the others', so a rank that is not running delays nobody.
 */
/* build: hot leaf */
#include "comm/engines/shm/paths.h"

#include "comm/engines/shm/arena.h"
#include "comm/engines/shm/fault.h"
#include "comm/engines/shm/parts.h"
#include "comm/engines/shm/slot.h"
#include "comm/group/reduce/reduce.h"

#define CHUNK_BYTES ((size_t)64 << 10)
#define COUNT_BITS 24

static size_t chunks_of_slice(const shm_group *g, int rank, const trii_collective *call)
{
    size_t elem_bytes = tri_dtype_size(call->dtype);
    size_t from, to;

    shm_slice(g, rank, call->count, elem_bytes, &from, &to);
    return ((to - from) * elem_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
}

/* The next chunk of the slice that nobody has, or -1. The word carries the call's number, so
 * that a word of an older call counts as zero. */
static int64_t claim_chunk(shm_u64 *claimed, uint64_t seq, size_t n_chunks)
{
    uint64_t tag = seq << COUNT_BITS;
    uint64_t now = shm_load(claimed);

    for (;;) {
        uint64_t next = now < tag ? 0 : now - tag;

        if (next >= n_chunks)
            return -1;
        if (atomic_compare_exchange_weak_explicit(claimed, &now, tag + next + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return (int64_t)next;
    }
}

static void count_chunks(shm_u64 *done, uint64_t seq, uint64_t n)
{
    uint64_t tag = seq << COUNT_BITS;
    uint64_t now = shm_load(done);

    while (!atomic_compare_exchange_weak_explicit(done, &now, (now < tag ? tag : now) + n,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
}

/* Sums a chunk over the buffers of all ranks and stores it to all of them, or to the root's. */
static void reduce_chunk(shm_group *g, trii_op *op, int slice, size_t chunk)
{
    const trii_collective *call = &op->call;
    size_t elem_bytes = tri_dtype_size(call->dtype);
    size_t step = CHUNK_BYTES / elem_bytes;
    const void *src[TRII_HOST_MAX_RANKS];
    void *dst[TRII_HOST_MAX_RANKS];
    size_t from, to;

    shm_slice(g, slice, call->count, elem_bytes, &from, &to);
    from += chunk * step;
    for (int r = 0; r < g->size; r++) {
        const shm_arrival *arrival = &shm_slot_of(g, r, call->seq)->arrival;

        src[r] = shm_arena_at(g, r, arrival->data.at.src) + from * elem_bytes;
        if (call->kind == TRII_KIND_ALL_REDUCE || call->root == r)
            dst[r] = shm_arena_at(g, r, arrival->data.at.dst) + from * elem_bytes;
    }
    if (call->kind == TRII_KIND_REDUCE)
        dst[0] = dst[call->root];
    trii_reduce_push(src, g->size, dst, call->kind == TRII_KIND_REDUCE ? 1 : g->size,
                     to - from < step ? to - from : step, call->dtype, call->op);
}

static bool advance_reduce(shm_group *g, trii_op *op)
{
    uint64_t seq = op->call.seq;
    shm_step *step = shm_step_of(op);
    bool did = false;

    for (int i = 0; step->phase == SHM_RUNNING && i < g->size; i++) {
        int slice = (g->rank + i) % g->size;
        shm_chunks *chunks = &shm_slot_of(g, slice, seq)->chunks;
        size_t n = chunks_of_slice(g, slice, &op->call);
        uint64_t n_summed = 0;
        int64_t chunk;

        for (; (chunk = claim_chunk(&chunks->claimed, seq, n)) >= 0; n_summed++)
            reduce_chunk(g, op, slice, (size_t)chunk);
        if (n_summed == 0)
            continue;
        /* A peer that failed may have had its buffers back while we read them. */
        if (shm_check_peers(g))
            return false;
        count_chunks(&chunks->done, seq, n_summed);
        did = true;
    }
    step->phase = SHM_WAITING; /* all chunks are claimed; some may still be at work */
    g->must_wake |= did;
    for (int r = 0; r < g->size; r++) {
        size_t n = chunks_of_slice(g, r, &op->call);

        if (n > 0 &&
            shm_load_acquire(&shm_slot_of(g, r, seq)->chunks.done) != (seq << COUNT_BITS) + n)
            return did;
    }
    step->phase = SHM_DONE;
    return true;
}

static const char *arena_data(const shm_group *g, int rank, const trii_op *op)
{
    return shm_arena_at(g, rank, shm_slot_of(g, rank, op->call.seq)->arrival.data.at.src);
}

static bool read_arenas(shm_group *g, const trii_op *op)
{
    shm_take_all(g, op, arena_data);
    return true;
}

bool shm_direct_advance(shm_group *g, trii_op *op)
{
    if (trii_kind_in(op->call.kind, TRII_KINDS_REDUCING & ~TRII_KINDS_WHOLE_SRC))
        return advance_reduce(g, op);
    return shm_slot_advance_reading(g, op, read_arenas);
}
