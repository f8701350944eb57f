/*
 * round.c - collectives over memory that the peers do not map, piece by piece: every rank
 * copies a piece into its round part; each slice of the piece is summed by whoever claims it;
 * every rank copies the sums out. There are two round slots, so that copying in overlaps with
 * summing. Rounds are numbered over the group's life, in the order of the operations.
 */
#include <string.h>

#include "engines/shm/shm.h"
#include "group/reduce/reduce.h"

#define LINE_BYTES ((size_t)64)

static size_t round_elems(const shm_group *g, const trii_collective *call)
{
    size_t elem_bytes = tri_dtype_size(call->dtype);
    size_t parts = call->kind == TRII_KIND_REDUCE_SCATTER ? (size_t)g->size : 1;

    return SHM_ROUND_BYTES / parts / LINE_BYTES * (LINE_BYTES / elem_bytes);
}

/* Elements [*from, *from + n) of the call are round `i` of it; returns n. */
static size_t round_range(const shm_group *g, const trii_collective *call, uint64_t i, size_t *from)
{
    size_t each = round_elems(g, call);

    *from = (size_t)i * each;
    return call->count - *from < each ? call->count - *from : each;
}

/* Whether every rank's counter has reached `value`. */
static bool all_reached(const shm_group *g, bool in, uint64_t value)
{
    for (int r = 0; r < g->size; r++) {
        const shm_head *head = &g->peers[r].block->head;
        const shm_counter *counter = in ? &head->round_in : &head->round_out;

        if (atomic_load_explicit(&counter->value, memory_order_acquire) < value)
            return false;
    }
    return true;
}

static unsigned char *part_of(const shm_group *g, int rank, uint64_t round)
{
    return g->peers[rank].block->round[round % SHM_ROUND_SLOTS];
}

static bool put_in(shm_group *g, trii_op *op)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    uint64_t round = step->first_round + step->in;
    size_t elem_bytes = tri_dtype_size(call->dtype);
    unsigned char *part = part_of(g, g->rank, round);
    shm_counter *counter = &g->block->head.round_in;
    size_t from, n;

    /* In order over all operations, and only into a slot that nobody reads any more. */
    if (step->in == step->n_rounds ||
        atomic_load_explicit(&counter->value, memory_order_relaxed) != round ||
        (round >= SHM_ROUND_SLOTS && !all_reached(g, false, round - SHM_ROUND_SLOTS + 1)))
        return false;
    n = round_range(g, call, step->in, &from);
    if (call->kind == TRII_KIND_REDUCE_SCATTER) {
        for (int r = 0; r < g->size; r++)
            memcpy(part + (size_t)r * n * elem_bytes,
                   (const char *)call->src + (size_t)r * call->bytes + from * elem_bytes,
                   n * elem_bytes);
    } else if (call->kind != TRII_KIND_BROADCAST || call->root == g->rank) {
        memcpy(part, (const char *)call->src + from * elem_bytes, n * elem_bytes);
    }
    atomic_store_explicit(&counter->value, round + 1, memory_order_release);
    g->must_wake = true;
    step->in++;
    return true;
}

/* Sums the slices of a round that nobody has claimed, each in its owner's part. */
static bool sum_slices(shm_group *g, const trii_collective *call, uint64_t round, size_t n)
{
    size_t elem_bytes = tri_dtype_size(call->dtype);
    const void *src[SHM_MAX_RANKS];
    bool did = false;

    for (int i = 0; i < g->size; i++) {
        int slice = (g->rank + i) % g->size;
        shm_round *state = &g->peers[slice].block->head.rounds[round % SHM_ROUND_SLOTS];
        uint64_t claimed = atomic_load_explicit(&state->claimed, memory_order_relaxed);
        size_t from, to;

        if (claimed > round ||
            !atomic_compare_exchange_strong_explicit(&state->claimed, &claimed, round + 1,
                                                     memory_order_relaxed, memory_order_relaxed))
            continue;
        shm_slice(g, slice, n, elem_bytes, &from, &to);
        for (int r = 0; r < g->size; r++)
            src[r] = part_of(g, r, round) + from * elem_bytes;
        trii_reduce(src, g->size, part_of(g, slice, round) + from * elem_bytes, to - from,
                    call->dtype, call->op);
        atomic_store_explicit(&state->summed, round + 1, memory_order_release);
        g->must_wake = true;
        did = true;
    }
    return did;
}

static bool all_summed(const shm_group *g, uint64_t round)
{
    for (int r = 0; r < g->size; r++) {
        const shm_round *state = &g->peers[r].block->head.rounds[round % SHM_ROUND_SLOTS];

        if (atomic_load_explicit(&state->summed, memory_order_acquire) < round + 1)
            return false;
    }
    return true;
}

static void take_out(shm_group *g, const trii_collective *call, uint64_t round, size_t start,
                     size_t n)
{
    size_t elem_bytes = tri_dtype_size(call->dtype);
    char *dst = (char *)call->dst + start * elem_bytes;
    const void *src[SHM_MAX_RANKS];
    size_t from, to;

    switch (call->kind) {
    case TRII_KIND_ALL_REDUCE:
        for (int r = 0; r < g->size; r++) {
            shm_slice(g, r, n, elem_bytes, &from, &to);
            memcpy(dst + from * elem_bytes, part_of(g, r, round) + from * elem_bytes,
                   (to - from) * elem_bytes);
        }
        break;
    case TRII_KIND_BROADCAST:
        if (call->root != g->rank)
            memcpy(dst, part_of(g, call->root, round), n * elem_bytes);
        break;
    case TRII_KIND_ALL_GATHER:
        for (int r = 0; r < g->size; r++)
            memcpy(dst + call->bytes * (size_t)r, part_of(g, r, round), n * elem_bytes);
        break;
    default: /* reduce_scatter */
        for (int r = 0; r < g->size; r++)
            src[r] = part_of(g, r, round) + (size_t)g->rank * n * elem_bytes;
        trii_reduce(src, g->size, dst, n, call->dtype, call->op);
        break;
    }
}

static bool finish_one(shm_group *g, trii_op *op)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    uint64_t round = step->first_round + step->out;
    bool did = false;
    size_t from, n;

    if (step->out == step->in || !all_reached(g, true, round + 1))
        return false;
    n = round_range(g, call, step->out, &from);
    if (call->kind == TRII_KIND_ALL_REDUCE) {
        did = sum_slices(g, call, round, n);
        if (!all_summed(g, round))
            return did;
    }
    /* In order over all operations: round_out says that every earlier round is taken out too,
     * and a peer fills their slots again. A later operation may be summed first. */
    if (atomic_load_explicit(&g->block->head.round_out.value, memory_order_relaxed) != round)
        return did;
    take_out(g, call, round, from, n);
    atomic_store_explicit(&g->block->head.round_out.value, round + 1, memory_order_release);
    g->must_wake = true;
    step->out++;
    return true;
}

void shm_rounds_begin(shm_group *g, trii_op *op)
{
    size_t each = round_elems(g, &op->call);
    shm_step *step = shm_step_of(op);

    step->path = SHM_PATH_ROUNDS;
    step->first_round = g->next_round;
    step->n_rounds = (op->call.count + each - 1) / each;
    g->next_round += step->n_rounds;
}

bool shm_rounds_advance(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    bool did = false;
    bool again;

    do {
        again = put_in(g, op);
        again |= finish_one(g, op);
        did |= again;
    } while (again);
    if (step->out == step->n_rounds)
        step->phase = SHM_DONE;
    return did;
}
