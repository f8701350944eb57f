/*
 * slot.c - the slots of the collectives: a rank arrives in one with its data, or says there where
 * they are; once all have arrived, without a disagreement about the call, how the data move is
 * chosen; later all see who has finished reading. Nothing here blocks: shm.c calls again.
 *
 *   largest input of a rank   path
 *   up to 96 bytes            inline    inside the arrivals
 *   below 3 KiB               one-shot  copied into the one-shot parts before arriving
 *   more                      direct    where all buffers lie in arenas; if not:
 *     up to 16 KiB            one-shot
 *     and parts of 48 KiB     cma       out of the peers' memory, where the system allows it;
 *                             cma_sum   sums, from 512 KiB on
 *     else                    staged    through two stages per rank, a piece at a time
 *
 * A rank chooses by size when it arrives, the rest when all have arrived, by what all of them said
 * of their buffers: so every rank chooses the same path.
 */
/* build: hot leaf */
#include "comm/engines/shm/slot.h"

#include <string.h>

#include "comm/engines/shm/arena.h"
#include "comm/engines/shm/call_text.h"
#include "comm/engines/shm/fault.h"
#include "comm/engines/shm/parts.h"

#define DIRECT_MIN_BYTES ((size_t)3 << 10) /* below, a copy is cheaper than a second phase */
/* For parts (PIECE: for pieces) below these sizes, system calls cost more than a copy. */
#define CMA_MIN_BYTES ((size_t)48 << 10)
#define CMA_PIECE_MIN_BYTES ((size_t)8 << 10)
#define CMA_SUM_MIN_BYTES ((size_t)512 << 10)

#define DIRECT_SUMS (TRII_KINDS_REDUCING & ~TRII_KINDS_WHOLE_SRC)
/* A broadcast is faster staged, where the root works too. */
#define CMA_READS ((TRII_KINDS_WHOLE_SRC | TRII_KINDS_WHOLE_DST) & ~TRII_KINDS_REDUCING)
#define CMA_SUMS (TRII_KINDS_REDUCING & ~TRII_KINDS_TO_ROOT)
/* Ranks that share cores find each other's stages in their own cache: 8 ranks on 2 cores sum 1 MiB
 * in 1140 us staged and in 1620 to 1970 by CMA, and gather it in 408 and 791. */
#define STAGED_IF_CROWDED (CMA_SUMS | 1u << TRII_KIND_ALL_GATHER | 1u << TRII_KIND_ALL_GATHER_V)

/* --- arriving ------------------------------------------------------------- */

bool shm_slot_is_free(shm_group *g, uint64_t seq)
{
    uint64_t least = UINT64_MAX;

    if (TRII_LIKELY(seq <= g->completed_by_all + SHM_SLOTS))
        return true;
    for (int r = 0; r < g->size; r++) {
        uint64_t completed = shm_load_acquire(&g->peers[r].block->head.completed.value);

        least = completed < least ? completed : least;
    }
    g->completed_by_all = least;
    return seq <= least + SHM_SLOTS;
}

/* Of the arena, else of this process. */
static uint64_t address_of(uint64_t arena_at, const void *p)
{
    return arena_at != 0 ? arena_at : (uint64_t)(uintptr_t)p;
}

/* Puts our data where the peers will read them if they are few, else says where they are. */
static void put_data(shm_group *g, trii_op *op, shm_arrival *arrival)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    size_t elem_bytes = tri_dtype_size(call->dtype);
    size_t bytes = shm_own_elems(g, call) * elem_bytes;
    size_t most = shm_most_elems(g, call) * elem_bytes; /* chooses: the same on all ranks */
    bool to_dst = call->kind == TRII_KIND_ALL_REDUCE ||
                  (call->kind == TRII_KIND_REDUCE && call->root == g->rank);

    step->flags = 0;
    step->path = most <= SHM_INLINE_BYTES ? SHM_PATH_INLINE : SHM_PATH_ONE_SHOT;
    if (most >= DIRECT_MIN_BYTES) {
        step->path = SHM_PATH_DIRECT; /* perhaps: see shm_slot_choose_path */
        step->src_at = shm_arena_find(g, call->src, bytes);
        if (to_dst)
            step->dst_at =
                call->dst == call->src ? step->src_at : shm_arena_find(g, call->dst, bytes);
        arrival->data.at.src = address_of(step->src_at, call->src);
        arrival->data.at.dst = address_of(step->dst_at, call->dst);
        step->flags = (step->src_at != 0 || bytes == 0 ? SHM_SRC_IN_ARENA : 0u) |
                      (step->dst_at != 0 ? SHM_DST_IN_ARENA : 0u);
        if (most > SHM_ONE_SHOT_BYTES ||
            (step->flags & SHM_SRC_IN_ARENA && (step->flags & SHM_DST_IN_ARENA || !to_dst)))
            return;
        step->flags |= SHM_COPIED;
    }
    if (bytes > 0 && shm_puts(g, call))
        memcpy(step->path == SHM_PATH_INLINE ? arrival->data.payload
                                             : g->block->one_shot[call->seq % SHM_SLOTS],
               call->src, bytes);
}

/* The same for an all_to_all_v: how much the peers put in is not known before they arrive, so
 * a table of where all parts begin lies in front of the data. */
static void put_parts(shm_group *g, trii_op *op, shm_arrival *arrival)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    unsigned char *one_shot = g->block->one_shot[call->seq % SHM_SLOTS];
    size_t bytes = call->src_parts[g->size] * tri_dtype_size(call->dtype);
    size_t table = ((size_t)g->size + 1) * sizeof(uint64_t);

    for (int r = 0; r <= g->size; r++) {
        uint64_t at = call->src_parts[r];

        memcpy(one_shot + (size_t)r * sizeof(at), &at, sizeof(at));
    }
    step->path = SHM_PATH_DIRECT;
    step->flags = bytes == 0 ? SHM_SRC_IN_ARENA : 0u;
    if (bytes > 0)
        step->src_at = shm_arena_find(g, call->src, bytes);
    if (step->src_at != 0)
        step->flags |= SHM_SRC_IN_ARENA;
    arrival->data.at.src = address_of(step->src_at, call->src);
    if (table + bytes > SHM_ONE_SHOT_BYTES)
        return;
    step->flags |= SHM_COPIED;
    if (bytes > 0)
        memcpy(one_shot + table, call->src, bytes);
}

void shm_slot_arrive(shm_group *g, trii_op *op)
{
    shm_arrival *arrival = &shm_slot_of(g, g->rank, op->call.seq)->arrival;
    const trii_collective *whole = trii_collective_whole(&op->call);
    shm_step *step = shm_step_of(op);

    if (op->call.kind == TRII_KIND_ALL_TO_ALL_V)
        put_parts(g, op, arrival);
    else
        put_data(g, op, arrival);
    shm_store(&arrival->call, shm_call_word(whole));
    shm_store(&arrival->count, whole->count);
    shm_store(&arrival->site, shm_site_word(g, &op->call.site, step->flags));
    shm_publish(g, &arrival->seq, op->call.seq);
    step->phase = SHM_ARRIVED;
    step->everywhere = SHM_SRC_IN_ARENA | SHM_DST_IN_ARENA | SHM_COPIED;
}

/* --- all have arrived ----------------------------------------------------- */

/* Compares a peer's call with ours. */
static bool calls_match(shm_group *g, trii_op *op, int rank, const shm_arrival *arrival)
{
    const trii_collective *ours = trii_collective_whole(&op->call);
    trii_collective theirs;
    char file[SHM_FILE_TEXT], text[TRII_ERR_BYTES];

    if (TRII_LIKELY(shm_load(&arrival->call) == shm_call_word(ours) &&
                    shm_load(&arrival->count) == ours->count))
        return true;
    theirs = shm_call_of(g->peers[rank].block, arrival, file);
    theirs.seq = ours->seq + (uint64_t)(int8_t)((shm_load(&arrival->call) >> 24) - ours->seq);
    trii_collective_disagree(shm_name(g, g->rank), ours, shm_name(g, rank), &theirs, text,
                             sizeof(text));
    shm_fail(g, TRI_ERR_MISMATCH, "%s", text);
    return false;
}

/* Flags of an arrival; flags of buffers that the call does not use are set. */
static unsigned arrival_flags(const trii_collective *call, int rank, const shm_arrival *arrival)
{
    unsigned flags = (unsigned)shm_load(&arrival->site) & 0xffu;

    if (rank == call->root)
        return flags;
    if (trii_kind_in(call->kind, TRII_KINDS_FROM_ROOT))
        return SHM_SRC_IN_ARENA | SHM_DST_IN_ARENA | SHM_COPIED;
    return call->kind == TRII_KIND_REDUCE ? flags | SHM_DST_IN_ARENA : flags;
}

bool shm_slot_all_arrived(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    uint64_t seq = op->call.seq;

    for (; step->seen < g->size; step->seen++) {
        const shm_arrival *arrival = &shm_slot_of(g, step->seen, seq)->arrival;

        if (shm_load_acquire(&arrival->seq) != seq)
            return false;
        if (!calls_match(g, op, step->seen, arrival))
            return false;
        step->everywhere &= arrival_flags(&op->call, step->seen, arrival);
    }
    return op->call.kind != TRII_KIND_ALL_TO_ALL_V || shm_parts_agree(g, op);
}

/* Whether CMA is possible and faster than staging: the same answer on all ranks. */
static bool cma_pays(const shm_group *g, const trii_collective *call)
{
    size_t bytes = shm_largest_part(g, call) * tri_dtype_size(call->dtype);

    if (g->cma == 0 || (g->cma == 1 && g->crowded && trii_kind_in(call->kind, STAGED_IF_CROWDED)))
        return false;
    if (trii_kind_in(call->kind, CMA_SUMS))
        return bytes >= CMA_SUM_MIN_BYTES && g->size > 1 &&
               shm_cma_sum_piece_bytes(g) >= CMA_PIECE_MIN_BYTES;
    return trii_kind_in(call->kind, CMA_READS) && bytes >= CMA_MIN_BYTES;
}

void shm_slot_choose_path(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    unsigned needs = trii_kind_in(op->call.kind, DIRECT_SUMS) ? SHM_SRC_IN_ARENA | SHM_DST_IN_ARENA
                                                              : SHM_SRC_IN_ARENA;

    step->phase = SHM_RUNNING;
    if (step->path != SHM_PATH_DIRECT || (step->everywhere & (needs | SHM_COPIED)) == needs)
        return;
    if (step->everywhere & SHM_COPIED)
        step->path = SHM_PATH_ONE_SHOT;
    else if (cma_pays(g, &op->call))
        step->path = trii_kind_in(op->call.kind, CMA_SUMS) ? SHM_PATH_CMA_SUM : SHM_PATH_CMA;
    else
        step->path = SHM_PATH_STAGED;
}

/* --- reading and finishing ------------------------------------------------ */

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

void shm_slot_take(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);

    shm_take_all(g, op, step->path == SHM_PATH_INLINE ? inline_data : one_shot_data);
    step->phase = SHM_DONE;
}

void shm_slot_finish(shm_group *g, trii_op *op)
{
    uint64_t seq = op->call.seq;

    shm_publish(g, &shm_slot_of(g, g->rank, seq)->finished.value, seq);
    shm_step_of(op)->phase = SHM_WAITING;
}

bool shm_slot_all_finished(shm_group *g, trii_op *op)
{
    uint64_t seq = op->call.seq;

    for (int r = 0; r < g->size; r++) {
        if (shm_load_acquire(&shm_slot_of(g, r, seq)->finished.value) != seq)
            return false;
    }
    shm_step_of(op)->phase = SHM_DONE;
    return true;
}

bool shm_slot_advance_reading(shm_group *g, trii_op *op, shm_reader *read)
{
    bool did = false;

    if (shm_step_of(op)->phase == SHM_RUNNING) {
        /* After the read too: a peer that failed meanwhile may have freed its buffers. */
        if (trii_fault_status(g->fault) != TRI_OK || !read(g, op) || shm_check_peers(g))
            return false;
        shm_slot_finish(g, op);
        did = true;
    }
    return shm_slot_all_finished(g, op) || did;
}
