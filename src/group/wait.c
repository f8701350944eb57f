/*
 * wait.c - posting a call and waiting for it: the one place where a caller blocks, times out,
 * is told for whom it waits, and where work handles live.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "group/front.h"
#include "os/clock.h"

#define WARN_AFTER_NS (TRII_NS_PER_S * 3 / 2)

static int64_t deadline_after(int64_t start_ns, int64_t timeout_ns)
{
    return timeout_ns >= TRII_NO_DEADLINE - start_ns ? TRII_NO_DEADLINE : start_ns + timeout_ns;
}

/* Puts the operation's failure into this thread's line. */
static tri_status op_report(const tri_group *group, const trii_op *op)
{
    tri_status st = trii_op_status(op);
    char text[256];

    if (st >= 0)
        return st;
    trii_collective_describe(&op->call, text, sizeof(text));
    return TRII_FAIL(st, "%s, rank %d: %s", text, group->rank, op->error);
}

/* The group's deadline passed: everything pending on it ends with TIMEOUT. */
static void group_times_out(tri_group *group, trii_op *op, int64_t waited_ns)
{
    char whom[256];
    char what[256];

    group->engine->describe_wait(group->self, op, whom, sizeof(whom));
    trii_collective_describe(&op->call, what, sizeof(what));
    trii_fault_raise(&group->fault, TRI_ERR_TIMEOUT, "rank %d waited %" PRId64 " ms in %s for %s",
                     group->rank, waited_ns / TRII_NS_PER_MS, what, whom);
    group->engine->abort(group->self);
}

static void warn_of_wait(tri_group *group, trii_op *op, int64_t waited_ns)
{
    char whom[256];
    char what[256];

    group->engine->describe_wait(group->self, op, whom, sizeof(whom));
    trii_collective_describe(&op->call, what, sizeof(what));
    TRII_LOG(TRII_LOG_WARN, "group", "%s: rank %d has waited %" PRId64 " ms in %s for %s",
             group->name, group->rank, waited_ns / TRII_NS_PER_MS, what, whom);
}

tri_status trii_group_wait(tri_group *group, trii_op *op, int64_t deadline_ns, bool fatal)
{
    int64_t start_ns = trii_now_ns();
    int64_t warn_ns = start_ns + WARN_AFTER_NS;

    while (trii_op_status(op) == TRI_INPROGRESS) {
        int64_t now;

        group->engine->progress(group->self, op, warn_ns < deadline_ns ? warn_ns : deadline_ns);
        if (trii_op_status(op) != TRI_INPROGRESS)
            break;
        now = trii_now_ns();
        if (now >= deadline_ns) {
            if (!fatal)
                return TRI_INPROGRESS;
            group_times_out(group, op, now - start_ns);
            deadline_ns = TRII_NO_DEADLINE; /* the engine finishes op soon: it must */
        } else if (now >= warn_ns) {
            warn_of_wait(group, op, now - start_ns);
            warn_ns = TRII_NO_DEADLINE;
        }
    }
    return trii_op_status(op);
}

static uint64_t next_seq(tri_group *group, const trii_collective *call)
{
    if (call->kind == TRII_KIND_SEND)
        return ++group->pair_seq[call->root];
    if (call->kind == TRII_KIND_RECV)
        return ++group->pair_seq[group->size + call->root];
    return ++group->seq;
}

static void record_end(tri_group *group, uint64_t record, tri_status status)
{
    if (record == 0)
        return;
    trii_recorder_end(group->recorder, record, status);
    if (TRII_UNLIKELY(status < 0) && trii_fault_status(&group->fault) != TRI_OK)
        trii_recorder_failed(group->recorder, status, group->fault.text);
}

/* Numbers the call and hands it to the engine, in one order for both. */
static tri_status start(tri_group *group, trii_op *op, tri_status (*take)(void *self, trii_op *op))
{
    tri_status st;

    trii_lock_take(&group->lock);
    op->call.seq = next_seq(group, &op->call);
    if (group->recorder != NULL)
        op->record = trii_recorder_begin(group->recorder, &op->call, group->record_group);
    st = take(group->self, op);
    trii_lock_drop(&group->lock);
    if (TRII_UNLIKELY(st != TRI_OK))
        record_end(group, op->record, st);
    return st;
}

static void op_init(trii_op *op, const trii_collective *call)
{
    op->call = *call;
    op->call.signature = trii_collective_signature(call);
    atomic_init(&op->status, TRI_INPROGRESS);
    op->finished = NULL;
    op->record = 0;
    op->next = NULL;
    memset(op->scratch, 0, sizeof(op->scratch));
}

static tri_status post_blocking(tri_group *group, const trii_collective *call)
{
    const trii_engine *engine = group->engine;
    trii_op op;
    tri_status st;

    op_init(&op, call);
    st = start(group, &op, engine->run != NULL ? engine->run : engine->submit);
    if (TRII_UNLIKELY(st != TRI_OK)) {
        op.error[0] = '\0';
        return TRII_FAIL_CTX(st, "%s, rank %d", trii_kind_name(call->kind), group->rank);
    }
    if (trii_op_status(&op) == TRI_INPROGRESS)
        (void)trii_group_wait(group, &op, deadline_after(trii_now_ns(), group->timeout_ns), true);
    record_end(group, op.record, trii_op_status(&op));
    return op_report(group, &op);
}

/* Works that are over serve the next calls, so that a steady state allocates nothing. Whoever
 * drops the last reference has the group: it holds the handle, or the engine has not ended. */
static tri_work *work_take(tri_group *group)
{
    tri_work *work;

    trii_lock_take(&group->idle_lock);
    work = group->idle;
    if (work != NULL)
        group->idle = work->next;
    trii_lock_drop(&group->idle_lock);
    return work != NULL ? work : trii_alloc(1, sizeof(*work), "work");
}

static void work_give(tri_group *group, tri_work *work)
{
    trii_lock_take(&group->idle_lock);
    work->next = group->idle;
    group->idle = work;
    trii_lock_drop(&group->idle_lock);
}

void trii_group_free_idle(tri_group *group)
{
    while (group->idle != NULL) {
        tri_work *next = group->idle->next;

        trii_free(group->idle);
        group->idle = next;
    }
}

static void work_unref(tri_work *work)
{
    if (atomic_fetch_sub(&work->refs, 1) == 1)
        work_give(work->group, work);
}

static void work_finished(trii_op *op)
{
    tri_work *work = (tri_work *)((char *)op - offsetof(tri_work, op));

    record_end(work->group, op->record, trii_op_status(op));
    work_unref(work);
}

static tri_status post_async(tri_group *group, const trii_collective *call, tri_work **work_out)
{
    tri_work *work = work_take(group);
    tri_status st;

    if (work == NULL)
        return TRI_ERR_NO_MEMORY;
    op_init(&work->op, call);
    work->op.finished = work_finished;
    work->group = group;
    work->deadline_ns = deadline_after(trii_now_ns(), group->timeout_ns);
    atomic_init(&work->refs, 2);
    st = start(group, &work->op, group->engine->submit);
    if (st != TRI_OK) {
        work_give(group, work);
        return TRII_FAIL_CTX(st, "%s, rank %d", trii_kind_name(call->kind), group->rank);
    }
    tri_group_ref(group);
    *work_out = work;
    return TRI_OK;
}

tri_status trii_group_post(tri_group *group, trii_collective *call, tri_work **work_out)
{
    tri_status failed = trii_fault_status(&group->fault);

    if (TRII_UNLIKELY(failed != TRI_OK))
        return TRII_FAIL(failed, "%s, rank %d: the group has failed: %s",
                         trii_kind_name(call->kind), group->rank, group->fault.text);
    if (work_out == NULL)
        return post_blocking(group, call);
    return post_async(group, call, work_out);
}

/* --- handles ----------------------------------------------------------------------------- */

tri_status tri_work_wait(tri_work *work, int64_t timeout_ms)
{
    int64_t deadline_ns = work->deadline_ns;
    int64_t given_ns = timeout_ms > 0 ? trii_deadline_ms(timeout_ms) : TRII_NO_DEADLINE;
    bool fatal = given_ns >= deadline_ns;
    tri_status st;

    st = trii_group_wait(work->group, &work->op, fatal ? deadline_ns : given_ns, fatal);
    if (st == TRI_INPROGRESS) {
        char whom[256];
        char what[256];

        work->group->engine->describe_wait(work->group->self, &work->op, whom, sizeof(whom));
        trii_collective_describe(&work->op.call, what, sizeof(what));
        return TRII_FAIL(TRI_ERR_TIMEOUT, "%s, rank %d: still waiting after %" PRId64 " ms for %s",
                         what, work->group->rank, timeout_ms, whom);
    }
    return op_report(work->group, &work->op);
}

tri_status tri_work_test(tri_work *work)
{
    if (trii_op_status(&work->op) == TRI_INPROGRESS) {
        work->group->engine->progress(work->group->self, &work->op, 0);
        if (trii_op_status(&work->op) == TRI_INPROGRESS && trii_now_ns() >= work->deadline_ns)
            (void)trii_group_wait(work->group, &work->op, work->deadline_ns, true);
    }
    return op_report(work->group, &work->op);
}

const char *tri_work_error(const tri_work *work)
{
    return trii_op_status(&work->op) < 0 ? work->op.error : "";
}

void tri_work_destroy(tri_work *work)
{
    tri_group *group;

    if (work == NULL)
        return;
    group = work->group;
    work_unref(work);
    tri_group_unref(group);
}
