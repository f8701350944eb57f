/*
 * post.c - from a checked call to the engine: numbers it, records it and hands it over; then waits
 * for it, makes a handle of it, or puts it into the thread's open batch. All calls come through
 * here: those of collective.c, collective_v.c and point_to_point.c, and the group's own.
 */
/* build: hot */
#include <string.h>

#include "base/alloc.h"
#include "group/group_internal.h"
#include "os/clock.h"

static uint64_t next_seq(tri_group *group, const trii_collective *call)
{
    if (call->kind == TRII_KIND_SEND)
        return ++group->pair_seq[call->root];
    if (call->kind == TRII_KIND_RECV)
        return ++group->pair_seq[group->size + call->root];
    if (call->kind == TRII_KIND_RECV_ANY)
        return ++group->any_seq;
    return ++group->seq;
}

/* Numbers the call and hands it to the engine, in one order for both. */
static tri_status start(tri_group *group, trii_op *op, tri_status (*take)(void *self, trii_op *op))
{
    tri_status status;

    trii_lock_take(&group->lock);
    op->call.seq = next_seq(group, &op->call);
    if (group->recorder != NULL)
        op->record = trii_recorder_begin(group->recorder, &op->call, group->record_group);
    status = TRII_UNLIKELY(group->checks_calls) && !trii_kind_in(op->call.kind, TRII_KINDS_PAIR)
                 ? trii_call_check_submit(group, op)
                 : take(group->self, op);
    trii_lock_drop(&group->lock);
    if (TRII_UNLIKELY(status != TRI_OK))
        trii_record_end(group, op->record, status);
    return status;
}

/* The caller's places are on its stack: the work keeps its own. */
static tri_status keep_parts(tri_work *work, trii_collective *call)
{
    size_t n = (size_t)work->group->size + 1;

    if (call->src_parts == NULL && call->dst_parts == NULL)
        return TRI_OK;
    work->parts = trii_alloc(2 * n, sizeof(*work->parts), "work, parts");
    if (work->parts == NULL)
        return TRI_ERR_NO_MEMORY;
    if (call->src_parts != NULL)
        call->src_parts = memcpy(work->parts, call->src_parts, n * sizeof(*work->parts));
    if (call->dst_parts != NULL)
        call->dst_parts = memcpy(work->parts + n, call->dst_parts, n * sizeof(*work->parts));
    return TRI_OK;
}

static tri_status post_work(tri_group *group, const trii_collective *call, tri_work **work_out)
{
    tri_work *work = trii_work_acquire(group);
    tri_status status;

    if (work == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_op_init(&work->op, call);
    work->op.finished = trii_work_finished;
    atomic_init(&work->refs, 2);
    status = keep_parts(work, &work->op.call);
    if (status == TRI_OK)
        status = start(group, &work->op, group->engine->submit);
    if (status != TRI_OK) {
        trii_work_release(group, work);
        return TRII_FAIL_CTX(status, "%s, rank %d", trii_kind_name(call->kind), group->rank);
    }
    tri_group_ref(group);
    *work_out = work;
    return TRI_OK;
}

tri_status trii_group_run(tri_group *group, const trii_collective *call)
{
    const trii_engine *engine = group->engine;
    trii_op op;
    tri_status status;

    trii_op_init(&op, call);
    status = start(group, &op, engine->run != NULL ? engine->run : engine->submit);
    if (TRII_UNLIKELY(status != TRI_OK)) {
        op.error[0] = '\0';
        return TRII_FAIL_CTX(status, "%s, rank %d", trii_kind_name(call->kind), group->rank);
    }
    if (trii_op_status(&op) == TRI_INPROGRESS)
        (void)trii_group_wait(group, &op,
                              (trii_patience){.deadline_ns = trii_deadline_after(
                                                  trii_now_ns(), trii_group_timeout_ns(group)),
                                              .fatal = true});
    trii_record_end(group, op.record, trii_op_status(&op));
    if (trii_kind_in(call->kind, TRII_KINDS_RECEIVING))
        trii_recv_note(&op);
    return trii_op_report(group, &op);
}

tri_status trii_group_post(tri_group *group, trii_collective *call, tri_work **work_out)
{
    tri_work *member = NULL;
    tri_status status;

    if (TRII_UNLIKELY(group->chaos != NULL))
        trii_chaos_strike(group->chaos, group->engine, group->self, call);
    if (TRII_UNLIKELY(trii_fault_status(&group->fault) != TRI_OK)) {
        status = trii_group_report_failed(group, call);
    } else if (work_out != NULL) {
        status = post_work(group, call, work_out);
    } else if (TRII_LIKELY(!trii_batch_is_open(group))) {
        status = trii_group_run(group, call);
        trii_free(call->temporary);
        return status;
    } else {
        status = trii_batch_reserve();
        if (status == TRI_OK)
            status = post_work(group, call, &member);
        if (status == TRI_OK)
            trii_batch_add(member);
    }
    if (status != TRI_OK)
        trii_free(call->temporary);
    return status;
}
