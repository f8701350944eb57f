/*
 * op.c - an operation from its start to its end, and the group's first failure, as engine.h
 * promises them to engines.
 */
/* build: hot leaf */
#include <stdarg.h>
#include <string.h>

#include "comm/group/composite.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/thread.h"

/* Status of an operation on whose word somebody sleeps: finish must wake. */
enum { OP_SLEPT_ON = 1000 };
/* For a thread that has claimed a fault to copy its text. */
enum { SETTLE_MS = 1000 };

/* What replaces the group, whatever the cause would replace. */
static tri_status of_group(tri_status cause)
{
    if (cause == TRI_ERR_TIMEOUT)
        return TRI_ERR_GROUP_TIMEOUT;
    return cause > TRI_ERR_PEER_LOST ? TRI_ERR_ABORTED : cause;
}

/* The text is made before the fault is claimed, so that readers wait for no more than a copy. */
bool trii_fault_raise(trii_fault *fault, tri_status status, const char *format, ...)
{
    tri_status raised = of_group(status);
    char text[TRII_ERR_BYTES];
    int unclaimed = 0, used = 0;
    va_list args;

    if (atomic_load_explicit(&fault->claimed, memory_order_relaxed) != 0)
        return false;
    if (raised != status && raised == TRI_ERR_ABORTED)
        used = snprintf(text, sizeof(text), "%s: ", tri_status_name(status));
    va_start(args, format);
    vsnprintf(text + used, sizeof(text) - (size_t)used, format, args);
    va_end(args);
    if (!atomic_compare_exchange_strong(&fault->claimed, &unclaimed, 1))
        return false;
    memcpy(fault->text, text, strlen(text) + 1);
    atomic_store_explicit(&fault->status, (int)raised, memory_order_release);
    return true;
}

tri_status trii_fault_cause(const trii_fault *fault)
{
    const int64_t deadline_ns = trii_deadline_ms(SETTLE_MS);
    tri_status status;

    while ((status = trii_fault_status(fault)) == TRI_OK && trii_now_ns() < deadline_ns)
        trii_thread_yield();
    return status != TRI_OK ? status : TRI_ERR_ABORTED;
}

void trii_op_init(trii_op *op, const trii_collective *call)
{
    op->made = *call;
    atomic_init(&op->status, TRI_INPROGRESS);
    op->finished = NULL;
    op->record = 0;
    op->counted = NULL;
    if (trii_kind_in(call->kind, TRII_KINDS_PAIR)) {
        op->peer = call->root;
        op->count = call->count;
        op->bytes = call->bytes;
        op->names = NULL;
        op->won = NULL;
    }
    op->next = NULL;
    trii_clear(op->scratch, sizeof(op->scratch));
}

void trii_op_finish(trii_op *op, tri_status status, const char *why)
{
    void (*finished)(trii_op *) = op->finished;
    atomic_int *word = &op->status, *counted = op->counted;

    if (status == TRI_OK && op->call.from != NULL)
        *op->call.from = trii_rank_name(op->names, op->peer);
    if (status < 0)
        snprintf(op->error, sizeof(op->error), "%s", why != NULL ? why : tri_status_name(status));
    if (TRII_UNLIKELY(counted != NULL))
        atomic_fetch_sub(counted, 1);
    /* From here a blocking caller may return and the operation may be gone, unless it is a
     * work, which lives until its `finished` was told. */
    if (atomic_exchange_explicit(word, (int)status, memory_order_acq_rel) == OP_SLEPT_ON)
        trii_futex_wake_all(word);
    if (finished != NULL)
        finished(op);
}

void trii_op_sleep(trii_op *op, int64_t until_ns)
{
    for (;;) {
        int seen = TRI_INPROGRESS;

        if (!atomic_compare_exchange_strong(&op->status, &seen, OP_SLEPT_ON) && seen != OP_SLEPT_ON)
            return;
        if (trii_now_ns() >= until_ns)
            return;
        trii_futex_wait(&op->status, OP_SLEPT_ON, until_ns);
    }
}
