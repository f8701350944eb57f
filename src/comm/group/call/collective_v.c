/*
 * collective_v.c - the public calls whose parts differ in size from rank to rank. Counts become
 * the places where the parts begin, which is what engines get; they are copied, so the caller's
 * arrays are free when the call returns.
 */
#include "base/dtype.h"
#include "comm/group/group_internal.h"
#include "comm/group/group_limits.h"

/* Where the parts of all ranks begin. */
typedef size_t places[TRII_GROUP_MAX_RANKS + 1];

/* Elements of the call for one of the caller's. */
static size_t width_of(tri_dtype dtype)
{
    return trii_dtype_real(dtype) != dtype ? 2 : 1;
}

/* Where each part begins; *bytes_out: of all. */
static tri_status place(const trii_collective *call, const char *what, const size_t *counts,
                        size_t width, int size, places at, size_t *bytes_out)
{
    size_t elem_bytes = tri_dtype_size(call->dtype);

    if (elem_bytes == 0)
        return trii_call_bad(call, "dtype is not a known type");
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

/* All ranks must give parts of the same sizes, and the same tag: their hash is compared with the
 * call. */
static int parts_hash(const size_t *at, int size, int tag)
{
    uint64_t h = (uint64_t)tag;

    for (int r = 1; r <= size; r++) {
        h = (h ^ at[r]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return (int)(uint32_t)(h >> 33);
}

/* all_gather_v and reduce_scatter_v: one list of parts, the same on all ranks. */
static tri_status one_list(tri_group *group, trii_collective *call, const size_t *counts,
                           tri_work **work_out)
{
    bool gathers = call->kind == TRII_KIND_ALL_GATHER_V;
    size_t width = width_of(call->dtype), size = tri_dtype_size(call->dtype);
    const void *whole, *own;
    size_t own_bytes, own_at;
    places at;
    tri_status status = trii_call_begin(&group, call);

    if (status == TRI_OK)
        status = place(call, "counts", counts, width, group->size, at, &call->bytes);
    if (status != TRI_OK)
        return status;
    call->count = at[group->size];
    call->root = parts_hash(at, group->size, call->root);
    whole = gathers ? call->dst : call->src;
    own = gathers ? call->src : call->dst;
    own_at = at[group->rank] * size;
    own_bytes = counts[group->rank] * width * size;
    if (call->count > 0 && whole == NULL)
        return trii_call_bad(call, gathers ? "dst is NULL" : "src is NULL");
    if (own_bytes > 0 && own == NULL)
        return trii_call_bad(call, gathers ? "src is NULL" : "dst is NULL");
    if (own_bytes > 0 && own != (const char *)whole + own_at &&
        trii_overlap(own, own_bytes, whole, call->bytes))
        return trii_call_bad(call, "src and dst overlap elsewhere than at this rank's part");
    call->dst_parts = gathers ? at : NULL;
    call->src_parts = gathers ? NULL : at;
    return trii_call_post(group, call, work_out);
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

tri_status trii_all_gather_tagged(tri_group *group, const void *src, void *dst,
                                  const size_t *counts, tri_dtype dtype, int tag,
                                  tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_ALL_GATHER_V,
                            .dtype = dtype,
                            .root = tag,
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

tri_status(tri_reduce_scatter_v_premul_sum)(tri_group *group, const void *src, void *dst,
                                            const size_t *counts, tri_dtype dtype, float factor,
                                            tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_REDUCE_SCATTER_V,
                            .dtype = dtype,
                            .scaled = true,
                            .src = src,
                            .dst = dst,
                            .factor = factor,
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
    places src_at, dst_at;
    tri_status status = trii_call_begin(&group, &call);

    if (status == TRI_OK)
        status = place(&call, "src_counts", src_counts, width, group->size, src_at, &src_bytes);
    if (status == TRI_OK)
        status = place(&call, "dst_counts", dst_counts, width, group->size, dst_at, &dst_bytes);
    if (status != TRI_OK)
        return status;
    call.src_parts = src_at;
    call.dst_parts = dst_at;
    if (src_bytes > 0 && src == NULL)
        return trii_call_bad(&call, "src is NULL");
    if (dst_bytes > 0 && dst == NULL)
        return trii_call_bad(&call, "dst is NULL");
    if (trii_overlap(src, src_bytes, dst, dst_bytes))
        return trii_call_bad(&call, "src and dst overlap: it cannot work in place");
    if (src_counts[group->rank] != dst_counts[group->rank])
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "all_to_all_v: rank %d sends %zu elements to itself but expects %zu",
                         group->rank, src_counts[group->rank], dst_counts[group->rank]);
    return trii_call_post(group, &call, work_out);
}
