/*
 * parts.h - which elements a rank reads from which peer.
 */
#ifndef TRII_SHM_PARTS_H
#define TRII_SHM_PARTS_H

#include "comm/engines/shm/shm_group.h"

/* Elements of the largest part; of an all_to_all_v only once all have arrived. */
size_t shm_largest_part(const shm_group *g, const trii_collective *call);

/* How much of one peer's input a sum by CMA has in the scratch at a time. Groups of two ranks and
 * more. */
static inline size_t shm_cma_sum_piece_bytes(const shm_group *g)
{
    return SHM_SCRATCH_BYTES / (size_t)(g->size - 1) / SHM_LINE_BYTES * SHM_LINE_BYTES;
}

/* Whether a rank's input has a region for every rank (else all of it is for all, or the root). */
static inline bool shm_has_regions(trii_kind kind)
{
    return trii_kind_in(kind, TRII_KINDS_WHOLE_SRC);
}

/* Whether this rank puts anything in. */
static inline bool shm_puts(const shm_group *g, const trii_collective *call)
{
    return !trii_kind_in(call->kind, TRII_KINDS_FROM_ROOT) || call->root == g->rank;
}

/* Elements that this rank puts in, if it does. */
static inline size_t shm_own_elems(const shm_group *g, const trii_collective *call)
{
    if (TRII_UNLIKELY(call->kind == TRII_KIND_ALL_GATHER_V))
        return trii_part_count(call->dst_parts, 0, g->rank);
    return shm_has_regions(call->kind) ? trii_part_at(call->src_parts, call->count, g->size)
                                       : call->count;
}

/* The most that any rank puts in: equal on all ranks, except in an all_to_all_v. */
static inline size_t shm_most_elems(const shm_group *g, const trii_collective *call)
{
    return TRII_UNLIKELY(call->kind == TRII_KIND_ALL_GATHER_V) ? shm_largest_part(g, call)
                                                               : shm_own_elems(g, call);
}

/* The slice of elements [0, count) that belongs to `rank`: whole lines except at the end. */
static inline void shm_slice(const shm_group *g, int rank, size_t count, size_t elem_bytes,
                             size_t *from_out, size_t *to_out)
{
    size_t line = SHM_LINE_BYTES / elem_bytes;
    size_t each = (count + (size_t)g->size - 1) / (size_t)g->size;
    size_t start;

    each = (each + line - 1) / line * line;
    start = each * (size_t)rank;
    *from_out = start < count ? start : count;
    *to_out = start + each < count ? start + each : count;
}

/* all_to_all_v: where the parts of the rank's src begin, [size + 1]; it lies in front of its
 * one-shot part. */
const uint64_t *shm_parts_of(const shm_group *g, int rank, uint64_t seq);
/* Whether this rank sums elements [from, from + n) of all inputs into its dst. */
bool shm_sums(const shm_group *g, const trii_collective *call, size_t *from_out, size_t *n_out);
/* How many elements this rank reads from `rank`: from element *from_out of its input into element
 * *to_out of our dst. */
size_t shm_reads(const shm_group *g, const trii_collective *call, int rank, size_t *from_out,
                 size_t *to_out);
/* Sums or reads all of it; input_of: where a rank's input lies. */
typedef const char *shm_input_of(const shm_group *g, int rank, const trii_op *op);
void shm_take_all(shm_group *g, const trii_op *op, shm_input_of *input_of);
/* All have arrived in an all_to_all_v: do they send what we expect? If not, the group fails. */
bool shm_parts_agree(shm_group *g, const trii_op *op);

#endif
