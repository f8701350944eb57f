/*
 * rpc_promise.c - calls whose target is what another call of the same caller will return. They wait
 * at the callee, and start when that has ended, which saves them the way back and forth.
 *
 * The result of a request that says so (RPC_KEEPS) is remembered until its caller has the reply and
 * says FREED: calls that name it may be on their way till then. If the result is another worker's,
 * nothing is forwarded, or two ways would lead to one object, and calls overtake each other there:
 * they go back (a reply with RPC_OF_PROMISE), and their caller sends them on.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "comm/rpc/rpc_internal.h"

static rpc_result **result_of(rpc_peer *peer, uint64_t call)
{
    rpc_result **at = &peer->results;

    while (*at != NULL && (*at)->call != call)
        at = &(*at)->next;
    return at;
}

static void drop_result(rpc_peer *peer, rpc_result **at)
{
    rpc_result *result = *at;

    *at = result->next;
    peer->n_results--;
    if (result->object != NULL)
        rpc_object_unuse(peer->rpc, result->object);
    trii_free(result);
}

static void go_back(tri_rpc_request *r)
{
    const rpc_header h = {
        .magic = RPC_MAGIC, .kind = RPC_REPLY, .flags = RPC_OF_PROMISE, .call = r->call};

    rpc_send(r->peer, &h, sizeof(h), 0);
    r->outcome = RPC_OUTCOME_ELSEWHERE; /* nor is there a target for what waits for it */
    rpc_request_retire(r);
}

static void set_target(tri_rpc_request *r, rpc_outcome outcome, rpc_object *object)
{
    r->target = outcome;
    r->object = object;
    if (object != NULL)
        object->users++;
}

/* Its target is known. */
static void start(tri_rpc_request *r)
{
    tri_rpc_request *now;
    tri_status status;

    switch (r->target) {
    case RPC_OUTCOME_HERE:
        status = rpc_check_kind(r);
        if (status != TRI_OK) {
            rpc_request_fail(r, status, "%s", tri_last_error());
            break;
        }
        now = rpc_dispatch(r);
        if (now != NULL)
            rpc_execute(now); /* this thread may hold locks of the program's */
        break;
    case RPC_OUTCOME_ELSEWHERE:
        go_back(r);
        break;
    default:
        rpc_request_fail(r, TRI_ERR_STATE, "the call that was to make its target has failed");
    }
}

void rpc_promise_wait(tri_rpc_request *r, uint64_t call)
{
    rpc_peer *peer = r->peer;
    tri_rpc_request *maker = peer->requests, **at;
    const rpc_result *result;

    while (maker != NULL && (maker->call != call || !maker->keeps || maker == r))
        maker = maker->of_peer;
    if (maker == NULL) {
        result = *result_of(peer, call);
        if (result != NULL) {
            set_target(r, result->outcome, result->object);
            start(r);
        } else {
            rpc_request_fail(r, TRI_ERR_STATE, "it calls what no call of its worker makes");
        }
        return;
    }
    for (at = &maker->promised; *at != NULL; at = &(*at)->next)
        ;
    *at = r;
    r->next = NULL;
    r->waits_for = maker;
}

bool rpc_promise_forget(tri_rpc_request *r)
{
    tri_rpc_request **at;

    if (r->waits_for == NULL)
        return false;
    for (at = &r->waits_for->promised; *at != r; at = &(*at)->next)
        ;
    *at = r->next;
    r->next = NULL;
    r->waits_for = NULL;
    return true;
}

/* One that fails ends what waits for it: a chain of any length takes no more of the stack. */
static void start_all(tri_rpc *rpc)
{
    if (rpc->starts)
        return;
    rpc->starts = true;
    while (rpc->startable != NULL) {
        tri_rpc_request *r = rpc->startable;

        rpc->startable = r->next;
        if (rpc->startable == NULL)
            rpc->startable_end = &rpc->startable;
        r->next = NULL;
        start(r);
    }
    rpc->starts = false;
}

/* The request has been answered, and its reply is on its way. */
void rpc_promise_end(tri_rpc_request *r)
{
    rpc_peer *peer = r->peer;
    rpc_object *object = r->made;
    rpc_result *result = NULL;

    r->made = NULL;
    rpc_peer_use(peer);
    while (r->promised != NULL) {
        tri_rpc_request *next = r->promised;

        r->promised = next->next;
        next->next = NULL;
        next->waits_for = NULL;
        set_target(next, r->outcome, object);
        *peer->rpc->startable_end = next;
        peer->rpc->startable_end = &next->next;
    }
    start_all(peer->rpc);
    if (peer->state == RPC_PEER_UP && r->keeps) {
        result = trii_alloc(1, sizeof(*result), "reply");
        if (result == NULL)
            rpc_peer_lose(peer, false, "no memory for its promises");
    }
    if (result != NULL) {
        *result = (rpc_result){peer->results, r->call, object, r->outcome};
        peer->results = result;
        peer->n_results++;
    } else if (object != NULL) {
        rpc_object_unuse(peer->rpc, object);
    }
    rpc_peer_unuse(peer);
}

void rpc_promise_freed(rpc_peer *peer, uint64_t call)
{
    rpc_result **at = result_of(peer, call);

    if (*at != NULL)
        drop_result(peer, at);
}

void rpc_promises_lose(rpc_peer *peer)
{
    while (peer->results != NULL)
        drop_result(peer, &peer->results);
}
