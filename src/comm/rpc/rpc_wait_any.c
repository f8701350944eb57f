/*
 * rpc_wait_any.c - a thread that waits for whichever of several calls ends first.
 */
#include "base/err.h"
#include "comm/rpc/rpc_internal.h"

typedef struct any {
    tri_rpc_call *const *calls;
    int n;
} any;

static bool is_any_over(void *arg)
{
    const any *a = arg;

    for (int i = 0; i < a->n; i++) {
        if (a->calls[i] != NULL && a->calls[i]->state == RPC_CALL_OVER)
            return true;
    }
    return false;
}

/* Locked. */
static tri_status wait_any(const any *a, rpc_peer *peer, const tri_rpc_call *first,
                           int64_t deadline_ns)
{
    rpc_waiter w = {.chain = first->chain, .site = first->site};
    tri_rpc *rpc = first->rpc;
    any copy = *a;
    bool over = false;

    for (int i = 0; i < a->n; i++) {
        if (a->calls[i] != NULL)
            a->calls[i]->waiter = &w;
    }
    while (!over) {
        int64_t until = deadline_ns, now;

        for (int i = 0; i < a->n; i++) {
            int64_t look = a->calls[i] != NULL ? rpc_call_look_ns(a->calls[i]) : until;

            until = look < until ? look : until;
        }
        over = rpc_wait(rpc, peer, is_any_over, &copy, &w, until);
        now = trii_now_ns();
        if (over || now >= deadline_ns)
            break;
        for (int i = 0; i < a->n; i++) {
            tri_rpc_call *call = a->calls[i];

            if (call == NULL || call->state == RPC_CALL_OVER || now < rpc_call_look_ns(call))
                continue;
            if (call->asked)
                rpc_call_expire(call);
            else
                rpc_call_ask(call);
        }
    }
    for (int i = 0; i < a->n; i++) {
        if (a->calls[i] != NULL)
            a->calls[i]->waiter = NULL;
    }
    return over ? TRI_OK
                : TRII_FAIL(TRI_ERR_TIMEOUT, "rpc_wait_any: none of %d calls has ended", a->n);
}

tri_status tri_rpc_wait_any(tri_rpc_call *const *calls, int n, int64_t timeout_ms, int *which_out)
{
    const any a = {calls, n};
    tri_rpc_call *first = NULL;
    rpc_peer *peer = NULL;
    tri_rpc *rpc;
    tri_status status = trii_need(calls, "rpc_wait_any", "calls");

    if (status == TRI_OK)
        status = trii_need(which_out, "rpc_wait_any", "which_out");
    if (status == TRI_OK)
        status = rpc_may_block("rpc_wait_any");
    for (int i = 0; i < n && status == TRI_OK; i++)
        first = first != NULL ? first : calls[i];
    if (status == TRI_OK && first == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "rpc_wait_any: nothing to wait for (%d calls)", n);
    if (status == TRI_OK)
        status = rpc_check_process(first->rpc, "rpc_wait_any");
    if (status != TRI_OK)
        return status;
    rpc = first->rpc;
    rpc_lock(rpc);
    peer = first->peer;
    for (int i = 0; i < n && status == TRI_OK; i++) {
        if (calls[i] != NULL && (calls[i]->rpc != rpc || calls[i]->waiter != NULL))
            status = TRII_FAIL(TRI_ERR_STATE, "rpc_wait_any: call %d is %s", i,
                               calls[i]->rpc != rpc ? "another worker's" : "waited for already");
        if (calls[i] != NULL && calls[i]->peer != peer)
            peer = NULL;
    }
    if (status == TRI_OK)
        status = wait_any(&a, peer, first,
                          timeout_ms == 0 ? TRII_NO_DEADLINE : trii_deadline_ms(timeout_ms));
    for (int i = 0; i < n && status == TRI_OK; i++) {
        if (calls[i] != NULL && calls[i]->state == RPC_CALL_OVER) {
            *which_out = i;
            break;
        }
    }
    rpc_unlock(rpc);
    return status;
}
