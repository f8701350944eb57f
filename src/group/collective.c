/*
 * collective.c - the public calls: every argument is checked here, once for all engines, and
 * the message names it with its value.
 */
#include <string.h>

#include "group/front.h"
#include "group/reduce/reduce.h"

/* The group, or the world; NULL (and the line) if there is none. */
static tri_group *resolve(tri_group *group, trii_kind kind)
{
    if (group == NULL) {
        group = trii_group_get_world();
        if (group == NULL)
            trii_err_set("%s: the group is NULL and there is no world: %s", trii_kind_name(kind),
                         trii_group_no_world());
    }
    return group;
}

static tri_status bad(const trii_collective *call, const char *what)
{
    char text[256];

    trii_collective_describe(call, text, sizeof(text));
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s", text, what);
}

/* dst == allowed is "in place"; any other common byte is refused. */
static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/* Sizes, the dtype and NULL buffers. `whole` is how many parts the larger buffer has. */
static tri_status check_shape(trii_collective *call, int whole)
{
    size_t size = tri_dtype_size(call->dtype);
    size_t total;

    if (size == 0)
        return bad(call, "dtype is none of the known ones");
    if (__builtin_mul_overflow(call->count, size, &call->bytes) ||
        __builtin_mul_overflow(call->bytes, (size_t)whole, &total) || total > SIZE_MAX / 2)
        return bad(call, "count is more than memory can hold");
    if (call->count > 0 && call->src == NULL && call->kind != TRII_KIND_RECV)
        return bad(call, "src is NULL");
    if (call->count > 0 && call->dst == NULL && call->kind != TRII_KIND_SEND)
        return bad(call, "dst is NULL");
    return TRI_OK;
}

/* How every call with data begins: its group, whether dtype and reduction fit, the sizes.
 * whole: the larger buffer has a part for every rank. */
static tri_status begin(tri_group **group, trii_collective *call, bool whole)
{
    tri_status st = TRI_OK;

    *group = resolve(*group, call->kind);
    if (*group == NULL)
        return TRI_ERR_STATE;
    if (call->kind == TRII_KIND_ALL_REDUCE || call->kind == TRII_KIND_REDUCE_SCATTER)
        st = trii_reduce_check(call->dtype, call->op);
    if (st != TRI_OK)
        return TRII_FAIL_CTX(st, "%s", trii_kind_name(call->kind));
    return check_shape(call, whole ? (*group)->size : 1);
}

static tri_status check_kind(const tri_group *group, const trii_collective *call)
{
    if (group->engine->kinds & (1u << call->kind))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: engine %s does not have it",
                     trii_kind_name(call->kind), group->engine->name);
}

static tri_status post(tri_group *group, trii_collective *call, tri_work **work_out)
{
    tri_status st = check_kind(group, call);

    return st == TRI_OK ? trii_group_post(group, call, work_out) : st;
}

tri_status(tri_all_reduce)(tri_group *group, const void *src, void *dst, size_t count,
                           tri_dtype dtype, tri_redop op, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_ALL_REDUCE,
                            .dtype = dtype,
                            .op = op,
                            .src = src,
                            .dst = dst,
                            .count = count,
                            .site = trii_site_take()};
    tri_status st = begin(&group, &call, false);

    if (st != TRI_OK)
        return st;
    if (src != dst && overlap(src, call.bytes, dst, call.bytes))
        return bad(&call, "src and dst overlap without being the same");
    return post(group, &call, work_out);
}

tri_status(tri_broadcast)(tri_group *group, void *buf, size_t count, tri_dtype dtype, int root,
                          tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_BROADCAST,
                            .dtype = dtype,
                            .root = root,
                            .src = buf,
                            .dst = buf,
                            .count = count,
                            .site = trii_site_take()};
    tri_status st = begin(&group, &call, false);

    if (st != TRI_OK)
        return st;
    if (root < 0 || root >= group->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "broadcast: root %d is no rank of a group of %d",
                         root, group->size);
    return post(group, &call, work_out);
}

tri_status(tri_all_gather)(tri_group *group, const void *src, void *dst, size_t count,
                           tri_dtype dtype, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_ALL_GATHER,
                            .dtype = dtype,
                            .src = src,
                            .dst = dst,
                            .count = count,
                            .site = trii_site_take()};
    tri_status st = begin(&group, &call, true);

    if (st != TRI_OK)
        return st;
    if (src != (char *)dst + call.bytes * (size_t)group->rank &&
        overlap(src, call.bytes, dst, call.bytes * (size_t)group->size))
        return bad(&call, "src overlaps dst elsewhere than at its own part");
    return post(group, &call, work_out);
}

tri_status(tri_reduce_scatter)(tri_group *group, const void *src, void *dst, size_t count,
                               tri_dtype dtype, tri_redop op, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_REDUCE_SCATTER,
                            .dtype = dtype,
                            .op = op,
                            .src = src,
                            .dst = dst,
                            .count = count,
                            .site = trii_site_take()};
    tri_status st = begin(&group, &call, true);

    if (st != TRI_OK)
        return st;
    if (dst != (const char *)src + call.bytes * (size_t)group->rank &&
        overlap(dst, call.bytes, src, call.bytes * (size_t)group->size))
        return bad(&call, "dst overlaps src elsewhere than at its own part");
    return post(group, &call, work_out);
}

tri_status(tri_barrier)(tri_group *group, tri_work **work_out)
{
    trii_collective call = {.kind = TRII_KIND_BARRIER, .site = trii_site_take()};

    group = resolve(group, call.kind);
    return group != NULL ? post(group, &call, work_out) : TRI_ERR_STATE;
}

static tri_status point_to_point(tri_group *group, trii_collective *call, tri_work **work_out)
{
    const char *name = trii_kind_name(call->kind);
    tri_status st = begin(&group, call, false);

    if (st != TRI_OK)
        return st;
    if (call->root < 0 || call->root >= group->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: peer %d is no rank of a group of %d", name,
                         call->root, group->size);
    if (call->root == group->rank)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: peer %d is this rank itself", name, call->root);
    return post(group, call, work_out);
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
