/*
 * collective_v.c - the public calls whose parts differ in size from rank to rank. Counts become
 * the places where the parts begin, which is what engines get; they are copied, so the caller's
 * arrays are free when the call returns.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "group/group_internal.h"

#define FEW 64 /* ranks for which the places fit on the stack */

typedef struct places {
    size_t few[2][FEW + 1];
    size_t *many;
    size_t *src, *dst; /* [size + 1] */
} places;

static tri_status places_init(places *p, int size)
{
    p->many = NULL;
    p->src = p->few[0];
    p->dst = p->few[1];
    if (size <= FEW)
        return TRI_OK;
    p->many = trii_alloc(2 * ((size_t)size + 1), sizeof(size_t), "parts");
    if (p->many == NULL)
        return TRI_ERR_NO_MEMORY;
    p->src = p->many;
    p->dst = p->many + size + 1;
    return TRI_OK;
}

/* Elements of the call for one of the caller's. */
static size_t width_of(tri_dtype dtype)
{
    return trii_dtype_real(dtype) != dtype ? 2 : 1;
}

/* Where each part begins; *bytes_out: of all. */
static tri_status place(const trii_collective *call, const char *what, const size_t *counts,
                        size_t width, int size, size_t *at, size_t *bytes_out)
{
    size_t elem_bytes = tri_dtype_size(call->dtype);

    if (counts == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s is NULL", trii_kind_name(call->kind), what);
    at[0] = 0;
    for (int r = 0; r < size; r++) {
        if (__builtin_mul_overflow(counts[r], width, &at[r + 1]) ||
            __builtin_add_overflow(at[r], at[r + 1], &at[r + 1]))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s add up to more than memory can hold",
                             trii_kind_name(call->kind), what);
    }
    if (__builtin_mul_overflow(at[size], elem_bytes, bytes_out) || *bytes_out > SIZE_MAX / 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s add up to more than memory can hold",
                         trii_kind_name(call->kind), what);
    return TRI_OK;
}

/* All ranks must have the same parts: their hash is compared with the call. */
static int parts_hash(const size_t *at, int size)
{
    uint64_t h = 0;

    for (int r = 1; r <= size; r++) {
        h = (h ^ at[r]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return (int)(uint32_t)(h >> 33);
}

static tri_status check_dtype(const trii_collective *call)
{
    if (tri_dtype_size(call->dtype) == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: dtype is not a known type",
                         trii_kind_name(call->kind));
    return TRI_OK;
}

/* all_gather_v and reduce_scatter_v: one list of parts, the same on all ranks. */
static tri_status one_list(tri_group *group, trii_collective *call, const size_t *counts,
                           tri_work **work_out)
{
    bool gathers = call->kind == TRII_KIND_ALL_GATHER_V;
    size_t width = width_of(call->dtype);
    const void *whole, *own;
    size_t own_bytes, own_at;
    places p;
    tri_status status = check_dtype(call);

    if (status == TRI_OK)
        status = trii_call_begin(&group, call);
    if (status != TRI_OK)
        return status;
    status = places_init(&p, group->size);
    if (status == TRI_OK)
        status = place(call, "counts", counts, width, group->size, p.src, &call->bytes);
    if (status != TRI_OK)
        goto done;
    call->dst_parts = gathers ? p.src : NULL;
    call->src_parts = gathers ? NULL : p.src;
    call->count = p.src[group->size];
    call->root = parts_hash(p.src, group->size);
    whole = gathers ? call->dst : call->src;
    own = gathers ? call->src : call->dst;
    own_at = p.src[group->rank] * tri_dtype_size(call->dtype);
    own_bytes = counts[group->rank] * width * tri_dtype_size(call->dtype);
    if (call->count > 0 && whole == NULL)
        status = trii_call_bad(call, gathers ? "dst is NULL" : "src is NULL");
    else if (own_bytes > 0 && own == NULL)
        status = trii_call_bad(call, gathers ? "src is NULL" : "dst is NULL");
    else if (own_bytes > 0 && own != (const char *)whole + own_at &&
             trii_overlap(own, own_bytes, whole, call->bytes))
        status = trii_call_bad(call, "src and dst overlap elsewhere than at this rank's part");
    if (status == TRI_OK)
        status = trii_call_post(group, call, work_out);
done:
    trii_free(p.many);
    return status;
}

tri_status(tri_all_gather_v)(tri_group *group, const void *src, void *dst, const size_t *counts,
                             tri_dtype dtype, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_ALL_GATHER_V,
                            .dtype = dtype,
                            .src = src,
                            .dst = dst,
                            .site = trii_site_take()};

    return one_list(group, &call, counts, work_out);
}

tri_status(tri_reduce_scatter_v)(tri_group *group, const void *src, void *dst, const size_t *counts,
                                 tri_dtype dtype, tri_redop op, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_REDUCE_SCATTER_V,
                            .dtype = dtype,
                            .op = op,
                            .src = src,
                            .dst = dst,
                            .site = trii_site_take()};

    return one_list(group, &call, counts, work_out);
}

tri_status(tri_all_to_all_v)(tri_group *group, const void *src, const size_t *src_counts, void *dst,
                             const size_t *dst_counts, tri_dtype dtype, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_ALL_TO_ALL_V,
                            .dtype = dtype,
                            .src = src,
                            .dst = dst,
                            .site = trii_site_take()};
    size_t src_bytes = 0, dst_bytes = 0, width = width_of(dtype);
    places p;
    tri_status status = check_dtype(&call);

    if (status == TRI_OK)
        status = trii_call_begin(&group, &call);
    if (status != TRI_OK)
        return status;
    status = places_init(&p, group->size);
    if (status == TRI_OK)
        status = place(&call, "src_counts", src_counts, width, group->size, p.src, &src_bytes);
    if (status == TRI_OK)
        status = place(&call, "dst_counts", dst_counts, width, group->size, p.dst, &dst_bytes);
    if (status != TRI_OK)
        goto done;
    call.src_parts = p.src;
    call.dst_parts = p.dst;
    if (src_bytes > 0 && src == NULL)
        status = trii_call_bad(&call, "src is NULL");
    else if (dst_bytes > 0 && dst == NULL)
        status = trii_call_bad(&call, "dst is NULL");
    else if (trii_overlap(src, src_bytes, dst, dst_bytes))
        status = trii_call_bad(&call, "src and dst overlap: it cannot work in place");
    else if (src_counts[group->rank] != dst_counts[group->rank])
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "all_to_all_v: rank %d sends %zu elements to itself but expects %zu",
                           group->rank, src_counts[group->rank], dst_counts[group->rank]);
    if (status == TRI_OK)
        status = trii_call_post(group, &call, work_out);
done:
    trii_free(p.many);
    return status;
}
