/*
 * staged.c - collectives of memory that the peers do not map, through staging buffers, a piece at a
 * time: every rank copies what others need of a piece into its stage; sums are made slice by slice,
 * each by its owner, and every rank copies out what it needs of the others. Each rank has two
 * stages, so that copying in overlaps with summing. Pieces are numbered over the group's life, in
 * the order of the operations. slot.c chooses it where CMA is not possible or does not pay.
 */
/* build: hot leaf */
#include "comm/engines/shm/paths.h"

#include <string.h>

#include "comm/engines/shm/fault.h"
#include "comm/engines/shm/parts.h"
#include "comm/group/reduce/reduce.h"

#define SUMMED_IN_SLICES (TRII_KINDS_REDUCING & ~TRII_KINDS_WHOLE_SRC)

/* Elements of a piece, in each of its parts. */
static size_t piece_elems(const shm_group *g, const trii_collective *call)
{
    size_t elem_bytes = tri_dtype_size(call->dtype);
    size_t regions = shm_has_regions(call->kind) ? (size_t)g->size : 1;

    return SHM_STAGE_BYTES / regions / SHM_LINE_BYTES * (SHM_LINE_BYTES / elem_bytes);
}

/* How many of `count` elements are in a piece of `each` from `start` on. */
static size_t elems_in_piece(size_t count, size_t start, size_t each)
{
    if (start >= count)
        return 0;
    return count - start < each ? count - start : each;
}

/* Whether every rank's counter has reached `value`. */
static bool all_reached(const shm_group *g, bool in, uint64_t value)
{
    for (int r = 0; r < g->size; r++) {
        const shm_head *head = &g->peers[r].block->head;
        const shm_counter *counter = in ? &head->staged_in : &head->staged_out;

        if (shm_load_acquire(&counter->value) < value)
            return false;
    }
    return true;
}

static unsigned char *stage_of(const shm_group *g, int rank, uint64_t piece)
{
    return g->peers[rank].block->stage[piece % SHM_STAGES];
}

/* A piece of n elements, for the ranks that sum the other slices; we read our own where it is. */
static void copy_slices_in(const shm_group *g, const trii_collective *call, unsigned char *part,
                           size_t start, size_t n)
{
    size_t size = tri_dtype_size(call->dtype), from, to;
    const char *src = (const char *)call->src + start * size;

    for (int r = 0; r < g->size; r++) {
        shm_slice(g, r, n, size, &from, &to);
        if (r != g->rank)
            memcpy(part + from * size, src + from * size, (to - from) * size);
    }
}

/* Piece i of what this rank puts in. */
static void copy_piece_in(const shm_group *g, const trii_collective *call, unsigned char *part,
                          size_t i)
{
    size_t size = tri_dtype_size(call->dtype), each = piece_elems(g, call), start = i * each;

    if (trii_kind_in(call->kind, SUMMED_IN_SLICES)) {
        copy_slices_in(g, call, part, start, elems_in_piece(call->count, start, each));
        return;
    }
    if (!shm_has_regions(call->kind)) {
        size_t n = elems_in_piece(shm_own_elems(g, call), start, each);

        if (n > 0)
            memcpy(part, (const char *)call->src + start * size, n * size);
        return;
    }
    for (int r = 0; r < g->size; r++) {
        size_t n = elems_in_piece(trii_part_count(call->src_parts, call->count, r), start, each);
        size_t at = trii_part_at(call->src_parts, call->count, r) + start;

        if (n > 0)
            memcpy(part + (size_t)r * each * size, (const char *)call->src + at * size, n * size);
    }
}

static bool put_piece_in(shm_group *g, trii_op *op)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    uint64_t piece = step->first_piece + step->in;
    shm_counter *counter = &g->block->head.staged_in;

    /* In the order of all operations, and only into a stage that nobody reads any more. */
    if (step->in == step->n_pieces || shm_load(&counter->value) != piece ||
        (piece >= SHM_STAGES && !all_reached(g, false, piece - SHM_STAGES + 1)))
        return false;
    if (shm_puts(g, call))
        copy_piece_in(g, call, stage_of(g, g->rank, piece), (size_t)step->in);
    shm_publish(g, &counter->value, piece + 1);
    step->in++;
    return true;
}

/* Sums our slice of a piece, which is n elements from `start` on: into our stage for the peers, and
 * into dst if this rank gets the result. */
static void sum_own_slice(shm_group *g, const trii_collective *call, uint64_t piece, size_t start,
                          size_t n)
{
    size_t size = tri_dtype_size(call->dtype), from, to;
    bool ours = call->kind == TRII_KIND_ALL_REDUCE || call->root == g->rank;
    bool others = call->kind == TRII_KIND_ALL_REDUCE || call->root != g->rank;
    const void *src[TRII_HOST_MAX_RANKS];
    void *dst[2];
    int n_dst = 0;

    shm_slice(g, g->rank, n, size, &from, &to);
    for (int r = 0; r < g->size; r++)
        src[r] = r == g->rank ? (const void *)((const char *)call->src + (start + from) * size)
                              : stage_of(g, r, piece) + from * size;
    if (ours)
        dst[n_dst++] = (char *)call->dst + (start + from) * size;
    if (others)
        dst[n_dst++] = stage_of(g, g->rank, piece) + from * size;
    trii_reduce_push(src, g->size, dst, n_dst, to - from, call->dtype, call->op);
}

/* True if the slice was not summed yet. */
static bool sum_own_slice_once(shm_group *g, const trii_collective *call, uint64_t piece,
                               size_t start, size_t n)
{
    shm_counter *summed = &g->block->head.staged_summed[piece % SHM_STAGES];

    if (shm_load(&summed->value) == piece + 1)
        return false;
    sum_own_slice(g, call, piece, start, n);
    shm_publish(g, &summed->value, piece + 1);
    return true;
}

static bool all_slices_summed(const shm_group *g, uint64_t piece)
{
    for (int r = 0; r < g->size; r++) {
        const shm_counter *summed = &g->peers[r].block->head.staged_summed[piece % SHM_STAGES];

        if (shm_load_acquire(&summed->value) != piece + 1)
            return false;
    }
    return true;
}

/* Piece i of an all_reduce or, at the root, of a reduce: n elements. */
static void copy_slices_out(shm_group *g, const trii_collective *call, uint64_t piece, size_t start,
                            size_t n)
{
    size_t size = tri_dtype_size(call->dtype);
    char *dst = (char *)call->dst + start * size;
    size_t from, to;

    for (int r = 0; r < g->size; r++) {
        if (r == g->rank)
            continue; /* ours is in dst already */
        shm_slice(g, r, n, size, &from, &to);
        memcpy(dst + from * size, stage_of(g, r, piece) + from * size, (to - from) * size);
    }
}

static void copy_piece_out(shm_group *g, const trii_collective *call, uint64_t piece, size_t i)
{
    size_t size = tri_dtype_size(call->dtype), each = piece_elems(g, call), start = i * each;
    size_t region = shm_has_regions(call->kind) ? (size_t)g->rank * each * size : 0;
    const void *src[TRII_HOST_MAX_RANKS];
    size_t from, to, n;

    if (shm_sums(g, call, &from, &n)) {
        n = elems_in_piece(n, start, each);
        if (n == 0)
            return;
        if (!shm_has_regions(call->kind)) {
            copy_slices_out(g, call, piece, start, n);
            return;
        }
        for (int r = 0; r < g->size; r++)
            src[r] = stage_of(g, r, piece) + region;
        trii_reduce(src, g->size, (char *)call->dst + start * size, n, call->dtype, call->op);
        return;
    }
    for (int r = 0; r < g->size; r++) {
        n = elems_in_piece(shm_reads(g, call, r, &from, &to), start, each);
        if (n > 0)
            memcpy((char *)call->dst + (to + start) * size, stage_of(g, r, piece) + region,
                   n * size);
    }
}

/* Sums what is ours of the oldest piece and, once all have, copies out what we need of it. */
static bool finish_piece(shm_group *g, trii_op *op)
{
    const trii_collective *call = &op->call;
    shm_step *step = shm_step_of(op);
    uint64_t piece = step->first_piece + step->out;
    size_t each = piece_elems(g, call), i = (size_t)step->out;
    bool did = false;

    if (step->out == step->in || !all_reached(g, true, piece + 1))
        return false;
    if (trii_kind_in(call->kind, SUMMED_IN_SLICES)) {
        did = sum_own_slice_once(g, call, piece, i * each,
                                 elems_in_piece(call->count, i * each, each));
        if (!all_slices_summed(g, piece))
            return did;
    }
    /* In the order of all operations: staged_out says that all earlier pieces are copied out too,
     * and the peers then refill those stages. A later operation may be summed first. */
    if (shm_load(&g->block->head.staged_out.value) != piece)
        return did;
    copy_piece_out(g, call, piece, i);
    shm_publish(g, &g->block->head.staged_out.value, piece + 1);
    step->out++;
    return true;
}

void shm_staged_begin(shm_group *g, trii_op *op)
{
    size_t each = piece_elems(g, &op->call);
    shm_step *step = shm_step_of(op);

    step->first_piece = g->next_piece;
    step->n_pieces = (shm_largest_part(g, &op->call) + each - 1) / each;
    g->next_piece += step->n_pieces;
}

bool shm_staged_advance(shm_group *g, trii_op *op)
{
    shm_step *step = shm_step_of(op);
    bool did = false;
    bool again;

    do {
        again = put_piece_in(g, op);
        again |= finish_piece(g, op);
        shm_wake_peers(g); /* a peer takes this piece while we make the next */
        did |= again;
    } while (again);
    if (step->out == step->n_pieces)
        step->phase = SHM_DONE;
    return did;
}
