/*
 * op.c - what engine.h promises on the front's side: calls in words, the group's
 * first failure, the end of an operation.
 */
/* build: leaf */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "group/engine.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/thread.h"

/* Status of an operation on whose word somebody sleeps: finish must wake. */
enum { OP_SLEPT_ON = 1000 };
/* For a thread that has claimed a fault to copy its text. */
enum { SETTLE_MS = 1000 };

#define KIND_NAME(NAME, name, properties, arg) [TRII_KIND_##NAME] = name,

const char *trii_kind_name(trii_kind kind)
{
    static const char *const names[TRII_KIND_COUNT] = {"no call", TRII_KIND_LIST(KIND_NAME, )};

    return (unsigned)kind < TRII_KIND_COUNT ? names[kind] : "unknown call";
}

/* " of 100 f32, sum, to rank 0": what follows the number of a call. */
static void describe_detail(const trii_collective *call, char *text, size_t size)
{
    const uint32_t any_count = 1u << TRII_KIND_ALL_TO_ALL_V, any_peer = 1u << TRII_KIND_RECV_ANY;
    const uint32_t to_peer = TRII_KINDS_TO_ROOT | 1u << TRII_KIND_SEND;
    uint32_t kind = (unsigned)call->kind < TRII_KIND_COUNT ? 1u << call->kind : 0;
    int peer = call->root;
    size_t used;

    if ((kind & TRII_KINDS_ALL & ~TRII_KINDS_WITH(TRII_NO_DATA)) == 0)
        return;
    used = (size_t)snprintf(text, size, " of ");
    if ((kind & any_count) == 0)
        used += (size_t)snprintf(text + used, size - used, "%zu ", call->count);
    used += (size_t)snprintf(text + used, size - used, "%s", tri_dtype_name(call->dtype));
    if ((kind & TRII_KINDS_REDUCING) != 0)
        used += (size_t)snprintf(text + used, size - used, ", %s", tri_redop_name(call->op));
    if ((kind & TRII_KINDS_PAIR) != 0)
        peer = peer >= 0 ? trii_rank_name(call->names, peer) : -1;
    if ((kind & (TRII_KINDS_ROOTED | TRII_KINDS_PAIR) & ~any_peer) != 0)
        used += (size_t)snprintf(text + used, size - used, "%s %s rank %d",
                                 (kind & TRII_KINDS_REDUCING) != 0 ? "," : "",
                                 (kind & to_peer) != 0 ? "to" : "from", peer);
    if ((kind & TRII_KINDS_PAIR) != 0)
        snprintf(text + used, size - used, ", tag %d", call->tag);
}

void trii_collective_describe(const trii_collective *call, char *text, size_t size)
{
    const char *slash = call->site.file != NULL ? strrchr(call->site.file, '/') : NULL;
    const char *file = slash != NULL ? slash + 1 : call->site.file;
    char detail[96] = "";
    char site[128] = "", number[24] = "";

    if (call->seq > 0) /* else it has not been made */
        snprintf(number, sizeof(number), " #%" PRIu64, call->seq);
    if (file != NULL)
        snprintf(site, sizeof(site), " (%s:%d)", file, call->site.line);
    describe_detail(call, detail, sizeof(detail));
    snprintf(text, size, "%s%s%s%s", trii_kind_name(call->kind), number, detail, site);
}

void trii_op_describe(const trii_op *op, char *text, size_t size)
{
    const trii_collective call = {.kind = op->asked.kind,
                                  .root = op->asked.root,
                                  .names = op->asked.names,
                                  .count = op->asked.count,
                                  .dtype = op->call.dtype,
                                  .op = op->call.op,
                                  .tag = op->call.tag,
                                  .seq = op->call.seq,
                                  .site = op->call.site};

    trii_collective_describe(&call, text, size);
}

void trii_collective_disagree(int rank_a, const trii_collective *a, int rank_b,
                              const trii_collective *b, char *text, size_t size)
{
    bool swap = rank_b < rank_a;
    char first[240], second[240];

    trii_collective_describe(swap ? b : a, first, sizeof(first));
    trii_collective_describe(swap ? a : b, second, sizeof(second));
    snprintf(text, size, "the ranks disagree: rank %d calls %s; rank %d calls %s",
             swap ? rank_b : rank_a, first, swap ? rank_a : rank_b, second);
}

/* What replaces the group, whatever the cause would replace. */
static tri_status of_group(tri_status cause)
{
    if (cause == TRI_ERR_TIMEOUT)
        return TRI_ERR_GROUP_TIMEOUT;
    return cause > TRI_ERR_PEER_LOST ? TRI_ERR_ABORTED : cause;
}

/* The text is made before it is claimed, so that who waits for it waits for a copy. */
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

tri_status trii_fault_settled(const trii_fault *fault)
{
    const int64_t deadline_ns = trii_deadline_ms(SETTLE_MS);
    tri_status status;

    while ((status = trii_fault_status(fault)) == TRI_OK && trii_now_ns() < deadline_ns)
        trii_thread_yield();
    return status != TRI_OK ? status : TRI_ERR_ABORTED;
}

void trii_op_finish(trii_op *op, tri_status status, const char *why)
{
    void (*finished)(trii_op *) = op->finished;
    atomic_int *word = &op->status, *counted = op->counted;

    if (status == TRI_OK && op->call.from != NULL)
        *op->call.from = trii_rank_name(op->call.names, op->call.root);
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
