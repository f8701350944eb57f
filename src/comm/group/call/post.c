/*
 * post.c - from a checked call to its end: numbers it, records it, hands it to the engine, waits
 * until the engine has finished it, and puts its failure into words. This is the one place where a
 * caller blocks, times out and is told whom it waits for. All calls come here: collective.c runs
 * one at once, work.c posts it first and waits for its handle later.
 */
/* build: hot */
#include <string.h>

#include "base/log.h"
#include "base/note.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"

#define ANNOUNCE_NS (300 * TRII_NS_PER_MS) /* a wait that long is announced, and calls compared */

_Thread_local size_t trii_received;

/* --- posting -------------------------------------------------------------- */

void trii_record_end(tri_group *group, uint64_t record, tri_status status)
{
    if (record == 0)
        return;
    trii_recorder_end(group->recorder, record, status);
    if (TRII_UNLIKELY(status < 0) && trii_fault_status(&group->fault) != TRI_OK)
        trii_recorder_failed(group->recorder, group->record_group, status, group->fault.text);
}

/* Where calls of its kind are counted. Guard: lock. */
static uint64_t *counter_of(tri_group *group, const trii_collective *call)
{
    if (call->kind == TRII_KIND_SEND)
        return &group->pair_seq[call->root];
    if (call->kind == TRII_KIND_RECV)
        return &group->pair_seq[group->size + call->root];
    if (call->kind == TRII_KIND_RECV_ANY)
        return &group->any_seq;
    return &group->seq;
}

/* The number of a call that was not taken is the next one's: the other ranks may have made it. */
static void give_back_seq(tri_group *group, const trii_collective *call)
{
    uint64_t *counter = counter_of(group, call);

    if (*counter == call->seq) /* else another thread has called meanwhile */
        --*counter;
}

tri_status trii_group_start(tri_group *group, trii_op *op, bool waits)
{
    const trii_engine *engine = group->engine;
    tri_status status;

    if (TRII_UNLIKELY(engine->device != NULL))
        op->queue = tri_device_queue(engine->device(group->self));
    trii_lock_take(&group->lock);
    op->made.seq = ++*counter_of(group, &op->call);
    if (group->recorder != NULL)
        op->record = trii_recorder_begin(group->recorder, &op->call, group->record_group);
    status = TRII_UNLIKELY(group->submit_compared != NULL) &&
                     !trii_kind_in(op->call.kind, TRII_KINDS_PAIR)
                 ? group->submit_compared(group, op)
                 : engine->submit(group->self, op, waits);
    if (TRII_UNLIKELY(status != TRI_OK))
        give_back_seq(group, &op->call);
    trii_lock_drop(&group->lock);
    if (TRII_UNLIKELY(status != TRI_OK))
        trii_record_end(group, op->record, status);
    return status;
}

/* --- failures in words ---------------------------------------------------- */

/* What the reader may do, at the end of a line. */
static const char *remedy(const tri_group *group, tri_status status)
{
    switch (status) {
    case TRI_ERR_GROUP_TIMEOUT:
        return "; if it is only slow, allow more (TRI_TIMEOUT_MS)";
    case TRI_ERR_MISMATCH:
        return "; all ranks must make the same calls in one order";
    case TRI_ERR_PEER_LOST:
        if (trii_group_was_left(group)) /* maybe in silence */
            return "; its own output says why, or it made fewer calls";
        return group->recorder != NULL ? "; its own output says why, or `trireme why`"
                                       : "; its own output says why";
    default:
        return "";
    }
}

tri_status trii_op_report(const tri_group *group, const trii_op *op)
{
    tri_status status = trii_op_status(op);
    char call[256], rank[32];
    bool names_call, names_rank;

    if (status >= 0)
        return status;
    trii_op_describe(op, call, sizeof(call));
    snprintf(rank, sizeof(rank), "rank %d", group->rank);
    names_call = strstr(op->error, call) != NULL;
    names_rank = strncmp(op->error, rank, strlen(rank)) == 0;
    return TRII_FAIL(status, "%s%s%s%s%s%s", names_call ? "" : call, names_call ? "" : ", ",
                     names_call && names_rank ? "" : rank, names_call && names_rank ? "" : ": ",
                     op->error, remedy(group, status));
}

tri_status trii_group_report_failed(const tri_group *group, const trii_collective *call)
{
    tri_status status = trii_fault_status(&group->fault);
    char what[256];

    if (group->recorder != NULL) /* a failure between two calls has no other record */
        trii_recorder_failed(group->recorder, group->record_group, status, group->fault.text);
    trii_collective_describe(call, what, sizeof(what));
    return TRII_FAIL(status, "%s, rank %d: the group has failed: %s%s", what, group->rank,
                     group->fault.text, remedy(group, status));
}

tri_status trii_group_report_not_taken(const tri_group *group, const trii_collective *call,
                                       tri_status status)
{
    if (trii_fault_status(&group->fault) != TRI_OK)
        return trii_group_report_failed(group, call);
    return TRII_FAIL_CTX(status, "%s, rank %d", trii_kind_name(call->kind), group->rank);
}

/* --- waiting -------------------------------------------------------------- */

/* The group's deadline passed: everything pending on it ends with TIMEOUT. */
static void group_times_out(tri_group *group, trii_op *op, int64_t waited_ns)
{
    char whom[400];
    char what[256];

    group->engine->describe_wait(group->self, op, whom, sizeof(whom));
    trii_op_describe(op, what, sizeof(what));
    trii_fault_raise(&group->fault, TRI_ERR_TIMEOUT, "rank %d waited %.1f s in %s for %s",
                     group->rank, (double)waited_ns / (double)TRII_NS_PER_S, what, whom);
    group->engine->abort(group->self);
}

static void warn_of_wait(tri_group *group, trii_op *op, int64_t waited_ns)
{
    char who[TRII_GROUP_NAME + 24] = "";
    char whom[400];
    char what[256];

    group->engine->describe_wait(group->self, op, whom, sizeof(whom));
    trii_op_describe(op, what, sizeof(what));
    if (group != trii_group_get_world()) /* else the log says which rank it is */
        snprintf(who, sizeof(who), "%s: rank %d ", group->name, group->rank);
    TRII_LOG(TRII_LOG_WARN, "group", "%shas waited %.1f s in %s for %s%s", who,
             (double)waited_ns / (double)TRII_NS_PER_S, what, whom,
             group->recorder != NULL ? "; `trireme why` looks at all" : "");
}

tri_status trii_group_wait(tri_group *group, trii_op *op, trii_patience patience)
{
    int64_t deadline_ns = patience.deadline_ns;
    bool fatal = patience.fatal;
    int64_t start_ns = trii_now_ns();
    int64_t announce_ns = start_ns + ANNOUNCE_NS, warn_ns = start_ns + TRII_NOTE_FIRST_NS;

    if (!fatal && deadline_ns < announce_ns)
        announce_ns = deadline_ns; /* it may be one of many short waits */
    while (trii_op_status(op) == TRI_INPROGRESS) {
        int64_t now, until_ns = announce_ns < warn_ns ? announce_ns : warn_ns;

        group->engine->progress(group->self, op, until_ns < deadline_ns ? until_ns : deadline_ns);
        if (trii_op_status(op) != TRI_INPROGRESS)
            break;
        now = trii_now_ns();
        if (now >= announce_ns) {
            if (group->engine->announce_wait != NULL &&
                (fatal || now - group->announced_ns >= ANNOUNCE_NS)) {
                group->engine->announce_wait(group->self, op);
                group->announced_ns = now;
            }
            announce_ns = TRII_NO_DEADLINE;
        }
        if (now >= deadline_ns) {
            if (!fatal)
                return TRI_INPROGRESS;
            group_times_out(group, op, patience.before_ns + now - start_ns);
            deadline_ns = TRII_NO_DEADLINE; /* the engine finishes op soon: it must */
        } else if (now >= warn_ns) {
            warn_of_wait(group, op, patience.before_ns + now - start_ns);
            warn_ns = trii_note_next(now);
        }
    }
    return trii_op_status(op);
}

/* --- both ----------------------------------------------------------------- */

size_t trii_op_received(const trii_op *op)
{
    bool is_recv = trii_kind_in(op->call.kind, TRII_KINDS_RECEIVING);

    if (!is_recv || trii_op_status(op) != TRI_OK)
        return 0;
    return op->count / (size_t)(op->call.parts > 0 ? op->call.parts : 1);
}

tri_status trii_group_run(tri_group *group, const trii_collective *call)
{
    trii_op op;
    tri_status status;

    trii_op_init(&op, call);
    status = trii_group_start(group, &op, true);
    if (TRII_UNLIKELY(status != TRI_OK))
        return trii_group_report_not_taken(group, &op.call, status);
    if (trii_op_status(&op) == TRI_INPROGRESS)
        (void)trii_group_wait(group, &op,
                              (trii_patience){.deadline_ns = trii_deadline_after(
                                                  trii_now_ns(), trii_group_timeout_ns(group)),
                                              .fatal = true});
    trii_record_end(group, op.record, trii_op_status(&op));
    if (trii_kind_in(call->kind, TRII_KINDS_RECEIVING))
        trii_received = trii_op_received(&op);
    return trii_op_report(group, &op);
}
