/*
 * point_to_point.c - send and recv, from a named rank or from whoever sends first.
 */
#include "group/front.h"

static tri_status point_to_point(tri_group *group, trii_collective *call, tri_work **work_out)
{
    const char *name = trii_kind_name(call->kind);
    tri_status st = trii_call_begin(&group, call);

    if (st != TRI_OK)
        return st;
    if (call->kind == TRII_KIND_RECV_ANY) {
        if (group->size == 1)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: a group of one has nobody who sends", name);
        return trii_call_post(group, call, work_out);
    }
    if (call->root < 0 || call->root >= group->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: peer %d is no rank of a group of %d", name,
                         call->root, group->size);
    if (call->root == group->rank)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: peer %d is this rank itself", name, call->root);
    return trii_call_post(group, call, work_out);
}

tri_status(tri_send)(tri_group *group, const void *src, size_t count, tri_dtype dtype, int peer,
                     int tag, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_SEND,
                            .dtype = dtype,
                            .root = peer,
                            .tag = tag,
                            .src = src,
                            .count = count,
                            .site = trii_site_take()};

    return point_to_point(group, &call, work_out);
}

tri_status(tri_recv)(tri_group *group, void *dst, size_t count, tri_dtype dtype, int peer, int tag,
                     tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_RECV,
                            .dtype = dtype,
                            .root = peer,
                            .tag = tag,
                            .dst = dst,
                            .count = count,
                            .site = trii_site_take()};

    return point_to_point(group, &call, work_out);
}

tri_status(tri_recv_any)(tri_group *group, void *dst, size_t count, tri_dtype dtype, int tag,
                         int *from_out, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_RECV_ANY,
                            .dtype = dtype,
                            .root = -1,
                            .tag = tag,
                            .dst = dst,
                            .count = count,
                            .from = from_out,
                            .site = trii_site_take()};

    return point_to_point(group, &call, work_out);
}
