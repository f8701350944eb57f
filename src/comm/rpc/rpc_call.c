/*
 * rpc_call.c - calls as their caller sees them. How they go out and come back: rpc_flight.c.
 */
/* build: hot */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/option.h"
#include "comm/rpc/rpc_internal.h"

/* --- making one ----------------------------------------------------------- */

static uint64_t new_chain(tri_rpc *rpc)
{
    return rpc->incarnation ^ ++rpc->next_chain << 20;
}

RPC_COLD static tri_status number_function(tri_rpc *rpc, const tri_rpc_function *function,
                                           int *number_out)
{
    tri_status status;
    int i = 0;

    while (i < rpc->n_used && rpc->used[i] != function)
        i++;
    if (i == rpc->n_used) {
        if (i == RPC_MAX_FUNCTIONS)
            return TRII_FAIL(TRI_ERR_STATE, "%d functions have been called: are they static const?",
                             i);
        status =
            trii_array_grow(&rpc->used, &rpc->used_room, i, 16, sizeof(*rpc->used), "functions");
        if (status != TRI_OK)
            return status;
        rpc->used[rpc->n_used++] = function;
    }
    *number_out = i;
    return TRI_OK;
}

static tri_status take_call(tri_rpc *rpc, tri_rpc_call **call_out)
{
    tri_rpc_call *call = rpc->idle_calls;
    tri_status status;

    if (call == NULL) {
        status = trii_array_grow(&rpc->calls, &rpc->calls_room, rpc->n_calls, 64,
                                 sizeof(tri_rpc_call *), "calls");
        if (status != TRI_OK)
            return status;
        call = trii_alloc_aligned(64, sizeof(*call), "call");
        if (call == NULL)
            return TRI_ERR_NO_MEMORY;
        memset(call, 0, sizeof(*call));
        call->rpc = rpc;
        call->generation = 1;
        call->slot = (uint32_t)rpc->n_calls;
        rpc->calls[rpc->n_calls++] = call;
    } else {
        rpc->idle_calls = call->next;
    }
    call->next = NULL;
    call->peer = NULL;
    call->state = RPC_CALL_NEW;
    call->in_flight = call->handle = call->taken = call->read = call->asked = call->has_parts =
        false;
    call->again = call->keeps = call->piped = call->went_back = false;
    call->status = TRI_INPROGRESS;
    call->users = 1;
    call->waiter = NULL;
    call->promise = NULL;
    call->done = NULL;
    call->ran_ns = -1;
    call->record = -1;
    rpc_use(rpc);
    *call_out = call;
    return TRI_OK;
}

static tri_status check_plan(const rpc_plan *plan)
{
    tri_status status = trii_need(plan->to, plan->what, "to");

    if (status == TRI_OK)
        status = trii_need(plan->function, plan->what, "function");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_rpc_function, plan->function);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_rpc_call_options, plan->options);
    if (status == TRI_OK)
        status = rpc_check_name(plan->function->name, plan->what);
    return status == TRI_OK ? rpc_check_process(plan->to->rpc, plan->what) : status;
}

tri_status rpc_call_make(const rpc_plan *plan, tri_rpc_call **call_out)
{
    static const tri_rpc_call_options defaults = {0};
    const tri_rpc_call_options *o = plan->options != NULL ? plan->options : &defaults;
    const tri_rpc_request *outer = rpc_running != NULL ? rpc_running->request : NULL;
    rpc_header h = {.kind = RPC_REQUEST};
    rpc_limits limits;
    tri_rpc *rpc;
    tri_rpc_call *call = NULL;
    tri_status status = check_plan(plan);

    if (status != TRI_OK)
        return status;
    rpc = plan->to->rpc;
    rpc_lock(rpc);
    if (rpc->state == RPC_STATE_OFF)
        status = TRII_FAIL(TRI_ERR_ABORTED, "%s: worker %s has left%s%s", plan->what, rpc->name,
                           rpc->why[0] != '\0' ? ": " : "", rpc->why);
    if (status == TRI_OK)
        status = number_function(rpc, plan->function, &h.function);
    if (status == TRI_OK)
        status = take_call(rpc, &call);
    if (status == TRI_OK) {
        call->to = plan->to;
        call->to->users++;
        call->packet.to = plan->in != NULL && plan->in->n_parts > 0 ? call->to->peer : NULL;
        if (call->packet.to != NULL)
            rpc_peer_use(call->packet.to);
        call->chain = outer != NULL && outer->rpc == rpc ? outer->chain : new_chain(rpc);
    }
    rpc_unlock(rpc);
    if (status != TRI_OK)
        return status;
    call->function = plan->function;
    call->site = trii_site_take();
    call->began_ns = trii_now_ns();
    call->deadline_ns =
        trii_deadline_ms(o->timeout_ms != 0 ? o->timeout_ms : rpc->options.timeout_ms);
    if (outer != NULL && outer->deadline_ns < call->deadline_ns)
        call->deadline_ns = outer->deadline_ns;
    call->done = o->done;
    call->arg = o->arg;
    h.call = rpc_call_number(call);
    h.chain = call->chain;
    limits = rpc_limits_of(rpc, plan->function, false);
    status = rpc_pack(rpc, plan->in, &h, &limits, plan->function->name, &call->packet);
    if (status != TRI_OK || call->packet.to != NULL) {
        rpc_lock(rpc);
        if (call->packet.to != NULL)
            rpc_peer_unuse(call->packet.to);
        if (status != TRI_OK)
            rpc_call_unuse(call);
        rpc_unlock(rpc);
    }
    if (status != TRI_OK)
        return status;
    *call_out = call;
    return TRI_OK;
}

/* --- waiting -------------------------------------------------------------- */

static bool is_not_starved(void *arg)
{
    const tri_rpc_call *call = arg;

    return call->state != RPC_CALL_STARVED &&
           !(call->state == RPC_CALL_DEFERRED && call->to->revives);
}

/* Locked. OK: it is over. */
static tri_status wait_over(tri_rpc_call *call, bool (*is_over)(void *arg), int64_t deadline_ns)
{
    rpc_waiter w = {.chain = call->chain, .site = call->site};
    bool over = false;

    call->waiter = &w;
    while (!over) {
        int64_t look = rpc_call_look_ns(call);

        over = rpc_wait(call->rpc, call->peer != NULL ? call->peer : call->to->peer, is_over, call,
                        &w, look < deadline_ns ? look : deadline_ns);
        if (over || trii_now_ns() < look)
            break;
        if (!call->asked)
            rpc_call_ask(call);
        else
            rpc_call_expire(call);
    }
    call->waiter = NULL;
    return over ? TRI_OK : TRI_ERR_TIMEOUT;
}

RPC_COLD static TRII_NOINLINE tri_status read_failure(const tri_rpc_call *call)
{
    return TRII_FAIL(call->status, "%s", call->error != NULL ? call->error : "no memory");
}

static tri_status read_status(tri_rpc_call *call)
{
    call->read = true;
    return call->status < 0 ? read_failure(call) : call->status;
}

static tri_status move_reply(tri_rpc_call *call, tri_rpc_message *reply_out)
{
    tri_status status = rpc_reply_lend(call);

    if (status != TRI_OK)
        return status;
    *reply_out = call->reply.message;
    reply_out->owner = call;
    call->taken = true;
    call->users++;
    return TRI_OK;
}

tri_status tri_rpc_sync(tri_rpc_ref *to, const tri_rpc_function *function,
                        const tri_rpc_message *in, const tri_rpc_call_options *opt,
                        tri_rpc_message *reply_out)
{
    const rpc_plan plan = {to, function, in, opt, "rpc_sync"};
    tri_rpc *rpc;
    tri_rpc_call *call = NULL;
    tri_status status = rpc_may_block("rpc_sync");

    if (status == TRI_OK)
        status = rpc_call_make(&plan, &call);
    if (status != TRI_OK)
        return status;
    rpc = call->rpc;
    rpc_lock(rpc);
    call->handle = true;
    call->users++;
    rpc->n_open++;
    rpc_record_call(call);
    rpc_call_submit(call);
    (void)wait_over(call, rpc_call_is_over, TRII_NO_DEADLINE);
    status = read_status(call);
    if (status == TRI_OK && reply_out != NULL)
        status = move_reply(call, reply_out);
    rpc_call_unuse(call);
    rpc_unlock(rpc);
    return status;
}

/* On the way, or not: then the call is gone. */
static tri_status start(const rpc_plan *plan, tri_rpc_call **call_out, tri_rpc_ref *promise)
{
    bool may_wait = rpc_may_block(plan->what) == TRI_OK;
    bool no_wait = plan->options != NULL && plan->options->no_wait;
    tri_rpc *rpc;
    tri_rpc_call *call = NULL;
    tri_status status = rpc_call_make(plan, &call);

    if (status != TRI_OK)
        return status;
    rpc = call->rpc;
    rpc_lock(rpc);
    if ((no_wait || !may_wait) && rpc_would_starve(call)) {
        rpc_call_unuse(call);
        rpc_unlock(rpc);
        return no_wait ? TRI_INPROGRESS : rpc_may_block(plan->what);
    }
    if (rpc->n_deferred >= RPC_MAX_DEFERRED) {
        rpc_call_unuse(call);
        rpc_unlock(rpc);
        return TRII_FAIL(TRI_ERR_STATE, "%s: %d calls wait for promises already", plan->what,
                         RPC_MAX_DEFERRED);
    }
    call->handle = call_out != NULL;
    call->users++;
    if (promise != NULL) {
        call->promise = promise;
        promise->maker = call;
        call->users++;
    }
    rpc->n_open++;
    rpc_record_call(call);
    rpc_call_submit(call);
    if (may_wait && !no_wait && !is_not_starved(call))
        (void)wait_over(call, is_not_starved, TRII_NO_DEADLINE);
    if (call->state != RPC_CALL_OVER)
        rpc_arm(rpc, rpc_call_look_ns(call));
    if (call_out != NULL)
        *call_out = call;
    else
        rpc_call_unuse(call);
    rpc_unlock(rpc);
    return TRI_OK;
}

tri_status tri_rpc_async(tri_rpc_ref *to, const tri_rpc_function *function,
                         const tri_rpc_message *in, const tri_rpc_call_options *opt,
                         tri_rpc_call **call_out)
{
    const rpc_plan plan = {to, function, in, opt, "rpc_async"};

    return start(&plan, call_out, NULL);
}

RPC_COLD tri_status tri_rpc_remote(tri_rpc_ref *to, const tri_rpc_function *function,
                                   const tri_rpc_message *in, const tri_rpc_call_options *opt,
                                   tri_rpc_ref **ref_out)
{
    const rpc_plan plan = {to, function, in, opt, "rpc_remote"};
    tri_rpc_ref *ref;
    tri_rpc *rpc;
    tri_status status = trii_need(to, "rpc_remote", "to");

    if (status == TRI_OK)
        status = trii_need(ref_out, "rpc_remote", "ref_out");
    if (status == TRI_OK)
        status = rpc_check_process(to->rpc, "rpc_remote");
    if (status != TRI_OK)
        return status;
    rpc = to->rpc;
    rpc_use(rpc);
    rpc_lock(rpc);
    ref = rpc_ref_make(rpc, NULL, NULL, 0);
    if (ref != NULL) /* for the lines of what is called on it, if it fails */
        memcpy(ref->owner, to->owner, sizeof(ref->owner));
    rpc_unlock(rpc);
    if (ref == NULL) {
        rpc_unuse(rpc);
        return TRI_ERR_NO_MEMORY;
    }
    status = start(&plan, NULL, ref);
    if (status != TRI_OK) {
        rpc_lock(rpc);
        rpc_ref_unuse(ref);
        rpc_unlock(rpc);
    } else {
        *ref_out = ref;
    }
    rpc_unuse(rpc);
    return status;
}

/* --- handles -------------------------------------------------------------- */

tri_status tri_rpc_call_wait(tri_rpc_call *call, int64_t timeout_ms)
{
    tri_rpc *rpc;
    tri_status status = trii_need(call, "rpc_call_wait", "call");

    if (status == TRI_OK)
        status = rpc_may_block("rpc_call_wait");
    if (status == TRI_OK)
        status = rpc_check_process(call->rpc, "rpc_call_wait");
    if (status != TRI_OK)
        return status;
    rpc = call->rpc;
    rpc_lock(rpc);
    if (call->waiter != NULL)
        status = TRII_FAIL(TRI_ERR_STATE, "rpc_call_wait: another thread waits for this call");
    else if (call->state != RPC_CALL_OVER)
        status = wait_over(call, rpc_call_is_over,
                           timeout_ms == 0 ? TRII_NO_DEADLINE : trii_deadline_ms(timeout_ms));
    if (status == TRI_OK)
        status = read_status(call);
    else if (status == TRI_ERR_TIMEOUT)
        status = TRII_FAIL(status, "rpc_call_wait: %s has not ended within %" PRId64 " ms",
                           call->function->name, timeout_ms);
    rpc_unlock(rpc);
    return status;
}

tri_status tri_rpc_call_test(tri_rpc_call *call)
{
    tri_status status = trii_need(call, "rpc_call_test", "call");

    if (status == TRI_OK)
        status = rpc_check_process(call->rpc, "rpc_call_test");
    if (status != TRI_OK)
        return status;
    rpc_lock(call->rpc);
    status = call->state == RPC_CALL_OVER ? read_status(call) : TRI_INPROGRESS;
    rpc_unlock(call->rpc);
    return status;
}

RPC_COLD void tri_rpc_call_cancel(tri_rpc_call *call)
{
    if (call == NULL || rpc_is_parents(call->rpc))
        return;
    rpc_lock(call->rpc);
    if (call->in_flight && call->state != RPC_CALL_OVER)
        rpc_send_kind(call->peer, RPC_CANCEL, rpc_call_number(call), 0, 0);
    rpc_call_end(call, TRI_ERR_ABORTED, "it was cancelled");
    rpc_unlock(call->rpc);
}

RPC_COLD const char *tri_rpc_call_error(const tri_rpc_call *call)
{
    const char *text = "";

    if (call == NULL || rpc_is_parents(call->rpc))
        return text;
    rpc_lock(call->rpc);
    if (call->state == RPC_CALL_OVER && call->status < 0)
        text = call->error != NULL ? call->error : "no memory";
    rpc_unlock(call->rpc);
    return text;
}

RPC_COLD tri_status tri_rpc_call_take_reply(tri_rpc_call *call, tri_rpc_message *reply_out)
{
    tri_status status = trii_need(call, "rpc_call_take_reply", "call");

    if (status == TRI_OK)
        status = trii_need(reply_out, "rpc_call_take_reply", "reply_out");
    if (status == TRI_OK)
        status = rpc_check_process(call->rpc, "rpc_call_take_reply");
    if (status != TRI_OK)
        return status;
    rpc_lock(call->rpc);
    if (call->state != RPC_CALL_OVER || call->status != TRI_OK || call->taken)
        status = TRII_FAIL(TRI_ERR_STATE, "rpc_call_take_reply: %s %s", call->function->name,
                           call->taken                    ? "has given its reply"
                           : call->state == RPC_CALL_OVER ? "has failed"
                                                          : "has not ended");
    else
        status = move_reply(call, reply_out);
    rpc_unlock(call->rpc);
    return status;
}

void tri_rpc_call_destroy(tri_rpc_call *call)
{
    tri_rpc *rpc;

    if (call == NULL || rpc_is_parents(call->rpc))
        return;
    rpc = call->rpc;
    rpc_use(rpc);
    rpc_lock(rpc);
    call->handle = false;
    if (call->state == RPC_CALL_OVER && call->status < 0 && !call->read && call->done == NULL)
        rpc_call_log(call);
    rpc_call_unuse(call);
    rpc_unlock(rpc);
    rpc_unuse(rpc);
}

void tri_rpc_message_free(tri_rpc_message *message)
{
    tri_rpc_call *call;
    tri_rpc *rpc;

    if (message == NULL || message->owner == NULL)
        return;
    call = message->owner;
    rpc = call->rpc;
    if (rpc_is_parents(rpc))
        return;
    rpc_use(rpc);
    rpc_lock(rpc);
    rpc_reply_release(call);
    rpc_call_unuse(call);
    rpc_unlock(rpc);
    rpc_unuse(rpc);
    *message = (tri_rpc_message){0};
}
