/*
 * rpc_call_end.c - how a call ends: its line, who is told, its deadline, its memory.
 */
/* build: hot */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/rpc/rpc_internal.h"

/* So long before a deadline the callee is asked where the call is: an eighth of what it was given,
 * since a busy callee takes its time to answer, but within these. */
#define ASK_MIN_NS (20 * TRII_NS_PER_MS)
#define ASK_MAX_NS (200 * TRII_NS_PER_MS)

uint64_t rpc_call_number(const tri_rpc_call *call)
{
    return (uint64_t)call->generation << 32 | call->slot;
}

tri_rpc_call *rpc_call_at(const tri_rpc *rpc, uint64_t number)
{
    uint32_t slot = (uint32_t)number;

    if (slot >= (uint32_t)rpc->n_calls || rpc->calls[slot]->generation != number >> 32)
        return NULL;
    return rpc->calls[slot];
}

bool rpc_call_is_over(void *call)
{
    return ((const tri_rpc_call *)call)->state == RPC_CALL_OVER;
}

RPC_COLD static void name_call(const tri_rpc_call *call, char *text, size_t size)
{
    const tri_rpc_ref *to = call->to;
    const rpc_peer *peer;

    while (to->maker != NULL)
        to = to->maker->to;
    peer = call->peer != NULL ? call->peer : to->peer;
    snprintf(text, size, "%s on %s%s", call->function->name,
             peer != NULL       ? peer->name
             : to->name != NULL ? to->name
                                : to->owner,
             peer != NULL ? peer->where : "");
}

/* --- ends ----------------------------------------------------------------- */

RPC_COLD void rpc_call_log(const tri_rpc_call *call)
{
    TRII_LOG(TRII_LOG_WARN, "rpc", "nobody has looked at a call that failed: %s: %s",
             tri_status_name(call->status), call->error != NULL ? call->error : "no memory");
}

/* Its error line. */
RPC_COLD static TRI_PRINTF(2, 0) void set_error(tri_rpc_call *call, const char *format,
                                                va_list args)
{
    char cause[RPC_ERROR / 2], name[320], line[RPC_ERROR];

    vsnprintf(cause, sizeof(cause), format, args);
    name_call(call, name, sizeof(name));
    if (call->site.file != NULL)
        snprintf(line, sizeof(line), "%s: %s: %s, called at %s:%d", name,
                 tri_status_name(call->status), cause, call->site.file, call->site.line);
    else
        snprintf(line, sizeof(line), "%s: %s: %s", name, tri_status_name(call->status), cause);
    call->error = trii_strdup(line, "error line");
}

void rpc_call_end(tri_rpc_call *call, tri_status status, const char *format, ...)
{
    tri_rpc *rpc = call->rpc;
    va_list args;

    if (call->state == RPC_CALL_OVER)
        return;
    if (call->state == RPC_CALL_DEFERRED)
        rpc->n_deferred--;
    call->state = RPC_CALL_OVER;
    if (--rpc->n_open == 0 && rpc->joiner != NULL && !rpc->joined)
        rpc_kick(rpc->joiner);
    rpc_record_state(call, 0);
    if (status == TRI_OK && call->promise != NULL && call->reply.message.n_refs == 0) {
        status = TRI_ERR_FORMAT;
        format = "its reply had no reference";
    }
    call->status = status;
    if (status < 0) {
        va_start(args, format);
        set_error(call, format, args);
        va_end(args);
    }
    if (call->waiter != NULL)
        rpc_kick(call->waiter);
    if (call->promise != NULL)
        rpc_promise_resolve(call->promise, call);
    if (call->done != NULL) {
        call->users++;
        call->after = NULL;
        *rpc->after_calls_end = call;
        rpc->after_calls_end = &call->after;
    } else if (!call->handle && !call->read && status < 0) {
        rpc_call_log(call);
    }
    rpc_changed(rpc);
    rpc_call_unuse(call); /* what was under way */
}

int64_t rpc_call_look_ns(const tri_rpc_call *call)
{
    int64_t before_ns;

    if (call->asked || call->deadline_ns == TRII_NO_DEADLINE)
        return call->deadline_ns;
    before_ns = (call->deadline_ns - call->began_ns) / 8;
    before_ns = before_ns > ASK_MIN_NS ? before_ns : ASK_MIN_NS;
    return call->deadline_ns - (before_ns < ASK_MAX_NS ? before_ns : ASK_MAX_NS);
}

RPC_COLD void rpc_call_ask(tri_rpc_call *call)
{
    call->asked = true;
    if (call->in_flight && call->deadline_ns - call->began_ns > 2 * ASK_MIN_NS)
        rpc_send_kind(call->peer, RPC_WHERE, rpc_call_number(call), 0, 0);
}

RPC_COLD void rpc_call_expire(tri_rpc_call *call)
{
    int64_t ms = (call->deadline_ns - call->began_ns) / TRII_NS_PER_MS;
    const rpc_peer *peer = call->to->peer;

    if (call->in_flight)
        rpc_send_kind(call->peer, RPC_CANCEL, rpc_call_number(call), 0, 0);
    if (call->state == RPC_CALL_DEFERRED)
        rpc_call_end(call, TRI_ERR_TIMEOUT, "not sent within %" PRId64 " ms: %s", ms,
                     call->to->revives ? "the next worker of the name has not come"
                                       : "a reference that it needs is still a promise");
    else if (call->state == RPC_CALL_STARVED)
        rpc_call_end(call, TRI_ERR_TIMEOUT, "not sent within %" PRId64 " ms: %s", ms,
                     peer == NULL || peer->state == RPC_PEER_UP /* ourselves, or */
                         ? "too many calls are unanswered there (window_calls, window_bytes)"
                         : "its worker is not connected");
    else if (call->ran_ns > 0)
        rpc_call_end(call, TRI_ERR_TIMEOUT,
                     "no reply within %" PRId64 " ms; it has run there for %" PRId64 " ms", ms,
                     call->ran_ns / TRII_NS_PER_MS);
    else
        rpc_call_end(call, TRI_ERR_TIMEOUT, "no reply within %" PRId64 " ms%s", ms,
                     call->ran_ns == 0 ? "; it is queued there" : "");
}

/* --- replies -------------------------------------------------------------- */

#define LENT_ALWAYS 16

static TRII_NOINLINE size_t reply_bytes(const tri_rpc_message *reply)
{
    size_t bytes = reply->bytes;

    for (int i = 0; i < reply->n_parts; i++)
        bytes += reply->parts[i].bytes;
    return bytes;
}

RPC_COLD static TRII_NOINLINE tri_status refuse_reply(const rpc_peer *peer)
{
    return TRII_FAIL(TRI_ERR_STATE,
                     "%d replies of %s with %zu bytes have been taken and not freed "
                     "(window_calls %d, window_bytes %zu there): free some with "
                     "tri_rpc_message_free",
                     peer->n_lent, peer->name, peer->lent_bytes, peer->window_calls,
                     peer->window_bytes);
}

/* Their parts take memory of the peer. A few of any size are always allowed: a program that works
 * with one while the next comes must not depend on the window. */
tri_status rpc_reply_lend(tri_rpc_call *call)
{
    rpc_peer *peer = call->reply.peer;

    if (call->has_parts && peer != NULL) {
        size_t bytes = reply_bytes(&call->reply.message);

        if (peer->n_lent >= peer->window_calls ||
            (peer->n_lent >= LENT_ALWAYS && peer->lent_bytes + bytes > peer->window_bytes))
            return refuse_reply(peer);
        peer->n_lent++;
        peer->lent_bytes += bytes;
    }
    call->lent = true;
    return TRI_OK;
}

void rpc_reply_release(tri_rpc_call *call)
{
    if (call->lent && call->has_parts && call->reply.peer != NULL) {
        call->reply.peer->n_lent--;
        call->reply.peer->lent_bytes -= reply_bytes(&call->reply.message);
    }
    call->lent = false;
    if (call->has_parts && call->reply.peer != NULL)
        rpc_send_kind(call->reply.peer, RPC_FREED, rpc_call_number(call), 0, 0);
    call->has_parts = false;
    rpc_received_fini(&call->reply);
}

void rpc_call_unuse(tri_rpc_call *call)
{
    tri_rpc *rpc = call->rpc;

    if (--call->users > 0)
        return;
    rpc_packet_fini(rpc, &call->packet);
    rpc_reply_release(call);
    trii_free(call->error);
    rpc_ref_unuse(call->to);
    call->to = NULL;
    call->error = NULL;
    call->generation++;
    call->next = rpc->idle_calls;
    rpc->idle_calls = call;
    rpc_drop_use(rpc);
}
