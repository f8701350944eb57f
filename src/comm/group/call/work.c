/*
 * work.c - handles of asynchronous calls, and batches: several calls under one handle. post.c
 * starts the calls and waits for them.
 */
/* build: hot */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"

#define LOOKS_APART_NS (100 * TRII_NS_PER_MS) /* at most, of a caller that does nothing else */

_Thread_local tri_work *trii_open_batch;

/* Guard: idle_lock, as the next. */
static void link_live(tri_group *group, tri_work *work)
{
    work->prev = NULL;
    work->next = group->live;
    if (work->next != NULL)
        work->next->prev = work;
    group->live = work;
}

static void unlink_live(tri_group *group, tri_work *work)
{
    if (work->next != NULL)
        work->next->prev = work->prev;
    *(work->prev != NULL ? &work->prev->next : &group->live) = work->next;
}

/* Works that are over serve the next calls, so that a steady state allocates nothing. The one that
 * drops the last reference still has the group: it holds the handle, or the engine has not ended.
 */
static tri_work *acquire_work(tri_group *group)
{
    tri_work *work;

    trii_lock_take(&group->idle_lock);
    work = group->idle;
    if (work != NULL) {
        group->idle = work->next;
        link_live(group, work);
    }
    trii_lock_drop(&group->idle_lock);
    if (work == NULL) {
        work = trii_alloc(1, sizeof(*work), "work");
        if (work == NULL)
            return NULL;
        trii_lock_take(&group->idle_lock);
        link_live(group, work);
        trii_lock_drop(&group->idle_lock);
    }
    work->group = group;
    work->epoch = group->epoch;
    work->patience_ns = trii_group_timeout_ns(group);
    work->waited_ns = work->counted_ns = 0;
    work->members = NULL;
    work->n_members = work->member_room = 0;
    work->parts = NULL;
    return work;
}

static void release_work(tri_group *group, tri_work *work)
{
    trii_free(work->parts);
    trii_lock_take(&group->idle_lock);
    unlink_live(group, work);
    work->next = group->idle;
    group->idle = work;
    trii_lock_drop(&group->idle_lock);
}

/* How many calls a handle has, and the handle of each of them. */
static int count_calls(const tri_work *work)
{
    return work->members != NULL ? work->n_members : 1;
}

static tri_work *call_at(const tri_work *work, int i)
{
    return work->members != NULL ? work->members[i] : (tri_work *)(uintptr_t)work;
}

size_t trii_group_work_bytes(const tri_work *work)
{
    size_t bytes = 0;

    for (int i = 0; work != NULL && i < count_calls(work); i++)
        bytes += call_at(work, i)->op.call.bytes;
    return bytes;
}

static void work_unref(tri_work *work)
{
    if (atomic_fetch_sub(&work->refs, 1) == 1)
        release_work(work->group, work);
}

static void work_finished(trii_op *op)
{
    tri_work *work = (tri_work *)((char *)op - offsetof(tri_work, op));

    trii_record_end(work->group, op->record, trii_op_status(op));
    trii_free(op->call.temporary);
    work_unref(work);
}

/* --- posting -------------------------------------------------------------- */

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

static tri_status post_one(tri_group *group, const trii_collective *call, tri_work **work_out)
{
    tri_work *work = acquire_work(group);
    tri_status status;

    if (work == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_op_init(&work->op, call);
    work->op.finished = work_finished;
    atomic_init(&work->refs, 2);
    status = keep_parts(work, &work->op.made);
    if (status == TRI_OK)
        status = trii_group_start(group, &work->op, false);
    if (status != TRI_OK) {
        status = trii_group_report_not_taken(group, &work->op.call, status);
        release_work(group, work);
        return status;
    }
    tri_group_ref(group);
    *work_out = work;
    return TRI_OK;
}

/* Into the thread's open batch. */
static tri_status post_member(tri_group *group, const trii_collective *call)
{
    tri_work *batch = trii_open_batch;
    tri_status status = trii_array_grow(&batch->members, &batch->member_room, batch->n_members, 8,
                                        sizeof(tri_work *), "batch of calls");

    if (status == TRI_OK)
        status = post_one(group, call, &batch->members[batch->n_members]);
    if (status == TRI_OK)
        batch->n_members++;
    return status;
}

tri_status trii_work_post(tri_group *group, const trii_collective *call, tri_work **work_out)
{
    return work_out != NULL ? post_one(group, call, work_out) : post_member(group, call);
}

/* --- handles -------------------------------------------------------------- */

#define SINCE_LAST_LOOK INT64_C(-1)

/* What counts is the time that callers spend waiting: between posting a call and asking for it they
 * may compute for as long as they like. Two threads that wait at a time wait once. A caller that
 * only looks, again and again, waits from look to look; if those are far apart, it computes.
 * Returns how long has been waited for it in all. */
static int64_t count_wait(tri_work *work, int64_t start_ns, int64_t now)
{
    int64_t waited_ns;

    trii_lock_take(&work->group->idle_lock);
    if (start_ns == SINCE_LAST_LOOK && now - work->counted_ns > LOOKS_APART_NS)
        start_ns = now;
    start_ns = start_ns > work->counted_ns ? start_ns : work->counted_ns;
    if (now > start_ns)
        work->waited_ns += now - start_ns;
    work->counted_ns = now > work->counted_ns ? now : work->counted_ns;
    waited_ns = work->waited_ns;
    trii_lock_drop(&work->group->idle_lock);
    return waited_ns;
}

/* Whether anybody may look after it: the engine of an earlier epoch is gone. */
static tri_status check_waitable(const tri_work *work, const char *call)
{
    if (TRII_LIKELY(work->epoch == work->group->epoch))
        return trii_group_check_process(work->group, call);
    return TRII_FAIL(TRI_ERR_ABORTED, "%s: the call belongs to epoch %d of group %s, now in %d",
                     call, work->epoch, work->group->name, work->group->epoch);
}

/* given_ns: the caller's deadline, TRII_NO_DEADLINE = none but the work's; timeout_ms: what to say
 * of it, below 0 = nothing: INPROGRESS. */
static tri_status wait_one(tri_work *work, int64_t given_ns, int64_t timeout_ms)
{
    int64_t start_ns, own_ns = TRII_NO_DEADLINE;
    trii_patience patience;
    tri_status status;

    if (trii_op_status(&work->op) != TRI_INPROGRESS)
        return trii_op_report(work->group, &work->op);
    status = check_waitable(work, "work_wait");
    if (status != TRI_OK)
        return status;
    start_ns = trii_now_ns();
    patience.before_ns = count_wait(work, start_ns, start_ns);
    if (work->patience_ns != TRII_NO_DEADLINE)
        own_ns = trii_deadline_after(start_ns, work->patience_ns - patience.before_ns);
    patience.fatal = given_ns >= own_ns;
    patience.deadline_ns = patience.fatal ? own_ns : given_ns;
    status = trii_group_wait(work->group, &work->op, patience);
    if (status == TRI_INPROGRESS) {
        char whom[256];
        char what[256];

        (void)count_wait(work, start_ns, trii_now_ns());
        if (timeout_ms < 0)
            return TRI_INPROGRESS;
        work->group->engine->describe_wait(work->group->self, &work->op, whom, sizeof(whom));
        trii_op_describe(&work->op, what, sizeof(what));
        return TRII_FAIL(TRI_ERR_TIMEOUT, "%s, rank %d: still waiting after %" PRId64 " ms for %s",
                         what, work->group->rank, timeout_ms, whom);
    }
    return trii_op_report(work->group, &work->op);
}

static tri_status no_work(const char *call)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: work is NULL: did the call that makes it fail?",
                     call);
}

/* The first failure of calls that are all over. */
static tri_status report_all(const tri_work *work)
{
    for (int i = 0; i < count_calls(work); i++) {
        tri_work *call = call_at(work, i);

        if (trii_op_status(&call->op) < 0)
            return trii_op_report(call->group, &call->op);
    }
    return TRI_OK;
}

/* After a failure, too: until all are over, their buffers are not the caller's. */
static tri_status wait_all(tri_work *work, int64_t given_ns, int64_t timeout_ms)
{
    if (work->members == NULL)
        return wait_one(work, given_ns, timeout_ms);
    for (int i = 0; i < work->n_members; i++) {
        tri_status status = wait_one(work->members[i], given_ns, timeout_ms);

        if (trii_op_status(&work->members[i]->op) == TRI_INPROGRESS)
            return status; /* it was not waited for to its end */
    }
    return report_all(work);
}

tri_status tri_work_wait(tri_work *work, int64_t timeout_ms)
{
    int64_t given_ns = timeout_ms > 0 ? trii_deadline_ms(timeout_ms) : TRII_NO_DEADLINE;

    return work != NULL ? wait_all(work, given_ns, timeout_ms) : no_work("work_wait");
}

tri_status trii_work_wait_for(tri_work *work, int64_t for_ns)
{
    return wait_all(work, trii_deadline_after(trii_now_ns(), for_ns), -1);
}

/* One look. */
static tri_status look_at(tri_work *work, bool waits)
{
    tri_status status;

    if (trii_op_status(&work->op) != TRI_INPROGRESS)
        return trii_op_report(work->group, &work->op);
    status = check_waitable(work, "work_test");
    if (status != TRI_OK)
        return status;
    work->group->engine->progress(work->group->self, &work->op, 0);
    if (waits && trii_op_status(&work->op) == TRI_INPROGRESS) {
        trii_patience patience = {.deadline_ns = trii_now_ns(), .fatal = true};

        patience.before_ns = count_wait(work, SINCE_LAST_LOOK, patience.deadline_ns);
        if (patience.before_ns >= work->patience_ns)
            (void)trii_group_wait(work->group, &work->op, patience);
    }
    return trii_op_report(work->group, &work->op);
}

/* A failure only once all are over, for the reason above. */
static tri_status look_at_all(tri_work *work, bool waits)
{
    tri_status status = TRI_OK;

    if (work->members == NULL)
        return look_at(work, waits);
    for (int i = 0; i < work->n_members; i++) {
        tri_status one = look_at(work->members[i], waits);

        if (trii_op_status(&work->members[i]->op) != TRI_INPROGRESS)
            continue;
        if (one < 0)
            return one; /* nobody here may look at it */
        status = TRI_INPROGRESS;
    }
    return status == TRI_OK ? report_all(work) : status;
}

tri_status tri_work_test(tri_work *work)
{
    return work != NULL ? look_at_all(work, true) : no_work("work_test");
}

tri_status trii_work_poll(tri_work *work)
{
    return look_at_all(work, false);
}

const char *tri_work_error(const tri_work *work)
{
    for (int i = 0; work != NULL && i < count_calls(work); i++) {
        if (trii_op_status(&call_at(work, i)->op) < 0)
            return call_at(work, i)->op.error;
    }
    return "";
}

void tri_work_destroy(tri_work *work)
{
    tri_group *group;

    if (work == NULL)
        return;
    group = work->group;
    for (int i = 0; i < work->n_members; i++)
        tri_work_destroy(work->members[i]);
    trii_free(work->members);
    work_unref(work);
    tri_group_unref(group);
}

size_t tri_work_count(const tri_work *work)
{
    if (work == NULL)
        return trii_received;
    return work->members == NULL ? trii_op_received(&work->op) : 0;
}

/* --- batches -------------------------------------------------------------- */

tri_work *trii_batch_set(tri_work *batch)
{
    tri_work *before = trii_open_batch;

    trii_open_batch = batch;
    return before;
}

tri_status tri_group_batch_begin(tri_group *group)
{
    tri_work *batch;
    tri_status status = trii_group_resolve(&group, "group_batch_begin");

    if (status != TRI_OK)
        return status;
    if (trii_open_batch != NULL)
        return TRII_FAIL(TRI_ERR_STATE, "group_batch_begin: this thread has begun a batch already");
    batch = acquire_work(group);
    if (batch == NULL)
        return TRI_ERR_NO_MEMORY;
    batch->member_room = 8;
    batch->members = trii_alloc((size_t)batch->member_room, sizeof(tri_work *), "batch of calls");
    if (batch->members == NULL) {
        release_work(group, batch);
        return TRI_ERR_NO_MEMORY;
    }
    atomic_init(&batch->refs, 1);
    tri_group_ref(group);
    trii_open_batch = batch;
    return TRI_OK;
}

tri_status tri_group_batch_end(tri_group *group, tri_work **work_out)
{
    tri_work *batch = trii_open_batch;
    tri_status status;

    group = group != NULL ? group : trii_group_get_world();
    if (batch == NULL || batch->group != group)
        return TRII_FAIL(TRI_ERR_STATE,
                         "group_batch_end: this thread has begun no batch on the group");
    trii_open_batch = NULL;
    if (work_out != NULL) {
        *work_out = batch;
        return TRI_OK;
    }
    status = tri_work_wait(batch, 0);
    tri_work_destroy(batch);
    return status;
}
