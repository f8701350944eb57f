/*
 * slot.c - the slots of the collectives: arriving in one, seeing who has arrived, finding that
 * ranks disagree about the call before any data are touched, and seeing who has finished reading.
 * Nothing here blocks: shm.c calls again.
 */
/* build: hot leaf */
#include "engines/shm/shm_group.h"

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

void shm_slot_arrive(shm_group *g, trii_op *op)
{
    shm_arrival *arrival = &shm_slot_of(g, g->rank, op->call.seq)->arrival;
    const trii_collective *whole = trii_collective_whole(&op->call);
    shm_step *step = shm_step_of(op);

    shm_store(&arrival->call, shm_call_word(whole));
    shm_store(&arrival->count, whole->count);
    shm_store(&arrival->site, shm_site_word(g, &op->call.site, step->flags));
    shm_publish(g, &arrival->seq, op->call.seq);
    step->phase = SHM_ARRIVED;
    step->everywhere = SHM_SRC_IN_ARENA | SHM_DST_IN_ARENA | SHM_COPIED;
}

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
