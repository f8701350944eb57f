/*
 * hierarchy_stages.c - the calls that go in stages, each a call to a child.
 *
 *                 stage 0              stage 1              stage 2
 *   all_reduce    local: sum of the    cross: all_reduce    local: all slices to all
 *                 own slice            of the slice
 *   all_gather    cross: own parts     local: all parts     own memory: into rank order
 *   broadcast     cross, where the     local
 *                 root's number is
 *   barrier       local                cross
 */
#include "group/hierarchy.h"

#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"

static bool is_half(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16;
}

bool hierarchy_is_staged(const hierarchy *h, trii_kind kind)
{
    return kind == TRII_KIND_BROADCAST || kind == TRII_KIND_ALL_GATHER ||
           kind == TRII_KIND_BARRIER || (kind == TRII_KIND_ALL_REDUCE && h->tree_fits);
}

static tri_status obtain(hierarchy *h, size_t bytes)
{
    if (bytes <= h->wide_bytes)
        return TRI_OK;
    trii_free(h->wide);
    h->wide_bytes = 0;
    h->wide = trii_alloc_aligned(64, bytes, "hierarchy");
    if (h->wide == NULL)
        return TRI_ERR_NO_MEMORY;
    h->wide_bytes = bytes;
    return TRI_OK;
}

/* Guard: mutex. The child's end of it is seen by its status. */
static tri_status post_inner(hierarchy *h, int which, const trii_collective *call)
{
    hierarchy_child *c = &h->children[which];
    tri_status st;

    trii_op_init(&h->inner, call);
    h->inner.call.seq = ++c->seq;
    h->inner_on = c;
    st = c->engine->submit(c->self, &h->inner);
    if (st != TRI_OK) {
        h->inner_on = NULL;
        trii_fault_raise(&c->fault, st, "%s", tri_last_error());
    }
    return st;
}

static void widen(const void *src, float *dst, size_t count, tri_dtype dtype)
{
    const uint16_t *from = src;

    for (size_t i = 0; i < count; i++)
        dst[i] = dtype == TRI_DTYPE_F16 ? trii_f16_to_f32(from[i]) : trii_bf16_to_f32(from[i]);
}

/* The own slice is summed: the mean, and the rounding of low precision. */
static void finish_slice(const hierarchy *h, const trii_collective *call, char *slice, size_t count,
                         void *dst)
{
    bool avg = call->op == TRI_REDOP_AVG;
    float p = (float)h->size;
    float *f = (float *)(void *)slice;
    double *d = (double *)(void *)slice;

    for (size_t i = 0; i < count && avg; i++) {
        if (call->dtype == TRI_DTYPE_F64)
            d[i] /= (double)h->size;
        else
            f[i] /= p;
    }
    for (size_t i = 0; i < count && is_half(call->dtype); i++)
        ((uint16_t *)dst)[i] =
            call->dtype == TRI_DTYPE_F16 ? trii_f32_to_f16(f[i]) : trii_f32_to_bf16(f[i]);
}

static tri_status stage_all_reduce(hierarchy *h, const trii_collective *call)
{
    bool half = is_half(call->dtype);
    size_t size = half ? sizeof(float) : tri_dtype_size(call->dtype);
    size_t own = call->count * (size_t)h->local_rank / (size_t)h->local_size;
    size_t end = call->count * ((size_t)h->local_rank + 1) / (size_t)h->local_size;
    char *to = half ? h->wide : call->dst;
    trii_collective inner = *call;

    inner.dtype = half ? TRI_DTYPE_F32 : call->dtype;
    inner.op = call->op == TRI_REDOP_AVG ? TRI_REDOP_SUM : call->op;
    inner.temporary = NULL;
    switch (h->stage) {
    case 0:
        if (half && obtain(h, (call->count + 1) * sizeof(float)) != TRI_OK)
            return TRI_ERR_NO_MEMORY;
        to = half ? h->wide : call->dst;
        if (half)
            widen(call->src, (float *)(void *)to, call->count, call->dtype);
        for (int r = 0; r <= h->local_size; r++)
            h->places[r] = call->count * (size_t)r / (size_t)h->local_size;
        inner.kind = TRII_KIND_REDUCE_SCATTER_V;
        inner.src = half ? to : call->src;
        inner.dst = end > own ? to + own * size : NULL;
        inner.bytes = call->count * size;
        inner.src_parts = h->places;
        return post_inner(h, HIERARCHY_LOCAL, &inner);
    case 1:
        inner.src = inner.dst = end > own ? to + own * size : NULL;
        inner.count = end - own;
        inner.bytes = inner.count * size;
        return post_inner(h, HIERARCHY_CROSS, &inner);
    case 2:
        if (end > own)
            finish_slice(h, call, to + own * size, end - own,
                         (char *)call->dst + own * tri_dtype_size(call->dtype));
        inner.kind = TRII_KIND_ALL_GATHER_V;
        inner.dtype = call->dtype;
        inner.op = TRI_REDOP_SUM;
        inner.src =
            end > own ? (char *)call->dst + own * tri_dtype_size(call->dtype) : (char *)call->dst;
        inner.dst = call->dst;
        inner.bytes = call->bytes;
        inner.dst_parts = h->places;
        return post_inner(h, HIERARCHY_LOCAL, &inner);
    default:
        return TRI_OK;
    }
}

/* [local][host] as it came, [host][local] as it is wanted. */
static void into_rank_order(const hierarchy *h, const trii_collective *call, const char *from)
{
    for (int r = 0; r < h->size && call->bytes > 0; r++) {
        int place = r % h->local_size * h->n_hosts + r / h->local_size;

        memcpy((char *)call->dst + (size_t)r * call->bytes, from + (size_t)place * call->bytes,
               call->bytes);
    }
}

static tri_status stage_all_gather(hierarchy *h, const trii_collective *call)
{
    size_t hosts = (size_t)h->n_hosts;
    trii_collective inner = *call;

    switch (h->stage) {
    case 0:
        if (obtain(h, call->bytes * (hosts + (size_t)h->size) + 1) != TRI_OK)
            return TRI_ERR_NO_MEMORY;
        inner.dst = h->wide;
        return post_inner(h, HIERARCHY_CROSS, &inner);
    case 1:
        inner.src = h->wide;
        inner.dst = h->wide + call->bytes * hosts;
        inner.count = call->count * hosts;
        inner.bytes = call->bytes * hosts;
        return post_inner(h, HIERARCHY_LOCAL, &inner);
    case 2:
        into_rank_order(h, call, h->wide + call->bytes * hosts);
        return TRI_OK;
    default:
        return TRI_OK;
    }
}

static tri_status stage_broadcast(hierarchy *h, const trii_collective *call)
{
    trii_collective inner = *call;

    if (h->stage == 0) {
        inner.root = call->root / h->local_size;
        return call->root % h->local_size == h->local_rank ? post_inner(h, HIERARCHY_CROSS, &inner)
                                                           : TRI_OK;
    }
    inner.root = call->root % h->local_size;
    return post_inner(h, HIERARCHY_LOCAL, &inner);
}

int hierarchy_last_stage(trii_kind kind)
{
    return kind == TRII_KIND_BROADCAST || kind == TRII_KIND_BARRIER ? 1 : 2;
}

tri_status hierarchy_next_stage(hierarchy *h, const trii_collective *call)
{
    switch (call->kind) {
    case TRII_KIND_ALL_REDUCE:
        return stage_all_reduce(h, call);
    case TRII_KIND_ALL_GATHER:
        return stage_all_gather(h, call);
    case TRII_KIND_BROADCAST:
        return stage_broadcast(h, call);
    default:
        return post_inner(h, h->stage == 0 ? HIERARCHY_LOCAL : HIERARCHY_CROSS, call);
    }
}
