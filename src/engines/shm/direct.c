/*
 * direct.c - what happens once all ranks have arrived. No rank waits here: shm_advance
 * does what can be done now and says so.
 *
 * Direct all_reduce: the vector is cut into a slice per rank and slices into chunks. A chunk is
 * summed once over all buffers and stored to all of them (2 bytes touched per byte and rank).
 * Chunks are claimed, not owned: every rank begins with its own slice and then takes what is
 * left of the others', so a rank that is not running delays nobody.
 */
#include <string.h>

#include "engines/shm/shm.h"
#include "group/reduce/reduce.h"

#define CHUNK_BYTES ((size_t)64 << 10)
#define COUNT_BITS 24
#define LINE_BYTES ((size_t)64)

void shm_slice(const shm_group *g, int rank, size_t count, size_t elem_bytes, size_t *from,
               size_t *to)
{
    size_t line = LINE_BYTES / elem_bytes;
    size_t each = (count + (size_t)g->size - 1) / (size_t)g->size;
    size_t start;

    each = (each + line - 1) / line * line;
    start = each * (size_t)rank;
    *from = start < count ? start : count;
    *to = start + each < count ? start + each : count;
}

/* --- data inside the slot --------------------------------------------------------------- */

static const char *inline_data(const shm_group *g, int rank, const trii_op *op)
{
    return (const char *)shm_slot_of(g, rank, op->call.seq)->arrival.data.payload;
}

static const char *one_shot_data(const shm_group *g, int rank, const trii_op *op)
{
    const unsigned char *data = g->peers[rank].block->one_shot[op->call.seq % SHM_SLOTS];

    if (op->call.kind == TRII_KIND_ALL_TO_ALL_V)
        data += ((size_t)g->size + 1) * sizeof(uint64_t);
    return (const char *)data;
}

/* --- direct ------------------------------------------------------------------------------ */

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
    uint64_t now = atomic_load_explicit(claimed, memory_order_relaxed);

    for (;;) {
        uint64_t next = now < tag ? 0 : now - tag;

        if (next >= n_chunks)
            return -1;
        if (atomic_compare_exchange_weak_explicit(claimed, &now, tag + next + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return (int64_t)next;
    }
}

static void count_chunk(shm_u64 *done, uint64_t seq)
{
    uint64_t tag = seq << COUNT_BITS;
    uint64_t now = atomic_load_explicit(done, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(done, &now, (now < tag ? tag : now) + 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
}

/* Sums a chunk over the buffers of all ranks and stores it to all of them, or to the root's. */
static void push_chunk(shm_group *g, trii_op *op, int slice, size_t chunk)
{
    const trii_collective *call = &op->call;
    size_t elem_bytes = tri_dtype_size(call->dtype);
    size_t step = CHUNK_BYTES / elem_bytes;
    const void *src[SHM_MAX_RANKS];
    void *dst[SHM_MAX_RANKS];
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

static bool direct_reduce(shm_group *g, trii_op *op)
{
    uint64_t seq = op->call.seq;
    shm_step *step = shm_step_of(op);
    bool did = false;

    for (int i = 0; step->phase == SHM_RUNNING && i < g->size; i++) {
        int slice = (g->rank + i) % g->size;
        shm_chunks *chunks = &shm_slot_of(g, slice, seq)->chunks;
        size_t n = chunks_of_slice(g, slice, &op->call);
        int64_t chunk;

        while ((chunk = claim_chunk(&chunks->claimed, seq, n)) >= 0) {
            push_chunk(g, op, slice, (size_t)chunk);
            count_chunk(&chunks->done, seq);
            did = true;
        }
    }
    step->phase = SHM_WAITING; /* all chunks are claimed; some may still be at work */
    g->must_wake |= did;
    for (int r = 0; r < g->size; r++) {
        size_t n = chunks_of_slice(g, r, &op->call);

        if (n > 0 && atomic_load_explicit(&shm_slot_of(g, r, seq)->chunks.done,
                                          memory_order_acquire) != (seq << COUNT_BITS) + n)
            return did;
    }
    step->phase = SHM_DONE;
    return true;
}

static const char *direct_data(const shm_group *g, int rank, const trii_op *op)
{
    return shm_arena_at(g, rank, shm_slot_of(g, rank, op->call.seq)->arrival.data.at.src);
}

void shm_finish_reading(shm_group *g, trii_op *op)
{
    uint64_t seq = op->call.seq;

    atomic_store_explicit(&shm_slot_of(g, g->rank, seq)->finished.value, seq, memory_order_release);
    g->must_wake = true;
    shm_step_of(op)->phase = SHM_WAITING;
}

bool shm_all_finished(shm_group *g, trii_op *op)
{
    uint64_t seq = op->call.seq;

    for (int r = 0; r < g->size; r++) {
        if (atomic_load_explicit(&shm_slot_of(g, r, seq)->finished.value, memory_order_acquire) !=
            seq)
            return false;
    }
    shm_step_of(op)->phase = SHM_DONE;
    return true;
}

/* Where each rank reads what it needs from its peers: out of arenas, or of heaps (cma). */
static bool advance_reading(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    bool did = false;

    if (step->phase == SHM_RUNNING && trii_fault_status(g->fault) != TRI_OK)
        return false;
    if (step->phase == SHM_RUNNING) {
        if (step->path == SHM_PATH_DIRECT)
            shm_take_all(g, op, direct_data);
        else if (!shm_cma_all(g, op))
            return false;
        if (shm_check_peers(g))
            return false; /* perhaps while we read what was its owner's again */
        shm_finish_reading(g, op);
        did = true;
    }
    return shm_all_finished(g, op) || did;
}

/* --- choice ------------------------------------------------------------------------------- */

void shm_begin(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    bool pushes = trii_kind_in(op->call.kind, 1u << TRII_KIND_ALL_REDUCE | 1u << TRII_KIND_REDUCE);
    unsigned needs = pushes ? SHM_SRC_IN_ARENA | SHM_DST_IN_ARENA : SHM_SRC_IN_ARENA;

    step->phase = SHM_RUNNING;
    if (step->path != SHM_PATH_DIRECT || (step->everywhere & (needs | SHM_COPIED)) == needs)
        return;
    if (step->everywhere & SHM_COPIED)
        step->path = SHM_PATH_ONE_SHOT;
    else if (shm_cma_pays(g, &op->call))
        step->path = SHM_PATH_CMA;
    else
        shm_staged_begin(g, op);
}

bool shm_advance(shm_group *g, trii_op *op)
{
    switch (shm_step_of(op)->path) {
    case SHM_PATH_INLINE:
    case SHM_PATH_ONE_SHOT:
        shm_take_all(g, op, shm_step_of(op)->path == SHM_PATH_INLINE ? inline_data : one_shot_data);
        shm_step_of(op)->phase = SHM_DONE;
        return true;
    case SHM_PATH_DIRECT:
        if (trii_kind_in(op->call.kind, 1u << TRII_KIND_ALL_REDUCE | 1u << TRII_KIND_REDUCE))
            return direct_reduce(g, op);
        return advance_reading(g, op);
    case SHM_PATH_CMA:
        return shm_cma_sums(op->call.kind) ? shm_cma_sum_advance(g, op) : advance_reading(g, op);
    default:
        return shm_staged_advance(g, op);
    }
}
