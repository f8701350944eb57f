/*
 * rpc_flight.c - calls on their way: what they wait for before they are sent, credits, replies, and
 * what becomes of them when the callee is lost.
 */
/* build: hot */
#include <string.h>

#include "base/err.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"

static rpc_peer *target_of(const tri_rpc_call *call)
{
    const tri_rpc_ref *to = call->to;

    if (to->peer != NULL)
        return to->peer;
    return rpc_peer_of(call->rpc, call->rpc->name, call->rpc->incarnation);
}

/* Beside so many, which have so many bytes. */
static inline bool has_room(const rpc_peer *peer, int calls, size_t bytes, const tri_rpc_call *call)
{
    return calls < peer->window_calls &&
           (bytes + call->packet.weight <= peer->window_bytes || calls == 0);
}

static bool has_credits(const rpc_peer *peer, const tri_rpc_call *call)
{
    return has_room(peer, peer->used_calls, peer->used_bytes, call);
}

RPC_COLD bool rpc_would_starve(const tri_rpc_call *call)
{
    const tri_rpc_ref *to = call->to;
    const rpc_peer *peer = to->maker == NULL && to->status >= 0 ? target_of(call) : NULL;
    const rpc_line *line;
    int calls;
    size_t bytes;

    if (peer == NULL) /* a promise, or it fails */
        return false;
    line = to->revives ? &to->waiting : &peer->starved;
    calls = line->n;
    bytes = line->bytes;
    if (peer->state == RPC_PEER_UP) {
        if (calls > 0)
            return true;
        calls = peer->used_calls;
        bytes = peer->used_bytes;
    }
    return !has_room(peer, calls, bytes, call);
}

/* Nothing more comes of a call that was sent where its target is made. */
static void unpipe(tri_rpc_ref *ref)
{
    if (--ref->n_piped > 0 || !ref->drains)
        return;
    ref->drains = false;
    rpc_submit_waiting(ref);
}

/* --- out ------------------------------------------------------------------ */

static void end_flight(tri_rpc_call *call)
{
    rpc_peer *peer = call->peer;

    call->in_flight = false;
    call->rpc->in_flight--;
    peer->used_calls--;
    peer->used_bytes -= call->packet.weight;
    call->peer = NULL;
    rpc_changed(call->rpc);
    rpc_peer_unuse(peer);
    if (call->piped) {
        call->piped = false;
        unpipe(call->to);
    }
}

/* Functions have numbers, which the peer learns before the first call. */
RPC_COLD static void define(rpc_peer *peer, int number)
{
    unsigned char frame[sizeof(rpc_header) + RPC_NAME];

    while (peer->n_defined <= number) {
        const char *name = peer->rpc->used[peer->n_defined]->name;
        const rpc_header h = {.magic = RPC_MAGIC,
                              .kind = RPC_DEFINE,
                              .bytes = strlen(name) + 1,
                              .data_bytes = strlen(name) + 1,
                              .function = peer->n_defined};

        memcpy(frame, &h, sizeof(h));
        memcpy(frame + sizeof(h), name, h.bytes);
        rpc_send(peer, frame, sizeof(h) + h.bytes, 0);
        peer->n_defined++;
    }
}

RPC_COLD static void submit_again(tri_rpc_call *call)
{
    call->state = RPC_CALL_NEW;
    call->again = true;
    rpc_call_submit(call);
}

static void transmit(tri_rpc_call *call, rpc_peer *peer)
{
    rpc_header h;
    /* What waited before it goes has less. */
    int64_t left = call->deadline_ns -
                   (call->state == RPC_CALL_NEW && !call->again ? call->began_ns : trii_now_ns());

    memcpy(&h, call->packet.frame, sizeof(h));
    h.call = rpc_call_number(call);
    h.object = call->to->local != NULL ? call->to->local->id : call->to->object;
    call->piped = call->to->maker != NULL;
    call->keeps = call->promise != NULL;
    h.flags &= (uint8_t) ~(RPC_OF_PROMISE | RPC_KEEPS);
    h.flags |= (uint8_t)((call->piped ? RPC_OF_PROMISE : 0) | (call->keeps ? RPC_KEEPS : 0));
    if (call->piped)
        h.object = rpc_call_number(call->to->maker);
    h.ns = call->deadline_ns == TRII_NO_DEADLINE ? -1 : left > 0 ? left : 0;
    memcpy(call->packet.frame, &h, sizeof(h));
    if (peer->n_defined <= h.function)
        define(peer, h.function);
    if (peer->state == RPC_PEER_LOST) { /* over that */
        call->piped = false;
        submit_again(call);
        return;
    }
    call->peer = peer;
    if (call->function != peer->rpc->up->find && peer->incarnation != peer->rpc->incarnation)
        peer->rpc->has_called = true;
    rpc_peer_use(peer);
    peer->used_calls++;
    peer->used_bytes += call->packet.weight;
    call->in_flight = true;
    call->to->n_piped += call->piped ? 1 : 0;
    call->rpc->in_flight++;
    call->users++;
    call->state = RPC_CALL_SENT;
    rpc_record_state(call, RPC_RECORD_SENT);
    if (call->waiter != NULL)
        rpc_kick(call->waiter);
    if (rpc_send_packet(peer, &call->packet, true) != TRI_OK) {
        end_flight(call);
        rpc_call_end(call, TRI_ERR_NO_MEMORY, "%s", tri_last_error());
        rpc_call_unuse(call);
        return;
    }
    if (call->promise != NULL && call->promise->waiting.first != NULL &&
        call->state == RPC_CALL_SENT)
        rpc_submit_waiting(call->promise);
}

RPC_COLD static TRII_NOINLINE void put_in(rpc_line *line, tri_rpc_call **at, tri_rpc_call *call)
{
    call->next = *at;
    call->users++;
    *at = call;
    if (call->next == NULL)
        line->end = &call->next;
    line->n++;
    line->bytes += call->packet.weight;
    rpc_record_state(call, RPC_RECORD_WAITS);
}

/* The first, with its use; NULL: there is none. */
RPC_COLD static tri_rpc_call *take_out(rpc_line *line)
{
    tri_rpc_call *call = line->first;

    if (call == NULL)
        return NULL;
    line->first = call->next;
    if (line->first == NULL)
        line->end = &line->first;
    call->next = NULL;
    line->n--;
    line->bytes -= call->packet.weight;
    return call;
}

RPC_COLD static void defer(tri_rpc_ref *promise, tri_rpc_call *call)
{
    rpc_line *line = &promise->waiting;
    tri_rpc_call **at = line->end;

    if (call->went_back) { /* it was called before those */
        for (at = &line->first; *at != NULL && (*at)->went_back;)
            at = &(*at)->next;
    }
    call->state = RPC_CALL_DEFERRED;
    call->rpc->n_deferred++;
    put_in(line, at, call);
}

/* The worker that makes the call's target, where it may wait for that; NULL: it waits here. Half of
 * the window is left to what the maker may need to end. Inline functions wait here, since the
 * thread that ends the maker there cannot run them. */
static rpc_peer *pipe_of(const tri_rpc_call *call)
{
    const tri_rpc_call *maker = call->to->maker;
    rpc_peer *peer = maker->state == RPC_CALL_SENT ? maker->peer : NULL;

    if (peer == NULL || !maker->keeps || (call->function->flags & TRI_RPC_INLINE) != 0 ||
        call->to->waiting.first != NULL || peer->state != RPC_PEER_UP || peer->leaving ||
        peer->starved.first != NULL || peer->used_calls >= peer->window_calls / 2 ||
        peer->used_bytes + call->packet.weight > peer->window_bytes / 2)
        return NULL;
    return peer;
}

static tri_rpc_ref *unresolved(tri_rpc_call *call)
{
    tri_rpc_ref *to = call->to;

    if (to->revives || to->drains || (to->maker != NULL && pipe_of(call) == NULL))
        return to;
    for (int i = 0; i < call->packet.n_refs; i++) {
        if (call->packet.refs[i]->maker != NULL)
            return call->packet.refs[i];
    }
    return NULL;
}

RPC_COLD void rpc_call_fail(tri_rpc_call *call, tri_rpc_ref *failed)
{
    failed->told = true;
    rpc_call_end(call, failed->status, "a reference that it needs has failed: %s",
                 failed->error != NULL ? failed->error : "no memory");
}

void rpc_call_submit(tri_rpc_call *call)
{
    tri_rpc_ref *to = call->to, *promise = unresolved(call);
    rpc_peer *peer;

    if (promise != NULL) {
        defer(promise, call);
        return;
    }
    for (int i = -1; i < call->packet.n_refs; i++) {
        tri_rpc_ref *ref = i < 0 ? to : call->packet.refs[i];

        if (ref->status < 0) {
            rpc_call_fail(call, ref);
            return;
        }
    }
    peer = to->maker != NULL ? pipe_of(call) : target_of(call);
    if (peer == NULL) {
        rpc_call_end(call, TRI_ERR_NO_MEMORY, "%s", tri_last_error());
    } else if (peer->state == RPC_PEER_LOST) {
        if (to->name != NULL)
            call->rpc->up->revive(to, call);
        else
            rpc_call_end(call, TRI_ERR_PEER_LOST, "before it was sent: %s", peer->why);
    } else if (peer->leaving) {
        rpc_call_end(call, TRI_ERR_STATE, "worker %s is leaving", peer->name);
    } else if (peer->state != RPC_PEER_UP || peer->starved.first != NULL ||
               !has_credits(peer, call)) {
        call->state = RPC_CALL_STARVED;
        put_in(&peer->starved, peer->starved.end, call);
        if (peer->state == RPC_PEER_KNOWN)
            rpc_connect_later(peer);
    } else {
        transmit(call, peer);
    }
}

RPC_COLD void rpc_submit_waiting(tri_rpc_ref *ref)
{
    tri_rpc_call *call = ref->waiting.first, *next;

    ref->waiting = (rpc_line){.end = &ref->waiting.first};
    for (; call != NULL; call = next) {
        next = call->next;
        call->next = NULL;
        if (call->state == RPC_CALL_DEFERRED) {
            call->rpc->n_deferred--;
            submit_again(call);
            if (call->waiter != NULL)
                rpc_kick(call->waiter);
        }
        rpc_call_unuse(call);
    }
}

void rpc_pump(rpc_peer *peer)
{
    while (
        peer->state == RPC_PEER_UP && peer->starved.first != NULL &&
        (peer->starved.first->state == RPC_CALL_OVER || has_credits(peer, peer->starved.first))) {
        tri_rpc_call *call = take_out(&peer->starved);

        if (call->state == RPC_CALL_STARVED)
            transmit(call, peer);
        rpc_call_unuse(call);
    }
}

/* --- back ----------------------------------------------------------------- */

/* It was not run: its target is another worker's. It goes there when all others have come back,
 * which may be moved on meanwhile, and before what was called later. */
RPC_COLD static void on_back(rpc_peer *peer, tri_rpc_call *call)
{
    tri_rpc_ref *to = call->to, *promise = call->promise;

    call->piped = false;
    end_flight(call);
    if (promise != NULL && promise->n_piped > 0) /* they come back, too */
        promise->drains = true;
    if (call->keeps)
        rpc_send_kind(peer, RPC_FREED, rpc_call_number(call), 0, 1);
    call->keeps = false;
    if (call->state == RPC_CALL_SENT) {
        call->went_back = true;
        submit_again(call);
    }
    unpipe(to);
    rpc_call_unuse(call);
    rpc_pump(peer);
}

void rpc_on_reply(rpc_peer *peer, const rpc_header *h, rpc_source *source)
{
    tri_rpc_call *call = rpc_call_at(peer->rpc, h->call);
    rpc_limits limits;
    tri_status status = (tri_status)h->function;
    char text[RPC_ERROR];
    size_t bytes = h->data_bytes < sizeof(text) - 1 ? (size_t)h->data_bytes : sizeof(text) - 1;

    if (call == NULL || !call->in_flight || call->peer != peer) {
        rpc_peer_lose(peer, false, "it answers a call that was not made");
        return;
    }
    if ((h->flags & RPC_OF_PROMISE) != 0) {
        const tri_rpc_call *maker = call->to->maker;

        if (!call->piped ||
            (maker != NULL && maker->peer == peer)) { /* else it is answered first */
            rpc_peer_lose(peer, false, "it sends back what it should run");
            return;
        }
        rpc_peer_use(peer);
        on_back(peer, call);
        rpc_peer_unuse(peer);
        return;
    }
    call->users++;
    rpc_peer_use(peer);
    if (status < 0 && call->state != RPC_CALL_OVER) {
        if (source->is_cut) /* too long: it was skipped */
            bytes = 0;
        else if (source->owned != NULL)
            memcpy(text, source->owned, bytes);
        else
            rpc_source_copy(source, text, bytes);
        text[bytes] = '\0';
        rpc_call_end(call, status, "%s", text);
    } else if (call->state != RPC_CALL_OVER) {
        limits = rpc_limits_of(peer->rpc, call->function, true);
        status = rpc_receive(peer, h, source, &limits, &call->reply);
        if (status == TRI_ERR_FORMAT) {
            rpc_peer_lose_by_error(peer);
            rpc_call_unuse(call);
            rpc_peer_unuse(peer);
            return;
        }
        call->has_parts = status == TRI_OK && call->reply.peer != NULL;
        if (status == TRI_OK)
            rpc_call_end(call, TRI_OK, " ");
        else
            rpc_call_end(call, status, "its reply: %s", tri_last_error());
    } else if (status >= 0) {
        rpc_receive_nothing(peer, h, source);
    }
    if (h->n_parts > 0 && !call->has_parts && peer->in != NULL) /* nobody reads them */
        rpc_send_kind(peer, RPC_FREED, h->call, 0, 0);
    if (call->keeps) /* no call names it from now on */
        rpc_send_kind(peer, RPC_FREED, h->call, 0, 1);
    call->keeps = false;
    if (call->in_flight) { /* else the peer was lost over what was sent since */
        end_flight(call);
        rpc_packet_fini(peer->rpc, &call->packet); /* the reply may be kept for long */
        rpc_call_unuse(call);
    }
    rpc_call_unuse(call);
    rpc_pump(peer);
    rpc_peer_unuse(peer);
}

/* Whether its request was still here when the connection ended. */
static bool was_not_sent(const rpc_peer *peer, uint64_t number)
{
    for (const rpc_unsent *out = peer->out_first; out != NULL; out = out->next) {
        if (out->call == number && out->sent == 0)
            return true;
    }
    return false;
}

RPC_COLD void rpc_calls_lose(rpc_peer *peer)
{
    tri_rpc *rpc = peer->rpc;
    tri_rpc_call *call;

    while ((call = take_out(&peer->starved)) != NULL) {
        if (call->state == RPC_CALL_STARVED)
            submit_again(call); /* finds the next worker, or fails */
        rpc_call_unuse(call);
    }
    for (int i = 0; i < rpc->n_calls; i++) {
        bool unsent, again, waits;

        call = rpc->calls[i];
        if (!call->in_flight || call->peer != peer)
            continue;
        unsent = was_not_sent(peer, rpc_call_number(call));
        waits = call->piped && call->to->maker != NULL; /* which may be sent again, too */
        again = call->state == RPC_CALL_SENT && (call->to->name != NULL || waits) &&
                rpc->state == RPC_STATE_ON &&
                (unsent || (call->function->flags & TRI_RPC_IDEMPOTENT) != 0);
        end_flight(call);
        if (again)
            submit_again(call); /* the same */
        else
            rpc_call_end(call, TRI_ERR_PEER_LOST, "%s: %s",
                         unsent ? "before it was sent" : "perhaps executed", peer->why);
        rpc_call_unuse(call);
    }
}

RPC_COLD int64_t rpc_calls_expire(tri_rpc *rpc)
{
    int64_t now = trii_now_ns(), next = TRII_NO_DEADLINE;

    for (int i = 0; i < rpc->n_calls; i++) {
        tri_rpc_call *call = rpc->calls[i];
        int64_t look;

        if (call->users == 0 || call->state == RPC_CALL_OVER || call->state == RPC_CALL_NEW)
            continue;
        look = rpc_call_look_ns(call);
        if (now >= look && !call->asked) {
            rpc_call_ask(call);
            look = rpc_call_look_ns(call);
        }
        if (now >= look)
            rpc_call_expire(call);
        else
            next = look < next ? look : next;
    }
    return next;
}
