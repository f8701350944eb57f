/*
 * rpc_request.c - requests at the callee: taken in, handed to a thread, answered.
 */
/* build: hot */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/rpc/rpc_internal.h"

#define IDLE_REQUESTS 256
#define UNKNOWN_BYTES ((size_t)16 << 10) /* of a frame whose function is not known */

/* --- life ----------------------------------------------------------------- */

static tri_rpc_request *take_request(rpc_peer *peer, const rpc_header *h)
{
    tri_rpc *rpc = peer->rpc;
    tri_rpc_request *r = rpc->idle_requests;

    if (r != NULL) {
        rpc->idle_requests = r->next;
        rpc->n_idle_requests--;
    } else {
        r = trii_alloc_aligned(64, sizeof(*r), "request");
        if (r == NULL)
            return NULL;
        memset(r, 0, sizeof(*r));
        r->rpc = rpc;
    }
    r->next = NULL;
    r->peer = r->packet.to = peer;
    rpc_peer_use(peer);
    r->function = NULL;
    r->object = NULL;
    r->call = h->call;
    r->chain = h->chain;
    r->came_ns = trii_now_ns();
    r->deadline_ns =
        h->ns < 0 || h->ns > TRII_NO_DEADLINE / 2 ? TRII_NO_DEADLINE : r->came_ns + h->ns;
    r->started_ns = 0;
    r->running = r->answered = r->postponed = r->in_object = r->queued = false;
    r->keeps = (h->flags & RPC_KEEPS) != 0;
    r->outcome = RPC_OUTCOME_FAILED;
    r->made = NULL;
    r->promised = r->waits_for = NULL;
    atomic_store(&r->cancelled, false);
    r->of_peer = peer->requests;
    if (r->of_peer != NULL)
        r->of_peer->of_peer_at = &r->of_peer;
    r->of_peer_at = &peer->requests;
    peer->requests = r;
    rpc->n_requests++;
    return r;
}

static void free_request(tri_rpc_request *r)
{
    tri_rpc *rpc = r->rpc;

    rpc_received_fini(&r->in);
    if (r->object != NULL)
        rpc_object_unuse(rpc, r->object);
    rpc_peer_unuse(r->peer);
    r->peer = NULL;
    if (rpc->n_idle_requests >= IDLE_REQUESTS) {
        trii_free(r);
        return;
    }
    r->next = rpc->idle_requests;
    rpc->idle_requests = r;
    rpc->n_idle_requests++;
}

static rpc_waiter *waiter_of(const tri_rpc *rpc, uint64_t chain)
{
    rpc_waiter *w = rpc->waiters;

    while (w != NULL && (w->chain != chain || w->busy))
        w = w->next;
    return w;
}

/* By the thread that waits in its chain, or another one. */
static void hand_over(tri_rpc_request *r)
{
    rpc_waiter *w = waiter_of(r->rpc, r->chain);
    tri_rpc_request **at;

    if (w == NULL) {
        rpc_execute(r);
        return;
    }
    for (at = &w->inbox; *at != NULL; at = &(*at)->next)
        ;
    r->next = NULL;
    *at = r;
    rpc_kick(w);
}

/* What the running request of a serial object leads to runs while that waits for it: two calls that
 * one handler makes without waiting in between are one after the other, like all others. */
static bool may_enter(const rpc_object *object, const tri_rpc_request *r)
{
    return object->depth == 0 || (object->chain == r->chain && object->n_waiting == object->depth);
}

static void enter_object(tri_rpc_request *r)
{
    r->object->depth++;
    r->object->chain = r->chain;
    r->in_object = true;
}

/* The first of its queue that may; never by this thread, which has its own to do. */
static void let_in(rpc_object *object)
{
    tri_rpc_request **at = &object->queue, *r;

    while (*at != NULL && !may_enter(object, *at))
        at = &(*at)->next;
    r = *at;
    if (r == NULL)
        return;
    *at = r->next;
    if (*at == NULL)
        object->queue_end = at;
    enter_object(r);
    hand_over(r);
}

static void leave_object(tri_rpc_request *r)
{
    r->in_object = false;
    r->object->depth--;
    let_in(r->object);
}

void rpc_request_waits(tri_rpc_request *r, bool waits)
{
    if (!r->in_object)
        return;
    r->object->n_waiting += waits ? 1 : -1;
    if (waits)
        let_in(r->object);
}

RPC_COLD void rpc_request_hand_back(tri_rpc_request *r)
{
    rpc_object *object = r->object;

    if (!r->in_object) {
        rpc_execute(r);
        return;
    }
    r->in_object = false;
    object->depth--;
    r->next = object->queue;
    if (object->queue == NULL)
        object->queue_end = &r->next;
    object->queue = r;
    let_in(object);
}

void rpc_request_retire(tri_rpc_request *r)
{
    if (r->in_object && !r->running)
        leave_object(r);
    *r->of_peer_at = r->of_peer;
    if (r->of_peer != NULL)
        r->of_peer->of_peer_at = r->of_peer_at;
    r->answered = true;
    r->peer->in_calls--;
    r->peer->in_bytes -= r->weight;
    if (--r->rpc->n_requests == 0 && r->rpc->has_requests) {
        r->rpc->has_requests = false;
        rpc_drop_use(r->rpc); /* the thread that answers has a use of its own */
    }
    if (r->rpc->n_requests + r->rpc->n_beyond == 0 && r->rpc->joiner_yields)
        rpc_rouse(r->rpc->joiner); /* it left us its core, and may look again */
    rpc_changed(r->rpc);
    if (r->keeps)
        r->rpc->up->promise_end(r);
    if (!r->running)
        free_request(r);
}

void rpc_request_status(tri_rpc_request *r, tri_status status, const char *line)
{
    unsigned char frame[sizeof(rpc_header) + RPC_ERROR];
    size_t bytes = strlen(line);
    rpc_header h = {
        .magic = RPC_MAGIC, .kind = RPC_REPLY, .call = r->call, .function = (int)status};

    h.bytes = h.data_bytes = bytes < RPC_ERROR ? bytes : RPC_ERROR;
    memcpy(frame, &h, sizeof(h));
    memcpy(frame + sizeof(h), line, h.bytes);
    rpc_send(r->peer, frame, sizeof(h) + h.bytes, 0);
}

RPC_COLD void rpc_request_fail(tri_rpc_request *r, tri_status status, const char *format, ...)
{
    char line[RPC_ERROR];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    rpc_request_fail_line(r, status, line);
}

/* The same with a line as it is. */
RPC_COLD void rpc_request_fail_line(tri_rpc_request *r, tri_status status, const char *line)
{
    rpc_request_status(r, status, line);
    rpc_request_retire(r);
}

/* What the function of a frame allows; false: it is skipped, and its receiver says why. */
RPC_COLD bool rpc_is_wanted(rpc_peer *peer, const rpc_header *h)
{
    const tri_rpc_call *call;
    rpc_limits limits;

    if (h->kind == RPC_REQUEST) {
        const tri_rpc_function *function =
            h->function >= 0 && h->function < peer->n_known ? peer->known[h->function] : NULL;

        if (function == NULL)
            return h->bytes <= UNKNOWN_BYTES;
        limits = rpc_limits_of(peer->rpc, function, false);
    } else {
        call = rpc_call_at(peer->rpc, h->call);
        if (call == NULL || call->peer != peer)
            return h->bytes <= UNKNOWN_BYTES;
        limits = rpc_limits_of(peer->rpc, call->function, true);
    }
    return rpc_frame_check(h, &limits) == TRI_OK;
}

/* --- in ------------------------------------------------------------------- */

/* Two files of a program may have a kind each, of one name. */
tri_status rpc_check_kind(const tri_rpc_request *r)
{
    const tri_rpc_object *of, *on = r->object != NULL ? r->object->type : NULL;

    if (r->function == NULL)
        return rpc_not_served(r);
    of = r->function->of;
    if (TRII_LIKELY(of == NULL || of == on) ||
        (on != NULL && of->name != NULL && on->name != NULL && strcmp(of->name, on->name) == 0))
        return TRI_OK;
    return rpc_not_of_kind(of, on);
}

static tri_status take_in(tri_rpc_request *r, const rpc_header *h, rpc_source *source)
{
    rpc_peer *peer = r->peer;
    tri_rpc *rpc = peer->rpc;
    rpc_limits limits;
    tri_status status;

    r->function = peer->known[h->function];
    r->function_number = h->function;
    if (r->function != rpc->up->find && peer->incarnation != rpc->incarnation)
        rpc->has_called = true;
    if (r->function == NULL) {
        rpc_receive_nothing(peer, h, source);
        if ((h->flags & RPC_OF_PROMISE) != 0)
            return TRI_OK; /* perhaps it goes on to who does serve it */
        return rpc_not_served(r);
    }
    limits = rpc_limits_of(rpc, r->function, false);
    status = rpc_receive(peer, h, source, &limits, &r->in);
    if (status != TRI_OK)
        return status;
    r->weight = sizeof(*h) + r->in.message.bytes;
    for (int i = 0; i < r->in.message.n_parts; i++)
        r->weight += r->in.message.parts[i].bytes;
    peer->in_bytes += r->weight;
    if (peer->in_calls > 1 && peer->in_bytes > rpc->options.window_bytes)
        return TRII_FAIL(TRI_ERR_FORMAT, "it sends more than the window of %zu bytes",
                         rpc->options.window_bytes);
    if ((h->flags & RPC_OF_PROMISE) != 0)
        return TRI_OK;
    if (h->object == 0)
        return rpc_check_kind(r);
    r->object = rpc_object_at(rpc, h->object);
    if (r->object == NULL)
        return TRII_FAIL(TRI_ERR_STATE, "the object has been released on worker %s", rpc->name);
    r->object->users++;
    return rpc_check_kind(r);
}

void rpc_on_request(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                    tri_rpc_request **run_out)
{
    tri_rpc *rpc = peer->rpc;
    tri_rpc_request *r;
    tri_status status;

    if (h->function < 0 || h->function >= peer->n_known ||
        peer->in_calls + peer->n_unread >= rpc->options.window_calls) {
        rpc_peer_lose(peer, false,
                      h->function < 0 || h->function >= peer->n_known
                          ? "it calls a function that it has not defined"
                          : "it has more calls unanswered, or answers unread, than its window");
        return;
    }
    if ((h->flags & RPC_KEEPS) != 0 && peer->n_results >= rpc->options.window_calls) {
        rpc_peer_lose(peer, false, "it has more results kept than its window of calls");
        return;
    }
    r = take_request(peer, h);
    if (r == NULL) {
        rpc_peer_lose(peer, false, "no memory for its requests");
        return;
    }
    r->weight = 0;
    r->in.message = (tri_rpc_message){0};
    peer->in_calls++;
    if (rpc->state != RPC_STATE_ON && !peer->mirror) {
        rpc_receive_nothing(peer, h, source);
        rpc_request_fail(r, TRI_ERR_STATE, "worker %s is leaving", rpc->name);
        return;
    }
    status = take_in(r, h, source);
    if (status == TRI_ERR_FORMAT) {
        rpc_peer_lose_by_error(peer);
        rpc_request_retire(r);
        return;
    }
    if (status != TRI_OK)
        rpc_request_fail(r, status, "%s", tri_last_error());
    else if ((h->flags & RPC_OF_PROMISE) != 0)
        rpc->up->promise_wait(r, h->object);
    else
        *run_out = rpc_dispatch(r);
}

tri_rpc_request *rpc_dispatch(tri_rpc_request *r)
{
    rpc_object *object = r->object;
    bool is_alone = true; /* no other of its chain is in the object */

    if (object != NULL && object->type->serial) {
        if (!may_enter(object, r)) {
            r->next = NULL;
            *object->queue_end = r;
            object->queue_end = &r->next;
            return NULL;
        }
        enter_object(r);
        is_alone = object->depth == 1;
    }
    if ((r->function->flags & TRI_RPC_INLINE) != 0 && is_alone)
        return r;
    hand_over(r);
    return NULL;
}

/* Takes it out of the executor's queue, and out of its object. False: it was not there. */
static bool take_back(tri_rpc_request *r)
{
    if (!r->queued || !rpc_executor_remove(r))
        return false;
    r->running = true; /* so that it stays while its object is left */
    if (r->in_object)
        leave_object(r);
    r->running = false;
    return true;
}

/* Not OK: it is not worth running any more. */
static tri_status is_void(const tri_rpc_request *r, bool inlined, const char **why_out)
{
    if (inlined) /* it has just come */
        return TRI_OK;
    if (r->deadline_ns != TRII_NO_DEADLINE && trii_now_ns() >= r->deadline_ns) {
        *why_out = "its deadline passed before it was started";
        return TRI_ERR_TIMEOUT;
    }
    *why_out = atomic_load(&r->cancelled) ? "it was cancelled before it was started"
                                          : "the worker has left";
    return atomic_load(&r->cancelled) || r->rpc->state == RPC_STATE_OFF ? TRI_ERR_ABORTED : TRI_OK;
}

void rpc_run_request(tri_rpc_request *r, bool inlined, rpc_place *place)
{
    tri_rpc *rpc = r->rpc;
    rpc_run run = {rpc_running, rpc, r, inlined, place};
    const char *why = NULL;
    tri_status status = is_void(r, inlined, &why);
    unsigned lines;

    r->running = true;
    if (status == TRI_OK) {
        r->started_ns = inlined ? r->came_ns : trii_now_ns();
        lines = trii_err_lines();
        rpc_unlock(rpc);
        rpc_running = &run;
        status = r->function->run(r, r->object != NULL ? r->object->object : NULL);
        rpc_running = run.outer;
        rpc_lock(rpc);
        if (status < 0 && (r->answered || r->postponed))
            TRII_LOG(TRII_LOG_WARN, "rpc", "%s has replied to %s, and then failed: %s: %s",
                     r->function->name, r->peer->name, tri_status_name(status),
                     trii_err_lines() != lines ? tri_last_error() : "the handler says no more");
        if (r->postponed)
            status = TRI_INPROGRESS; /* it has its reply */
        if (!r->answered && status < 0)
            rpc_request_status(r, status,
                               trii_err_lines() != lines
                                   ? tri_last_error()
                                   : "its handler failed without an error line (tri_status_fail)");
        else if (!r->answered && status == TRI_OK)
            rpc_request_status(r, TRI_OK, "");
        else if (!r->answered && status != TRI_INPROGRESS)
            rpc_request_status(r, TRI_ERR_INTERNAL,
                               "the handler returned neither OK, INPROGRESS nor a failure");
    } else {
        rpc_request_status(r, status, why);
    }
    r->running = false;
    if (r->in_object)
        leave_object(r);
    if (r->answered)
        free_request(r);
    else if (status != TRI_INPROGRESS)
        rpc_request_retire(r);
}

RPC_COLD void rpc_on_cancel(rpc_peer *peer, uint64_t call)
{
    tri_rpc_request *r = peer->requests, **at;

    while (r != NULL && r->call != call)
        r = r->of_peer;
    if (r == NULL)
        return;
    atomic_store(&r->cancelled, true);
    if (r->rpc->up->forget_find(r) || r->rpc->up->promise_forget(r)) {
        rpc_request_fail(r, TRI_ERR_ABORTED, "nobody waits for it any more");
        return;
    }
    if (r->running || r->started_ns != 0)
        return;
    if (take_back(r)) {
        rpc_request_fail(r, TRI_ERR_ABORTED, "it was cancelled before it was started");
        return;
    }
    if (r->object == NULL || r->in_object)
        return; /* in the inbox of a waiter, which drops it */
    for (at = &r->object->queue; *at != NULL && *at != r; at = &(*at)->next)
        ;
    if (*at == NULL)
        return;
    *at = r->next;
    if (*at == NULL)
        r->object->queue_end = at;
    rpc_request_fail(r, TRI_ERR_ABORTED, "it was cancelled before it was started");
}

RPC_COLD void rpc_on_where(rpc_peer *peer, const rpc_header *h)
{
    tri_rpc_request *r = peer->requests;
    tri_rpc_call *call;
    rpc_header answer = *h;
    char line[RPC_TEXT];

    if (h->chain == 1) {
        call = rpc_call_at(peer->rpc, h->call);
        if (call != NULL && call->in_flight && call->peer == peer)
            call->ran_ns = h->ns;
        return;
    }
    while (r != NULL && r->call != h->call)
        r = r->of_peer;
    if (r == NULL)
        return;
    if (r->queued && rpc_executor_is_stuck(peer->rpc, line, sizeof(line)) && take_back(r)) {
        rpc_request_fail(r, TRI_ERR_TIMEOUT, "it is queued there, and %s", line);
        return;
    }
    answer.bytes = answer.data_bytes = 0;
    answer.n_refs = 0;
    answer.chain = 1;
    answer.ns = r->started_ns != 0 ? trii_now_ns() - r->started_ns : 0;
    rpc_send(peer, &answer, sizeof(answer), 0);
}

RPC_COLD void rpc_requests_lose(rpc_peer *peer)
{
    tri_rpc_request *r = peer->requests, *next;

    peer->rpc->up->promises_lose(peer);
    for (; r != NULL; r = next) { /* what waits for it is younger, and has been passed */
        next = r->of_peer;
        atomic_store(&r->cancelled, true);
        if (take_back(r))
            rpc_request_retire(r);
    }
    for (tri_rpc_request **at = &peer->rpc->finds; *at != NULL;) {
        r = *at;
        if (r->peer == peer) {
            *at = r->next;
            rpc_request_retire(r);
        } else {
            at = &r->next;
        }
    }
}

/* --- what a handler asks -------------------------------------------------- */

const tri_rpc_message *tri_rpc_request_message(tri_rpc_request *r)
{
    static const tri_rpc_message empty = {0};

    return r != NULL ? &r->in.message : &empty;
}

const char *tri_rpc_request_caller(const tri_rpc_request *r)
{
    return r != NULL ? r->peer->name : "";
}

RPC_COLD int64_t tri_rpc_request_left_ms(const tri_rpc_request *r)
{
    int64_t left;

    if (r == NULL || r->deadline_ns == TRII_NO_DEADLINE)
        return TRI_FOREVER;
    left = r->deadline_ns - trii_now_ns();
    return left > 0 ? (left + TRII_NS_PER_MS - 1) / TRII_NS_PER_MS : 0;
}

bool tri_rpc_request_is_cancelled(const tri_rpc_request *r)
{
    return r != NULL && atomic_load(&((tri_rpc_request *)(uintptr_t)r)->cancelled);
}
