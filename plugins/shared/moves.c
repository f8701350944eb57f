/*
 * moves.c - see moves.h.
 */
#include "shared/moves.h"

#include <string.h>

/* Where the slices of a reduction begin: as equal as they can be. */
static size_t cut(size_t count, int r, int size)
{
    return count / (size_t)size * (size_t)r +
           (count % (size_t)size < (size_t)r ? count % (size_t)size : (size_t)r);
}

static bool is_small(const trii_collective *call, int size)
{
    return call->bytes <= TRII_MOVES_SMALL / (size_t)size;
}

static size_t own_part(const trii_collective *call, int rank)
{
    return trii_part_count(call->src_parts, call->count, rank);
}

/* Elements that are put beside the caller's buffers. */
static size_t scratch_elems(const trii_collective *call, int rank, int size)
{
    size_t slice = cut(call->count, rank + 1, size) - cut(call->count, rank, size);

    switch (call->kind) {
    case TRII_KIND_ALL_REDUCE:
        return (size_t)size * (is_small(call, size) ? call->count : slice);
    case TRII_KIND_REDUCE:
        if (is_small(call, size))
            return rank == call->root ? (size_t)size * call->count : 0;
        return ((size_t)size + 1) * slice;
    case TRII_KIND_REDUCE_SCATTER:
    case TRII_KIND_REDUCE_SCATTER_V:
        return (size_t)size * own_part(call, rank);
    default:
        return 0;
    }
}

#define INDEX_ARRAYS 3 /* src_at, dst_at, and those of the second move */

size_t trii_moves_memory(const trii_collective *call, size_t elem_bytes, int rank, int size)
{
    return INDEX_ARRAYS * ((size_t)size + 1) * sizeof(size_t) + 64 +
           scratch_elems(call, rank, size) * elem_bytes;
}

/* Fills at[size + 1] with equal parts. */
static const size_t *even(size_t *at, size_t count, int size)
{
    for (int r = 0; r <= size; r++)
        at[r] = count * (size_t)r;
    return at;
}

static const size_t *slices(size_t *at, size_t count, int size)
{
    for (int r = 0; r <= size; r++)
        at[r] = cut(count, r, size);
    return at;
}

/* What a plan is made with. */
typedef struct plan {
    const trii_collective *call;
    int rank, size;
    size_t elem;
    size_t *at[INDEX_ARRAYS];
    char *scratch;
    trii_moves *moves;
} plan;

static void reduce_parts(plan *p, size_t count, char *sum)
{
    p->moves->n_parts = p->size;
    p->moves->part_count = count;
    p->moves->parts = p->scratch;
    p->moves->sum = sum;
}

/* All to everybody, or to the root; each that has it adds. */
static void plan_whole(plan *p)
{
    const trii_collective *call = p->call;
    bool rooted = call->kind == TRII_KIND_REDUCE;

    p->moves->first = (trii_move){.kind = rooted ? TRII_MOVE_GATHER : TRII_MOVE_ALL_GATHER,
                                  .root = call->root,
                                  .src = call->src,
                                  .dst = p->scratch,
                                  .count = call->count,
                                  .dst_at = even(p->at[1], call->count, p->size)};
    if (!rooted || p->rank == call->root)
        reduce_parts(p, call->count, call->dst);
}

/* Everybody's slices to their owners, who add them. */
static void plan_slices(plan *p, const size_t *src_at, char *sum)
{
    size_t mine = src_at[p->rank + 1] - src_at[p->rank];

    p->moves->first = (trii_move){.kind = TRII_MOVE_ALL_TO_ALL,
                                  .src = p->call->src,
                                  .dst = p->scratch,
                                  .count = mine,
                                  .src_at = src_at,
                                  .dst_at = even(p->at[1], mine, p->size)};
    reduce_parts(p, mine, sum);
}

static void plan_reduction(plan *p)
{
    const trii_collective *call = p->call;
    bool rooted = call->kind == TRII_KIND_REDUCE, at_root = p->rank == call->root;
    const size_t *src_at;
    size_t mine;
    char *own;

    if (call->kind != TRII_KIND_ALL_REDUCE && !rooted) {
        src_at = call->src_parts != NULL ? call->src_parts : even(p->at[0], call->count, p->size);
        plan_slices(p, src_at, call->dst);
        return;
    }
    if (is_small(call, p->size)) {
        plan_whole(p);
        return;
    }
    src_at = slices(p->at[0], call->count, p->size);
    mine = src_at[p->rank + 1] - src_at[p->rank];
    own = rooted && !at_root ? p->scratch + (size_t)p->size * mine * p->elem
                             : (char *)call->dst + src_at[p->rank] * p->elem;
    plan_slices(p, src_at, own);
    p->moves->second = (trii_move){.kind = rooted ? TRII_MOVE_GATHER : TRII_MOVE_ALL_GATHER,
                                   .root = call->root,
                                   .in_place = !rooted || at_root,
                                   .src = own,
                                   .dst = call->dst,
                                   .count = mine,
                                   .dst_at = slices(p->at[2], call->count, p->size)};
}

/* Calls that only move. */
static void plan_move(plan *p)
{
    const trii_collective *call = p->call;
    trii_move *m = &p->moves->first;
    const size_t *parts;

    *m = (trii_move){.root = call->root,
                     .tag = call->tag,
                     .src = call->src,
                     .dst = call->dst,
                     .count = call->count};
    switch (call->kind) {
    case TRII_KIND_BROADCAST:
        m->kind = TRII_MOVE_BROADCAST;
        return;
    case TRII_KIND_GATHER:
    case TRII_KIND_ALL_GATHER:
    case TRII_KIND_ALL_GATHER_V:
        m->kind = call->kind == TRII_KIND_GATHER ? TRII_MOVE_GATHER : TRII_MOVE_ALL_GATHER;
        parts = call->dst_parts != NULL ? call->dst_parts : even(p->at[1], call->count, p->size);
        m->dst_at = parts;
        m->count = parts[p->rank + 1] - parts[p->rank];
        m->in_place = m->dst != NULL && m->src == m->dst + parts[p->rank] * p->elem;
        return;
    case TRII_KIND_SCATTER:
        m->kind = TRII_MOVE_SCATTER;
        m->src_at = even(p->at[0], call->count, p->size);
        m->in_place = m->src != NULL && m->dst == m->src + m->src_at[p->rank] * p->elem;
        return;
    case TRII_KIND_ALL_TO_ALL:
    case TRII_KIND_ALL_TO_ALL_V:
        m->kind = TRII_MOVE_ALL_TO_ALL;
        m->src_at =
            call->src_parts != NULL ? call->src_parts : even(p->at[0], call->count, p->size);
        m->dst_at =
            call->dst_parts != NULL ? call->dst_parts : even(p->at[1], call->count, p->size);
        return;
    case TRII_KIND_SEND:
        m->kind = TRII_MOVE_SEND;
        return;
    case TRII_KIND_RECV:
        m->kind = TRII_MOVE_RECV;
        return;
    case TRII_KIND_RECV_ANY:
        m->kind = TRII_MOVE_RECV_ANY;
        return;
    default:
        m->kind = TRII_MOVE_BARRIER;
        return;
    }
}

void trii_moves_plan(const trii_collective *call, size_t elem_bytes, int rank, int size,
                     void *memory, trii_moves *moves_out)
{
    plan p = {.call = call, .rank = rank, .size = size, .elem = elem_bytes, .moves = moves_out};
    char *next = memory;

    memset(moves_out, 0, sizeof(*moves_out));
    moves_out->elem_bytes = elem_bytes;
    for (int i = 0; i < INDEX_ARRAYS; i++) {
        p.at[i] = (size_t *)(void *)next;
        next += ((size_t)size + 1) * sizeof(size_t);
    }
    p.scratch = next + (64 - (uintptr_t)next % 64);
    if (trii_kind_in(call->kind, TRII_KINDS_REDUCING))
        plan_reduction(&p);
    else
        plan_move(&p);
}
