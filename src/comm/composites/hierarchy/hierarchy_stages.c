/*
 * hierarchy_stages.c - calls as stages, each a call to a child. A vector is divided among the
 * columns, and of a reduction what a column has is divided among its hosts: pieces.
 *
 *                   IN (host)              CROSS (column)        BACK (column)     OUT (host)
 *   all_reduce      sum of the column      sum of the column     -                 columns to all
 *     several       inputs of the column   partials of pieces    results to all    columns to all
 *   reduce          either                 pieces to the root's  -                 columns to root
 *   reduce_scatter  either                 either                -                 parts to owners
 *   all_gather      parts to the columns   pieces to all         -                 columns to all
 *   broadcast       at the root's host     column 0: from there  -                 at the others
 *
 * "Several": the canonical tree is not one over hosts. Then hosts exchange the sums of the subtrees
 * that they have alone, and the owner of a piece sums those in the tree's order. f16 and bf16 are
 * summed as f32 and rounded once.
 *
 * Other calls are calls of FLAT; barriers too, so that those who are missing in them are named.
 */
#include "comm/composites/hierarchy/hierarchy.h"

#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "comm/group/reduce/reduce.h"

#define ALIGN ((size_t)64)
#define FLAT_BYTES ((size_t)16 << 10)    /* below, one phase over everybody is quicker than two */
#define AT_ONCE_BYTES ((size_t)64 << 10) /* above, halves rather travel back as halves */

static bool scatters(const trii_collective *call)
{
    return call->kind == TRII_KIND_REDUCE_SCATTER || call->kind == TRII_KIND_REDUCE_SCATTER_V;
}

/* --- memory and places ---------------------------------------------------- */

/* A part of memory, which does not exist yet: sizes are added up first. */
static size_t take(size_t *used, size_t bytes)
{
    size_t at = *used;

    *used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static tri_status obtain(hierarchy_call *c, size_t bytes)
{
    if (bytes <= c->bytes)
        return TRI_OK;
    trii_free(c->memory);
    c->bytes = 0;
    c->memory = trii_alloc_aligned(ALIGN, bytes, "hierarchy");
    if (c->memory == NULL)
        return TRI_ERR_NO_MEMORY;
    c->bytes = bytes;
    return TRI_OK;
}

/* Where columns and pieces begin if they are made of the ranks' parts. */
static void places_of_parts(const hierarchy *h, hierarchy_call *c, const size_t *parts)
{
    const hierarchy_layout *l = &h->layout;
    size_t n = 0;

    for (int k = 0; k < l->n_columns; k++) {
        c->columns[k] = n;
        for (int host = 0; host < l->n_hosts; host++) {
            int piece = k * l->n_hosts + host;

            if (k == l->column)
                c->pieces[host] = n - c->columns[k];
            for (int i = l->piece_at[piece]; i < l->piece_at[piece + 1]; i++)
                n += trii_part_count(parts, c->op->call.count, l->by_column[i]);
        }
        if (k == l->column)
            c->pieces[l->n_hosts] = n - c->columns[k];
    }
    for (int k = l->n_columns; k <= h->size; k++)
        c->columns[k] = n; /* ranks without a column have nothing */
}

/* The same for a vector that belongs to nobody, or to the root. */
static void places_of_vector(const hierarchy *h, hierarchy_call *c)
{
    const hierarchy_layout *l = &h->layout;
    const trii_collective *call = &c->op->call;
    size_t columns = (size_t)l->n_columns, hosts = (size_t)l->n_hosts, own;

    for (size_t k = 0; k <= (size_t)h->size; k++)
        c->columns[k] = k < columns
                            ? call->count / columns * k + call->count % columns * k / columns
                            : call->count;
    own = l->column < 0 ? 0 : c->columns[l->column + 1] - c->columns[l->column];
    for (size_t host = 0; host <= hosts; host++) {
        c->pieces[host] = own / hosts * host + own % hosts * host / hosts;
        if (call->kind == TRII_KIND_REDUCE)
            c->pieces[host] = (int)host <= l->host_of[call->root] ? 0 : own;
    }
}

/* Elements of our column; of what our host gets of it. */
static size_t column_count(const hierarchy *h, const hierarchy_call *c)
{
    int k = h->layout.column;

    return k < 0 ? 0 : c->columns[k + 1] - c->columns[k];
}

static size_t piece_count(const hierarchy *h, const hierarchy_call *c)
{
    int host = h->layout.host;

    return h->layout.column < 0 ? 0 : c->pieces[host + 1] - c->pieces[host];
}

static int own_partials(const hierarchy_layout *l)
{
    return l->partial_at[l->host + 1] - l->partial_at[l->host];
}

/* base + elements, also where both are nothing. */
static char *at(void *base, size_t elems, size_t elem_bytes)
{
    return elems > 0 ? (char *)base + elems * elem_bytes : base;
}

/* A piece of the call that moves n elements of dtype. */
static trii_collective piece_of(const hierarchy_call *c, trii_kind kind, tri_dtype dtype, size_t n)
{
    trii_collective piece = c->op->call;

    piece.kind = kind;
    piece.dtype = dtype;
    piece.op = piece.op == TRI_REDOP_AVG ? TRI_REDOP_SUM : piece.op;
    piece.root = 0;
    piece.src = piece.dst = NULL;
    piece.src_parts = piece.dst_parts = NULL;
    piece.count = kind == TRII_KIND_ALL_TO_ALL_V ? 0 : n;
    piece.bytes = n * tri_dtype_size(dtype);
    return piece;
}

/* --- reductions ----------------------------------------------------------- */

static tri_status lay_out_reduction(hierarchy *h, hierarchy_call *c)
{
    const hierarchy_layout *l = &h->layout;
    const trii_collective *call = &c->op->call;
    bool copies = trii_dtype_is_half(call->dtype) || scatters(call), to_dst;
    size_t all, column, piece, used = 0, whole, apart, partials, received, result, own;
    int m = own_partials(l);

    c->dtype = trii_dtype_is_half(call->dtype) ? TRI_DTYPE_F32 : call->dtype;
    c->elem = tri_dtype_size(c->dtype);
    if (scatters(call))
        places_of_parts(h, c, call->src_parts);
    else
        places_of_vector(h, c);
    all = c->columns[l->n_columns] * c->elem;
    column = column_count(h, c) * c->elem;
    piece = piece_count(h, c) * c->elem;
    c->at_once = l->tree_fits && call->kind == TRII_KIND_ALL_REDUCE &&
                 (!trii_dtype_is_half(call->dtype) || call->bytes <= AT_ONCE_BYTES);
    to_dst = call->kind == TRII_KIND_ALL_REDUCE && m == 1;
    whole = take(&used, copies ? all : 0);
    apart = take(&used, m > 1 ? column * (size_t)l->local_size : 0);
    partials =
        take(&used, m > 1 || !(copies || to_dst || l->local_size == 1) ? column * (size_t)m : 0);
    received = take(&used, l->tree_fits ? 0 : piece * (size_t)l->n_partials);
    result = take(&used, trii_dtype_is_half(call->dtype) ? piece : 0);
    own = take(&used, piece);
    if (obtain(c, used) != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    c->whole = copies ? c->memory + whole : call->src;
    c->apart = c->memory + apart;
    c->partials = c->memory + partials;
    if (m == 1 && (copies || l->local_size == 1))
        c->partials = column > 0 ? c->whole + c->columns[l->column] * c->elem : c->whole;
    else if (to_dst && column > 0)
        c->partials = at(call->dst, c->columns[l->column], c->elem);
    c->received = c->memory + received;
    c->own = c->memory + own;
    if (call->kind == TRII_KIND_ALL_REDUCE && l->column >= 0)
        c->own =
            at(call->dst, c->columns[l->column] + c->pieces[l->host], tri_dtype_size(call->dtype));
    else if (l->local_size == l->n_columns &&
             (scatters(call) || (l->local_size == 1 && h->rank == call->root)))
        c->own = call->dst;
    c->result = trii_dtype_is_half(call->dtype) ? c->memory + result : c->own;
    return TRI_OK;
}

/* The vector as columns of numbers that can be summed. */
static void fill_whole(hierarchy *h, hierarchy_call *c)
{
    const trii_collective *call = &c->op->call;
    size_t size = tri_dtype_size(call->dtype), to = 0;
    char *whole = c->memory; /* it is the first there */
    int n = scatters(call) ? h->size : 1;

    if (c->whole == call->src)
        return;
    for (int i = 0; i < n; i++) {
        int r = h->layout.by_column[i];
        size_t count = n > 1 ? trii_part_count(call->src_parts, call->count, r)
                             : c->columns[h->layout.n_columns];
        const char *from = call->src;

        if (count == 0)
            continue;
        if (n > 1)
            from += trii_part_at(call->src_parts, call->count, r) * size;
        if (trii_dtype_is_half(call->dtype))
            trii_widen((const uint16_t *)(const void *)from,
                       (float *)(void *)(whole + to * c->elem), count, call->dtype);
        else
            memcpy(whole + to * c->elem, from, count * c->elem);
        to += count;
    }
}

static tri_status reduction_in(hierarchy *h, hierarchy_call *c)
{
    const hierarchy_layout *l = &h->layout;
    size_t all, column;
    trii_collective piece;
    tri_status status = lay_out_reduction(h, c);

    if (status != TRI_OK)
        return status;
    fill_whole(h, c);
    if (l->local_size == 1)
        return TRI_OK;
    all = c->columns[l->n_columns];
    column = column_count(h, c);
    piece = piece_of(c, TRII_KIND_REDUCE_SCATTER_V, c->dtype, all);
    piece.src = c->whole;
    piece.src_parts = c->columns;
    piece.dst = column > 0 ? (void *)(uintptr_t)c->partials : NULL;
    if (own_partials(l) > 1) {
        piece = piece_of(c, TRII_KIND_ALL_TO_ALL_V, c->dtype, 0);
        for (int i = 0; i <= l->local_size; i++)
            c->dst_at[i] = (size_t)i * column;
        piece.src = c->whole;
        piece.src_parts = c->columns;
        piece.dst = c->apart;
        piece.dst_parts = c->dst_at;
    }
    return hierarchy_post(h, c, HIERARCHY_IN, &piece);
}

/* Several subtrees are this host's: sums each, piece by piece. */
static void sum_partials(hierarchy *h, hierarchy_call *c)
{
    const hierarchy_layout *l = &h->layout;
    int m = own_partials(l), first = l->partial_at[l->host];
    size_t column = column_count(h, c);
    char *partials = (char *)(uintptr_t)c->partials; /* in our memory */

    for (int host = 0; host < l->n_hosts; host++) {
        size_t from = c->pieces[host], n = c->pieces[host + 1] - from;

        for (int i = 0; i < m; i++) {
            int ranks = l->partial_ranks[first + i];
            int local = l->local_of[l->partial_first[first + i]];

            for (int r = 0; r < ranks; r++)
                h->sources[r] = c->apart + ((size_t)(local + r) * column + from) * c->elem;
            if (n > 0)
                trii_reduce(h->sources, ranks,
                            partials + ((size_t)m * from + (size_t)i * n) * c->elem, n, c->dtype,
                            c->op->call.op == TRI_REDOP_AVG ? TRI_REDOP_SUM : c->op->call.op);
        }
    }
}

static tri_status reduction_cross(hierarchy *h, hierarchy_call *c)
{
    const hierarchy_layout *l = &h->layout;
    const trii_collective *call = &c->op->call;
    int m = own_partials(l);
    trii_collective piece;

    if (l->column < 0)
        return TRI_OK;
    if (m > 1)
        sum_partials(h, c);
    if (c->at_once) {
        piece = piece_of(c, TRII_KIND_ALL_REDUCE, c->dtype, column_count(h, c));
        piece.dst = trii_dtype_is_half(call->dtype) ? (void *)(uintptr_t)c->partials
                                                    : at(call->dst, c->columns[l->column], c->elem);
        piece.src = c->partials;
    } else if (l->tree_fits) {
        piece = piece_of(c, TRII_KIND_REDUCE_SCATTER_V, c->dtype, column_count(h, c));
        piece.src = c->partials;
        piece.src_parts = c->pieces;
        piece.dst = c->result;
    } else {
        piece = piece_of(c, TRII_KIND_ALL_TO_ALL_V, c->dtype, 0);
        for (int host = 0; host <= l->n_hosts; host++) {
            c->src_at[host] = (size_t)m * c->pieces[host];
            c->dst_at[host] = (size_t)l->partial_at[host] * piece_count(h, c);
        }
        piece.src = c->partials;
        piece.src_parts = c->src_at;
        piece.dst = c->received;
        piece.dst_parts = c->dst_at;
    }
    return hierarchy_post(h, c, HIERARCHY_CROSS, &piece);
}

static tri_status reduction_back(hierarchy *h, hierarchy_call *c)
{
    const hierarchy_layout *l = &h->layout;
    const trii_collective *call = &c->op->call;
    size_t n = piece_count(h, c);
    trii_collective piece;

    if (l->column < 0)
        return TRI_OK;
    if (c->at_once) {
        char *column = at(call->dst, c->columns[l->column], tri_dtype_size(call->dtype));

        hierarchy_finish(call, h->size,
                         trii_dtype_is_half(call->dtype) ? (char *)(uintptr_t)c->partials : column,
                         column_count(h, c), column);
        return TRI_OK;
    }
    if (!l->tree_fits && n > 0) {
        for (int i = 0; i < l->n_partials; i++)
            h->from[i] = c->received + (size_t)i * n * c->elem;
        hierarchy_sum(h, c->result, n, c->dtype,
                      call->op == TRI_REDOP_AVG ? TRI_REDOP_SUM : call->op);
    }
    hierarchy_finish(call, h->size, c->result, n, c->own);
    if (call->kind != TRII_KIND_ALL_REDUCE)
        return TRI_OK;
    piece = piece_of(c, TRII_KIND_ALL_GATHER_V, call->dtype, column_count(h, c));
    piece.src = c->own;
    piece.dst = at(call->dst, c->columns[l->column], tri_dtype_size(call->dtype));
    piece.dst_parts = c->pieces;
    return hierarchy_post(h, c, HIERARCHY_BACK, &piece);
}

/* Columns of the vector to all ranks of this host. */
static tri_status columns_to_all(hierarchy *h, hierarchy_call *c, char *vector)
{
    const hierarchy_layout *l = &h->layout;
    tri_dtype dtype = c->op->call.dtype;
    trii_collective piece = piece_of(c, TRII_KIND_ALL_GATHER_V, dtype, c->columns[l->n_columns]);

    if (l->local_size == 1)
        return TRI_OK;
    piece.src = l->column < 0 ? vector : at(vector, c->columns[l->column], tri_dtype_size(dtype));
    piece.dst = vector;
    piece.dst_parts = c->columns;
    return hierarchy_post(h, c, HIERARCHY_OUT, &piece);
}

/* Columns to the root, which is on this host. */
static tri_status columns_to_root(hierarchy *h, hierarchy_call *c)
{
    const hierarchy_layout *l = &h->layout;
    const trii_collective *call = &c->op->call;
    trii_collective piece = piece_of(c, TRII_KIND_ALL_TO_ALL_V, call->dtype, 0);

    if (l->host_of[call->root] != l->host || l->local_size == 1)
        return TRI_OK;
    for (int i = 0; i <= l->local_size; i++) {
        c->src_at[i] = i <= l->local_of[call->root] ? 0 : column_count(h, c);
        c->dst_at[i] = h->rank == call->root ? c->columns[i] : 0;
    }
    piece.src = c->own;
    piece.src_parts = c->src_at;
    piece.dst = call->dst;
    piece.dst_parts = c->dst_at;
    return hierarchy_post(h, c, HIERARCHY_OUT, &piece);
}

/* Between the ranks of this host and those that have columns; parts: the ranks'. True: from the
 * columns to the ranks. */
static tri_status parts_by_columns(hierarchy *h, hierarchy_call *c, const size_t *parts, bool out,
                                   const void *src, void *dst)
{
    const hierarchy_layout *l = &h->layout;
    const trii_collective *call = &c->op->call;
    trii_collective piece = piece_of(c, TRII_KIND_ALL_TO_ALL_V, call->dtype, 0);
    size_t own = trii_part_count(parts, call->count, h->rank);
    size_t *ranks_at = out ? c->src_at : c->dst_at, *columns_at = out ? c->dst_at : c->src_at;

    if (l->local_size == l->n_columns)
        return TRI_OK;
    ranks_at[0] = columns_at[0] = 0;
    for (int i = 0; i < l->local_size; i++) {
        int r = l->by_host[l->host_at[l->host] + i];
        bool ours = i % l->n_columns == l->column;

        ranks_at[i + 1] = ranks_at[i] + (ours ? trii_part_count(parts, call->count, r) : 0);
        columns_at[i + 1] = columns_at[i] + (i == l->local_rank % l->n_columns ? own : 0);
    }
    piece.src = src;
    piece.src_parts = c->src_at;
    piece.dst = dst;
    piece.dst_parts = c->dst_at;
    return hierarchy_post(h, c, out ? HIERARCHY_OUT : HIERARCHY_IN, &piece);
}

static tri_status columns_of_dst(hierarchy *h, hierarchy_call *c)
{
    return columns_to_all(h, c, c->op->call.dst);
}

static tri_status parts_to_owners(hierarchy *h, hierarchy_call *c)
{
    const trii_collective *call = &c->op->call;

    return parts_by_columns(h, c, call->src_parts, true, c->own, call->dst);
}

/* --- calls that only move ------------------------------------------------- */

static tri_status gathering_in(hierarchy *h, hierarchy_call *c)
{
    const trii_collective *call = &c->op->call;
    size_t size = tri_dtype_size(call->dtype), used = 0, own, result;

    places_of_parts(h, c, call->dst_parts);
    own = take(&used, piece_count(h, c) * size);
    result = take(&used, c->columns[h->layout.n_columns] * size);
    if (obtain(c, used) != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    c->own = c->memory + own;
    c->result = c->memory + result;
    return parts_by_columns(h, c, call->dst_parts, false, call->src, c->own);
}

static tri_status gathering_cross(hierarchy *h, hierarchy_call *c)
{
    const hierarchy_layout *l = &h->layout;
    const trii_collective *call = &c->op->call;
    trii_collective piece;

    if (l->column < 0)
        return TRI_OK;
    piece = piece_of(c, TRII_KIND_ALL_GATHER_V, call->dtype, column_count(h, c));
    piece.src = l->local_size == l->n_columns ? call->src : c->own;
    piece.dst = at(c->result, c->columns[l->column], tri_dtype_size(call->dtype));
    piece.dst_parts = c->pieces;
    return hierarchy_post(h, c, HIERARCHY_CROSS, &piece);
}

static tri_status gathering_out(hierarchy *h, hierarchy_call *c)
{
    return columns_to_all(h, c, c->result);
}

/* Columns as they came, ranks as they are wanted. */
static tri_status into_rank_order(hierarchy *h, hierarchy_call *c)
{
    const trii_collective *call = &c->op->call;
    size_t size = tri_dtype_size(call->dtype), from = 0;

    for (int i = 0; i < h->size; i++) {
        int r = h->layout.by_column[i];
        size_t n = trii_part_count(call->dst_parts, call->count, r);

        if (n > 0)
            memcpy((char *)call->dst + trii_part_at(call->dst_parts, call->count, r) * size,
                   c->result + from * size, n * size);
        from += n;
    }
    return TRI_OK;
}

static tri_status broadcast_on(hierarchy *h, hierarchy_call *c, int child, int root)
{
    const trii_collective *call = &c->op->call;
    trii_collective piece = piece_of(c, TRII_KIND_BROADCAST, call->dtype, call->count);

    piece.src = call->src;
    piece.dst = call->dst;
    piece.root = root;
    return hierarchy_post(h, c, child, &piece);
}

static tri_status broadcast_in(hierarchy *h, hierarchy_call *c)
{
    int root = c->op->call.root;

    return hierarchy_is_near(h, root) && h->layout.local_size > 1
               ? broadcast_on(h, c, HIERARCHY_IN, h->layout.local_of[root])
               : TRI_OK;
}

/* Whatever the root: it is compared there. */
static tri_status broadcast_cross(hierarchy *h, hierarchy_call *c)
{
    return h->layout.column == 0
               ? broadcast_on(h, c, HIERARCHY_CROSS, h->layout.host_of[c->op->call.root])
               : TRI_OK;
}

static tri_status broadcast_out(hierarchy *h, hierarchy_call *c)
{
    return !hierarchy_is_near(h, c->op->call.root) && h->layout.local_size > 1
               ? broadcast_on(h, c, HIERARCHY_OUT, 0)
               : TRI_OK;
}

/* --- which stages a call has ---------------------------------------------- */

typedef tri_status (*stage)(hierarchy *h, hierarchy_call *c);

/* As drawn above. Kinds without a row are calls of FLAT. */
static const stage stages[TRII_KIND_COUNT][HIERARCHY_STAGES] = {
    [TRII_KIND_ALL_REDUCE] = {reduction_in, reduction_cross, reduction_back, columns_of_dst},
    [TRII_KIND_REDUCE] = {reduction_in, reduction_cross, reduction_back, columns_to_root},
    [TRII_KIND_REDUCE_SCATTER] = {reduction_in, reduction_cross, reduction_back, parts_to_owners},
    [TRII_KIND_REDUCE_SCATTER_V] = {reduction_in, reduction_cross, reduction_back, parts_to_owners},
    [TRII_KIND_ALL_GATHER] = {gathering_in, gathering_cross, NULL, gathering_out, into_rank_order},
    [TRII_KIND_ALL_GATHER_V] = {gathering_in, gathering_cross, NULL, gathering_out,
                                into_rank_order},
    [TRII_KIND_BROADCAST] = {broadcast_in, broadcast_cross, NULL, broadcast_out},
};

/* Whether the ranks that make the call take it in stages: all get the same answer. If they make
 * different calls, one may wait on IN or CROSS and another on FLAT; a barrier would find that, but
 * would cost every small call a round trip. Instead FLAT knows all calls, and ranks that wait for
 * long compare them there. Where they meet at all, on any child, they compare the whole call with
 * its number: two that have changed places are found even where each has children of its own. */
static bool is_staged(const hierarchy *h, const trii_collective *call)
{
    size_t bytes = call->bytes * (call->kind == TRII_KIND_REDUCE_SCATTER ? (size_t)h->size : 1);

    if (!trii_kind_in(call->kind, TRII_KINDS_REDUCING))
        return stages[call->kind][HIERARCHY_IN] != NULL;
    return bytes > FLAT_BYTES || (call->kind == TRII_KIND_ALL_REDUCE && h->layout.tree_fits);
}

tri_status hierarchy_next_stage(hierarchy *h, hierarchy_call *c)
{
    hierarchy_child *flat = &h->children[HIERARCHY_FLAT];
    const trii_collective *call = &c->op->call;
    stage next = stages[call->kind][c->stage];

    if (is_staged(h, call)) {
        if (c->stage == HIERARCHY_CROSS)
            flat->engine->skip(flat->self, call);
        return next != NULL ? next(h, c) : TRI_OK;
    }
    if (c->stage != HIERARCHY_CROSS)
        return TRI_OK;
    flat->seq = call->seq - 1; /* calls that are skipped have numbers there too */
    return hierarchy_post(h, c, HIERARCHY_FLAT, call);
}
