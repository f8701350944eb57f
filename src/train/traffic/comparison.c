/*
 * comparison.c - see comparison.h.
 */
#include "train/traffic/comparison.h"

#include <string.h>

#include "base/err.h"
#include "comm/group/join/world.h"
#include "train/graph/step/host_op.h"

typedef struct comparison {
    trii_host_op op;  /* first */
    tri_group *group; /* a reference */
    tri_work *work;   /* while it is under way */
    trii_site site;   /* of the call that recorded it */
    trii_judge judge;
    size_t bytes;
    bool is_over;
    _Alignas(uint64_t) char data[]; /* this rank's, then those of all */
} comparison;

static tri_status start(trii_host_op *op, const trii_host_buffers *buffers)
{
    comparison *c = (comparison *)op;

    (void)buffers;
    if (c->site.file != NULL)
        tri_site_set(c->site.file, c->site.line);
    return (tri_all_gather)(c->group, c->data, c->data + c->bytes, c->bytes, TRI_DTYPE_U8,
                            &c->work);
}

static tri_status ended(comparison *c, tri_status status)
{
    if (status == TRI_INPROGRESS)
        return status;
    status = status != TRI_OK ? TRII_FAIL(status, "%s", tri_work_error(c->work))
                              : c->judge(c->group, c->data + c->bytes);
    tri_work_destroy(c->work);
    c->work = NULL;
    c->is_over = status == TRI_OK;
    return status;
}

static tri_status poll(trii_host_op *op)
{
    comparison *c = (comparison *)op;

    return c->work != NULL ? ended(c, trii_work_poll(c->work)) : TRI_OK;
}

static tri_status wait_for(trii_host_op *op, int64_t for_ns)
{
    comparison *c = (comparison *)op;

    return c->work != NULL ? ended(c, trii_work_wait_for(c->work, for_ns)) : TRI_OK;
}

static void abort_group(trii_host_op *op, const char *why)
{
    comparison *c = (comparison *)op;

    if (!c->is_over)
        tri_group_abort(c->group, why);
}

static void release(trii_host_op *op)
{
    comparison *c = (comparison *)op;

    tri_work_destroy(c->work);
    tri_group_unref(c->group);
}

static tri_status compare_order(trii_host_op *op, const char *what, const char *where)
{
    return trii_group_compare_order(((comparison *)op)->group, what, where);
}

static const trii_host_kind kind = {.name = "comparison of ranks",
                                    .start = start,
                                    .poll = poll,
                                    .wait = wait_for,
                                    .abort = abort_group,
                                    .compare = compare_order,
                                    .release = release};

tri_status trii_record_comparison(trii_step *step, tri_group *group, const void *own, size_t bytes,
                                  trii_judge judge)
{
    const trii_host_result token = {
        .type = {.dtype = TRI_DTYPE_F32, .ndim = 1, .device = TRI_CPU(0)}};
    const trii_host_call call = {.out = &token, .n_out = 1};
    size_t ranks = (size_t)tri_group_size(group);
    trii_host_op *op = NULL;
    comparison *c;
    trii_vid out;
    tri_status status = trii_host_op_new(step, &kind, sizeof(*c) + (1 + ranks) * bytes, &op);

    if (status != TRI_OK)
        return status;
    c = (comparison *)op;
    c->group = tri_group_ref(group);
    c->site = trii_site_last();
    c->judge = judge;
    c->bytes = bytes;
    memcpy(c->data, own, bytes);
    op->group = (uint64_t)(uintptr_t)group;
    status = trii_record_host(step, op, &call, &out);
    if (status != TRI_OK)
        return status;
    step->values[out].keep = true; /* nothing reads it */
    (void)trii_handle_recorded(step, out);
    return TRI_OK;
}
