/*
 * rpc_promises.h - makers whose promises come when a test says so, and numbered calls on what they
 * make. Tests only.
 */
#ifndef TEST_RPC_PROMISES_H
#define TEST_RPC_PROMISES_H

#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

enum { PROMISE_CALLS = 40 };

static const tri_rpc_options by_tcp = {.tcp_only = true};

/* Requests that were kept, in order: two makers may run at the same time. */
static tri_rpc_request *held[4];
static atomic_int n_held;
static trii_mutex holding = TRII_MUTEX_INITIALIZER;

static inline tri_status run_make(tri_rpc_request *request, void *object)
{
    (void)object;
    trii_mutex_lock(&holding);
    held[atomic_load(&n_held)] = request;
    atomic_fetch_add(&n_held, 1);
    trii_mutex_unlock(&holding);
    return TRI_INPROGRESS;
}

/* n workers, which serve the functions. */
static inline void promises_begin(workers *w, int n, const tri_rpc_options *opt,
                                  const tri_rpc_function *const *functions, int n_functions)
{
    atomic_store(&n_held, 0);
    workers_begin(w, n, opt);
    for (int i = 0; i < n; i++)
        CHECK_OK(tri_rpc_serve(w->rpc[i], functions, n_functions));
}

static inline void wait_for_requests(tri_rpc *rpc, int n)
{
    int64_t deadline = trii_deadline_ms(10000);

    for (int there = -1; there != n; trii_thread_yield()) {
        if (trii_now_ns() > deadline)
            fail_msg("%s has %d requests, not %d", rpc->name, there, n);
        rpc_lock(rpc);
        there = rpc->n_requests;
        rpc_unlock(rpc);
    }
}

static inline void answer(int i, tri_rpc_ref *ref)
{
    CHECK_OK(tri_rpc_reply(held[i], &(tri_rpc_message){.refs = &ref, .n_refs = 1}));
}

/* On any thread. */
static inline tri_status start_note(tri_rpc_ref *to, const tri_rpc_function *function, int number,
                                    tri_rpc_call **call_out)
{
    const tri_rpc_message in = {.data = &number, .bytes = sizeof(number)};

    return tri_rpc_async(to, function, &in, NULL, call_out);
}

static inline tri_rpc_call *call_note(tri_rpc_ref *to, const tri_rpc_function *function, int number)
{
    tri_rpc_call *call = NULL;

    CHECK_OK(start_note(to, function, number, &call));
    return call;
}

static inline void end_call(tri_rpc_call *call)
{
    CHECK_OK(tri_rpc_call_wait(call, 0));
    tri_rpc_call_destroy(call);
}

#endif
