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

size_t shm_input_bytes(const shm_group *g, const trii_collective *call)
{
    return call->kind == TRII_KIND_REDUCE_SCATTER ? call->bytes * (size_t)g->size : call->bytes;
}

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

/* --- data inside the lane --------------------------------------------------------------- */

static const void *lane_data(const shm_group *g, int rank, const trii_op *op, shm_path path)
{
    const shm_block *block = g->peers[rank].block;
    size_t lane = op->call.seq % SHM_LANES;

    return path == SHM_PATH_INLINE ? block->lanes[lane].arrival.data.payload
                                   : block->one_shot[lane];
}

static void from_lanes(shm_group *g, trii_op *op)
{
    const trii_collective *call = &op->call;
    shm_path path = shm_step_of(op)->path;
    const void *src[SHM_MAX_RANKS];

    if (call->bytes == 0)
        return;
    if (call->kind == TRII_KIND_BROADCAST) {
        if (call->root != g->rank)
            memcpy(call->dst, lane_data(g, call->root, op, path), call->bytes);
        return;
    }
    for (int r = 0; r < g->size; r++)
        src[r] = lane_data(g, r, op, path);
    if (call->kind == TRII_KIND_ALL_GATHER) {
        for (int r = 0; r < g->size; r++)
            memcpy((char *)call->dst + call->bytes * (size_t)r, src[r], call->bytes);
        return;
    }
    if (call->kind == TRII_KIND_REDUCE_SCATTER) {
        for (int r = 0; r < g->size; r++)
            src[r] = (const char *)src[r] + call->bytes * (size_t)g->rank;
    }
    trii_reduce(src, g->size, call->dst, call->count, call->dtype, call->op);
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

/* Sums a chunk over the buffers of all ranks and stores it to all of them. */
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
        const shm_arrival *arrival = &shm_lane_of(g, r, call->seq)->arrival;

        src[r] = shm_arena_at(g, r, arrival->data.at.src) + from * elem_bytes;
        dst[r] = shm_arena_at(g, r, arrival->data.at.dst) + from * elem_bytes;
    }
    trii_reduce_push(src, g->size, dst, g->size, to - from < step ? to - from : step, call->dtype,
                     call->op);
}

static bool direct_all_reduce(shm_group *g, trii_op *op)
{
    uint64_t seq = op->call.seq;
    shm_step *step = shm_step_of(op);
    bool did = false;

    for (int i = 0; step->phase == SHM_RUNNING && i < g->size; i++) {
        int slice = (g->rank + i) % g->size;
        shm_chunks *chunks = &shm_lane_of(g, slice, seq)->chunks;
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

        if (n > 0 && atomic_load_explicit(&shm_lane_of(g, r, seq)->chunks.done,
                                          memory_order_acquire) != (seq << COUNT_BITS) + n)
            return did;
    }
    step->phase = SHM_DONE;
    return true;
}

static const char *direct_src(const shm_group *g, int rank, uint64_t seq)
{
    return shm_arena_at(g, rank, shm_lane_of(g, rank, seq)->arrival.data.at.src);
}

/* Each rank reads what it needs from its peers. */
static void direct_pull(shm_group *g, trii_op *op)
{
    const trii_collective *call = &op->call;
    const void *src[SHM_MAX_RANKS];

    if (call->kind == TRII_KIND_BROADCAST) {
        if (call->root != g->rank)
            memcpy(call->dst, direct_src(g, call->root, call->seq), call->bytes);
        return;
    }
    if (call->kind == TRII_KIND_ALL_GATHER) {
        for (int i = 0; i < g->size; i++) {
            int r = (g->rank + i) % g->size;
            char *to = (char *)call->dst + call->bytes * (size_t)r;
            const char *from = direct_src(g, r, call->seq);

            if (from != to)
                memcpy(to, from, call->bytes);
        }
        return;
    }
    for (int r = 0; r < g->size; r++)
        src[r] = direct_src(g, r, call->seq) + call->bytes * (size_t)g->rank;
    trii_reduce(src, g->size, call->dst, call->count, call->dtype, call->op);
}

static bool advance_direct(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    uint64_t seq = op->call.seq;
    bool did = false;

    if (op->call.kind == TRII_KIND_ALL_REDUCE)
        return direct_all_reduce(g, op);
    if (step->phase == SHM_RUNNING) {
        direct_pull(g, op);
        atomic_store_explicit(&shm_lane_of(g, g->rank, seq)->finished.value, seq,
                              memory_order_release);
        g->must_wake = true;
        step->phase = SHM_WAITING;
        did = true;
    }
    for (int r = 0; r < g->size; r++) {
        if (atomic_load_explicit(&shm_lane_of(g, r, seq)->finished.value, memory_order_acquire) !=
            seq)
            return did;
    }
    step->phase = SHM_DONE;
    return true;
}

/* --- choice ------------------------------------------------------------------------------- */

void shm_begin(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    unsigned needs = op->call.kind == TRII_KIND_ALL_REDUCE ? SHM_SRC_IN_ARENA | SHM_DST_IN_ARENA
                                                           : SHM_SRC_IN_ARENA;

    step->phase = SHM_RUNNING;
    if (step->path != SHM_PATH_DIRECT || (step->everywhere & (needs | SHM_COPIED)) == needs)
        return;
    if (step->everywhere & SHM_COPIED)
        step->path = SHM_PATH_ONE_SHOT;
    else
        shm_rounds_begin(g, op);
}

bool shm_advance(shm_group *g, trii_op *op)
{
    switch (shm_step_of(op)->path) {
    case SHM_PATH_INLINE:
    case SHM_PATH_ONE_SHOT:
        from_lanes(g, op);
        shm_step_of(op)->phase = SHM_DONE;
        return true;
    case SHM_PATH_DIRECT:
        return advance_direct(g, op);
    default:
        return shm_rounds_advance(g, op);
    }
}
