/*
 * parts.c - which elements a rank reads from which peer, for every kind of collective. The paths
 * (slot.c) differ only in where those elements lie. More of it in shm_group.h.
 */
/* build: hot leaf */
#include "comm/engines/shm/parts.h"

#include <string.h>

#include "comm/engines/shm/fault.h"
#include "comm/group/reduce/reduce.h"

static size_t largest_of(const size_t *parts, int size)
{
    size_t most = 0;

    for (int r = 0; r < size; r++) {
        size_t n = parts[r + 1] - parts[r];

        most = n > most ? n : most;
    }
    return most;
}

const uint64_t *shm_parts_of(const shm_group *g, int rank, uint64_t seq)
{
    return (const uint64_t *)(const void *)g->peers[rank].block->one_shot[seq % SHM_SLOTS];
}

size_t shm_largest_part(const shm_group *g, const trii_collective *call)
{
    size_t most = 0;

    if (call->kind == TRII_KIND_ALL_GATHER_V)
        return largest_of(call->dst_parts, g->size);
    if (call->kind == TRII_KIND_REDUCE_SCATTER_V)
        return largest_of(call->src_parts, g->size);
    if (call->kind != TRII_KIND_ALL_TO_ALL_V)
        return call->count;
    for (int s = 0; s < g->size; s++) {
        const uint64_t *parts = shm_parts_of(g, s, call->seq);

        for (int r = 0; r < g->size; r++) {
            size_t n = (size_t)(parts[r + 1] - parts[r]);

            most = n > most ? n : most;
        }
    }
    return most;
}

bool shm_sums(const shm_group *g, const trii_collective *call, size_t *from_out, size_t *n_out)
{
    *from_out = 0;
    *n_out = call->count;
    switch (call->kind) {
    case TRII_KIND_ALL_REDUCE:
        return true;
    case TRII_KIND_REDUCE:
        return call->root == g->rank;
    case TRII_KIND_REDUCE_SCATTER:
    case TRII_KIND_REDUCE_SCATTER_V:
        *from_out = trii_part_at(call->src_parts, call->count, g->rank);
        *n_out = trii_part_count(call->src_parts, call->count, g->rank);
        return true;
    default:
        return false;
    }
}

size_t shm_reads(const shm_group *g, const trii_collective *call, int rank, size_t *from_out,
                 size_t *to_out)
{
    size_t own = (size_t)g->rank, n = call->count;

    *from_out = 0;
    *to_out = trii_part_at(call->dst_parts, call->count, rank);
    switch (call->kind) {
    case TRII_KIND_BROADCAST:
        *to_out = 0;
        return call->root == rank && rank != g->rank ? n : 0;
    case TRII_KIND_SCATTER:
        *from_out = own * n;
        *to_out = 0;
        return call->root == rank ? n : 0;
    case TRII_KIND_GATHER:
        return call->root == g->rank ? n : 0;
    case TRII_KIND_ALL_GATHER:
    case TRII_KIND_ALL_GATHER_V:
        return trii_part_count(call->dst_parts, n, rank);
    case TRII_KIND_ALL_TO_ALL:
        *from_out = own * n;
        return n;
    case TRII_KIND_ALL_TO_ALL_V:
        *from_out = (size_t)shm_parts_of(g, rank, call->seq)[own];
        return trii_part_count(call->dst_parts, n, rank);
    default:
        return 0;
    }
}

/* Our own input is read where it is: a peer's cache may just hold our line in shared memory. */
static const char *input_at(const shm_group *g, int rank, const trii_op *op, shm_input_of *input_of)
{
    return rank == g->rank ? op->call.src : input_of(g, rank, op);
}

void shm_take_all(shm_group *g, const trii_op *op, shm_input_of *input_of)
{
    const trii_collective *call = &op->call;
    size_t size = tri_dtype_size(call->dtype);
    const void *src[TRII_HOST_MAX_RANKS];
    size_t from, to, n;

    if (shm_sums(g, call, &from, &n)) {
        for (int r = 0; r < g->size && n > 0; r++)
            src[r] = input_at(g, r, op, input_of) + from * size;
        if (n > 0)
            trii_reduce(src, g->size, call->dst, n, call->dtype, call->op);
        return;
    }
    for (int i = 0; i < g->size; i++) {
        int r = (g->rank + i) % g->size; /* not all from the same peer at once */

        n = shm_reads(g, call, r, &from, &to);
        if (n > 0) {
            const char *at = input_at(g, r, op, input_of) + from * size;

            if (at != (char *)call->dst + to * size)
                memcpy((char *)call->dst + to * size, at, n * size);
        }
    }
}

bool shm_parts_agree(shm_group *g, const trii_op *op)
{
    const trii_collective *call = &op->call;

    for (int r = 0; r < g->size; r++) {
        const uint64_t *theirs = shm_parts_of(g, r, call->seq);
        uint64_t sent = theirs[g->rank + 1] - theirs[g->rank];
        size_t expected = trii_part_count(call->dst_parts, 0, r);
        char what[200];

        if (sent == expected)
            continue;
        trii_collective_describe(trii_collective_whole(call), what, sizeof(what));
        shm_fail(g, TRI_ERR_MISMATCH,
                 "the ranks disagree in %s: rank %d sends %llu elements to rank %d, which expects "
                 "%zu",
                 what, shm_name(g, r), (unsigned long long)sent, shm_name(g, g->rank), expected);
        return false;
    }
    return true;
}
