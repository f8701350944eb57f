/*
 * point_to_point.c - send and recv, from a named rank or from the first that sends.
 */
/* build: hot */
#include "comm/group/group_internal.h"
#include "comm/group/group_limits.h"

/* A blocking send to ourselves has to find its receive, or room: nobody could post one later but
 * another thread, and that one should not be waited for. */
static tri_status send_to_self(tri_group *group, trii_collective *call)
{
    tri_work *work = NULL;
    char what[256];
    tri_status status = trii_call_post(group, call, &work);

    if (status != TRI_OK)
        return status;
    status = tri_work_test(work);
    if (status == TRI_INPROGRESS && group->engine->cancel_recv(group->self, &work->op)) {
        trii_op_finish(&work->op, TRI_ERR_STATE, "no receive is posted");
        trii_op_describe(&work->op, what, sizeof(what));
        if (call->bytes > TRII_EAGER_BYTES)
            status =
                TRII_FAIL(TRI_ERR_STATE,
                          "%s, rank %d: a rank sends itself up to %zu KiB before the receive is "
                          "posted; for more post the receive first, with a work, or send with one",
                          what, group->rank, TRII_EAGER_BYTES >> 10);
        else
            status =
                TRII_FAIL(TRI_ERR_STATE,
                          "%s, rank %d: the rank keeps %zu MiB of messages to itself that it has "
                          "not received; receive some first, or send with a work",
                          what, group->rank,
                          (call->bytes > TRII_TINY_BYTES ? TRII_KEPT_EAGER : TRII_KEPT_MOST) >> 20);
    } else if (status == TRI_INPROGRESS) {
        status = tri_work_wait(work, 0);
    }
    tri_work_destroy(work);
    return status;
}

static tri_status point_to_point(tri_group *group, trii_collective *call, tri_work **work_out)
{
    const char *name = trii_kind_name(call->kind);
    tri_status status = trii_call_begin(&group, call);

    if (status != TRI_OK || call->kind == TRII_KIND_RECV_ANY)
        return status != TRI_OK ? status : trii_call_post(group, call, work_out);
    if (call->root < 0 || call->root >= group->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: peer %d is out of range (group of %d)", name,
                         call->root, group->size);
    if (call->root != group->rank)
        return trii_call_post(group, call, work_out);
    if (!group->engine->to_self)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: peer %d is this rank itself, and engine %s has no messages to "
                         "oneself; self, shm, tcp and hierarchy do",
                         name, call->root, group->engine->name);
    if (call->kind == TRII_KIND_SEND && work_out == NULL && !trii_batch_is_open(group))
        return send_to_self(group, call);
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
