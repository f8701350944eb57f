/*
 * tcp_plan.c - which streams between pairs of ranks a collective has.
 *
 * Direct exchange in two phases. Phase 1 brings to each rank what belongs to its slice, and
 * the rank sums it in the canonical order (or, in a broadcast, only takes it); phase 2
 * brings the slice to everybody. The phases overlap: a chunk is sent on as soon as it is
 * final. Small reductions go in one phase: each rank that needs the sum makes all of it.
 *
 *                      phase 1 (parts)         own slice          phase 2 (results)
 *   all_reduce         slice r to rank r       sum                to all
 *     small            all to all              sum of all         -
 *   reduce             slice r to rank r       sum                to the root
 *     small            all to the root         root: sum of all   -
 *   reduce_scatter     part r to rank r        sum                -
 *   all_gather         -                       own part           to all
 *   gather             own part to the root    -                  -
 *   scatter            root: part r to rank r  -                  -
 *   all_to_all         part r to rank r        -                  -
 *   broadcast          root: slice r to r      as it came         to all but the root
 *     small, 2 ranks   -                       root: all of it    root: to all
 *   barrier            nothing, to all         -                  -
 *
 * In place is safe: slice r of dst is overwritten by what rank r made of our part r, so that part
 * has been sent. The one-phase sum waits until everything has been sent.
 */
/* build: leaf */
#include "comm/engines/tcp/tcp.h"

#include <string.h>

#include "base/alloc.h"

static void open_stream(tcp_coll *coll, tcp_stream *stream, const char *at, size_t bytes)
{
    *stream = (tcp_stream){.total = bytes, .open = true};
    memcpy(&stream->at, &at, sizeof(at)); /* outgoing streams are only read */
    coll->n_open++;
}

/* base + offset, also where both are nothing. */
static char *at_offset(void *base, size_t offset)
{
    return offset > 0 ? (char *)base + offset : base;
}

static const char *at_const(const void *base, size_t offset)
{
    return offset > 0 ? (const char *)base + offset : base;
}

static tri_status grow_scratch(tcp_coll *coll, size_t need)
{
    if (need <= coll->scratch_bytes)
        return TRI_OK;
    trii_free(coll->scratch);
    coll->scratch_bytes = 0;
    coll->scratch = trii_alloc_aligned(64, need, "tcp scratch");
    if (coll->scratch == NULL)
        return TRI_ERR_NO_MEMORY;
    coll->scratch_bytes = need;
    return TRI_OK;
}

/* Memory for what the peers send of the own slice until it is summed, and `more` after it: as
 * large as the slice if that is little, else rings. Idle slots get as much: any of them may take
 * the next call, and after a few training steps nothing is to be allocated any more. */
static tri_status obtain_scratch(tcp_group *g, tcp_coll *coll, size_t more)
{
    tri_status status = TRI_OK;
    size_t peers = (size_t)g->size - 1, each = coll->own_bytes, need;

    coll->ring = 0;
    if (peers > 0 && each > 2 * TCP_CHUNK && each > TCP_RING / peers) {
        each = TCP_RING / peers / TCP_CHUNK * TCP_CHUNK;
        each = each > 2 * TCP_CHUNK ? each : 2 * TCP_CHUNK;
        coll->ring = each;
    }
    need = peers * each + more;
    if (need <= coll->scratch_bytes)
        return TRI_OK;
    status = grow_scratch(coll, need);
    for (int i = 0; i < TCP_SLOTS && status == TRI_OK; i++) {
        if (&g->slots[i] != coll && g->slots[i].op == NULL)
            status = grow_scratch(&g->slots[i], need);
    }
    return status;
}

/* What one peer has of it. */
static size_t part_room(const tcp_coll *coll)
{
    return coll->ring > 0 ? coll->ring : coll->own_bytes;
}

static void open_part_in(const tcp_group *g, tcp_coll *coll, int peer)
{
    size_t each = part_room(coll);
    tcp_stream *stream = &coll->peers[peer].part_in;

    open_stream(coll, stream,
                at_const(coll->scratch, (size_t)(peer < g->rank ? peer : peer - 1) * each),
                coll->own_bytes);
    stream->ring = coll->ring;
}

static void open_part_out(tcp_coll *coll, int peer, const char *at, size_t bytes)
{
    open_stream(coll, &coll->peers[peer].part_out, at, bytes);
    coll->n_part_out++;
}

/* --- plans: which streams a call has -------------------------------------- */

static tri_status plan_all_reduce(tcp_group *g, tcp_coll *coll)
{
    const trii_collective *call = &coll->op->call;
    size_t n = call->count, size = coll->elem_bytes, p = (size_t)g->size;
    const char *src = call->src;
    char *dst = call->dst;
    size_t low = n * (size_t)g->rank / p, high = n * ((size_t)g->rank + 1) / p;

    coll->one_phase = n * size * (p - 1) <= TCP_SMALL;
    if (coll->one_phase) {
        low = 0;
        high = n;
    }
    coll->reduces = true;
    coll->own_src = src + low * size;
    coll->own_dst = dst + low * size;
    coll->own_bytes = (high - low) * size;
    if (obtain_scratch(g, coll, 0) != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    for (int r = 0; r < g->size; r++) {
        size_t from = coll->one_phase ? 0 : n * (size_t)r / p;
        size_t to = coll->one_phase ? n : n * ((size_t)r + 1) / p;

        if (r == g->rank)
            continue;
        /* phase 1 also where a slice is empty: it says that we are here, and with what call */
        open_part_out(coll, r, src + from * size, (to - from) * size);
        open_part_in(g, coll, r);
        if (!coll->one_phase && coll->own_bytes > 0)
            open_stream(coll, &coll->peers[r].result_out, coll->own_dst, coll->own_bytes);
        if (!coll->one_phase && to > from)
            open_stream(coll, &coll->peers[r].result_in, dst + from * size, (to - from) * size);
    }
    return TRI_OK;
}

/* A rank that is not the root keeps its sums in the scratch memory. */
static tri_status plan_reduce(tcp_group *g, tcp_coll *coll)
{
    const trii_collective *call = &coll->op->call;
    size_t n = call->count, size = coll->elem_bytes, p = (size_t)g->size;
    const char *src = call->src;
    char *dst = call->dst;
    size_t low = n * (size_t)g->rank / p, high = n * ((size_t)g->rank + 1) / p;
    bool root = call->root == g->rank;

    coll->one_phase = n * size <= TCP_SMALL;
    if (coll->one_phase && !root) {
        open_part_out(coll, call->root, src, n * size);
        return TRI_OK;
    }
    if (coll->one_phase) {
        low = 0;
        high = n;
    }
    coll->reduces = true;
    coll->own_src = at_const(src, low * size);
    coll->own_bytes = (high - low) * size;
    if (obtain_scratch(g, coll, root ? 0 : coll->own_bytes) != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    coll->own_dst =
        root ? at_offset(dst, low * size) : at_offset(coll->scratch, (p - 1) * part_room(coll));
    for (int r = 0; r < g->size; r++) {
        size_t from = n * (size_t)r / p, to = n * ((size_t)r + 1) / p;

        if (r == g->rank)
            continue;
        open_part_in(g, coll, r);
        if (coll->one_phase)
            continue;
        open_part_out(coll, r, at_const(src, from * size), (to - from) * size);
        if (r == call->root && coll->own_bytes > 0)
            open_stream(coll, &coll->peers[r].result_out, coll->own_dst, coll->own_bytes);
        if (root && to > from)
            open_stream(coll, &coll->peers[r].result_in, dst + from * size, (to - from) * size);
    }
    return TRI_OK;
}

static tri_status plan_reduce_scatter(tcp_group *g, tcp_coll *coll)
{
    const trii_collective *call = &coll->op->call;
    const char *src = call->src;
    const size_t *parts = call->src_parts;

    coll->reduces = true;
    coll->own_bytes = trii_part_count(parts, call->count, g->rank) * coll->elem_bytes;
    coll->own_src = at_const(src, trii_part_at(parts, call->count, g->rank) * coll->elem_bytes);
    coll->own_dst = call->dst;
    if (obtain_scratch(g, coll, 0) != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    for (int r = 0; r < g->size; r++) {
        if (r == g->rank)
            continue;
        open_part_out(coll, r,
                      at_const(src, trii_part_at(parts, call->count, r) * coll->elem_bytes),
                      trii_part_count(parts, call->count, r) * coll->elem_bytes);
        open_part_in(g, coll, r);
    }
    return TRI_OK;
}

/* Copies this rank's part for itself. */
static void keep_own(char *to, const char *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, bytes);
}

/* What moves from a rank's src to another's dst as it is: gather, scatter, all_to_all, barrier. */
static void plan_parts(const tcp_group *g, tcp_coll *coll)
{
    const trii_collective *call = &coll->op->call;
    bool to_root = trii_kind_in(call->kind, TRII_KINDS_TO_ROOT);
    bool from_root = trii_kind_in(call->kind, TRII_KINDS_FROM_ROOT);
    bool src_parts = trii_kind_in(call->kind, TRII_KINDS_WHOLE_SRC);
    bool dst_parts = trii_kind_in(call->kind, TRII_KINDS_WHOLE_DST);
    bool root = call->root == g->rank;
    size_t n = call->count, size = coll->elem_bytes;

    for (int i = 0; i < g->size; i++) {
        int r = (g->rank + i) % g->size;
        bool gives = to_root ? r == call->root : !from_root || root;
        bool gets = from_root ? r == call->root : !to_root || root;
        const char *from = at_const(
            call->src, gives && src_parts ? trii_part_at(call->src_parts, n, r) * size : 0);
        char *to = at_offset(call->dst,
                             gets && dst_parts ? trii_part_at(call->dst_parts, n, r) * size : 0);
        size_t in = trii_part_count(call->dst_parts, n, r) * size;

        if (r == g->rank) {
            keep_own(to, from, gives && gets ? in : 0);
            continue;
        }
        if (gives)
            open_part_out(coll, r, from, trii_part_count(call->src_parts, n, r) * size);
        if (gets)
            open_stream(coll, &coll->peers[r].part_in, to, in);
    }
}

static void plan_all_gather(const tcp_group *g, tcp_coll *coll)
{
    const trii_collective *call = &coll->op->call;
    const size_t *parts = call->dst_parts;
    size_t size = coll->elem_bytes;
    char *dst = call->dst;
    char *own = at_offset(dst, trii_part_at(parts, call->count, g->rank) * size);

    coll->own_bytes = coll->ready = trii_part_count(parts, call->count, g->rank) * size;
    keep_own(own, call->src, coll->own_bytes);
    for (int r = 0; r < g->size; r++) {
        if (r == g->rank)
            continue;
        open_stream(coll, &coll->peers[r].result_out, own, coll->own_bytes);
        open_stream(coll, &coll->peers[r].result_in,
                    at_offset(dst, trii_part_at(parts, call->count, r) * size),
                    trii_part_count(parts, call->count, r) * size);
    }
}

/* The root keeps nothing: its peers' slices cover the buffer. */
static void broadcast_slice(const tcp_group *g, const tcp_coll *coll, int rank, char **at_out,
                            size_t *bytes_out)
{
    const trii_collective *call = &coll->op->call;
    size_t i = (size_t)(rank < call->root ? rank : rank - 1), p = (size_t)g->size - 1;
    size_t low = call->count / p * i, high = i + 1 == p ? call->count : call->count / p * (i + 1);

    *at_out = (char *)call->dst + low * coll->elem_bytes;
    *bytes_out = (high - low) * coll->elem_bytes;
}

static void plan_broadcast(const tcp_group *g, tcp_coll *coll)
{
    const trii_collective *call = &coll->op->call;
    bool direct = g->size == 2 || call->bytes * (size_t)(g->size - 1) <= TCP_SMALL;
    bool root = call->root == g->rank;
    char *own = call->dst, *at;
    size_t bytes;

    if (direct && !root) {
        open_stream(coll, &coll->peers[call->root].result_in, call->dst, call->bytes);
        return;
    }
    coll->own_bytes = coll->ready = root ? call->bytes : 0;
    if (!root) {
        broadcast_slice(g, coll, g->rank, &own, &coll->own_bytes);
        coll->forwards = true;
        open_stream(coll, &coll->peers[call->root].part_in, own, coll->own_bytes);
    }
    for (int r = 0; r < g->size; r++) {
        if (r == g->rank || r == call->root)
            continue;
        if (direct) {
            open_stream(coll, &coll->peers[r].result_out, own, call->bytes);
            continue;
        }
        broadcast_slice(g, coll, r, &at, &bytes);
        if (root) {
            open_part_out(coll, r, at, bytes);
        } else {
            open_stream(coll, &coll->peers[r].result_in, at, bytes);
            open_stream(coll, &coll->peers[r].result_out, own, coll->own_bytes);
        }
    }
}

tri_status tcp_plan(tcp_group *g, tcp_coll *coll)
{
    switch (coll->op->call.kind) {
    case TRII_KIND_ALL_REDUCE:
        return plan_all_reduce(g, coll);
    case TRII_KIND_REDUCE:
        return plan_reduce(g, coll);
    case TRII_KIND_REDUCE_SCATTER:
    case TRII_KIND_REDUCE_SCATTER_V:
        return plan_reduce_scatter(g, coll);
    case TRII_KIND_ALL_GATHER:
    case TRII_KIND_ALL_GATHER_V:
        plan_all_gather(g, coll);
        break;
    case TRII_KIND_BROADCAST:
        plan_broadcast(g, coll);
        break;
    default:
        plan_parts(g, coll);
        break;
    }
    return TRI_OK;
}
