/*
 * rpc_calls.h - what the tests of calls serve and call, over shared memory and over tcp. Tests
 * only.
 */
#ifndef TEST_RPC_CALLS_H
#define TEST_RPC_CALLS_H

#include "testing/rpc_workers.h"

static const tri_rpc_options by_tcp = {.tcp_only = true};
static const tri_rpc_options *const transports[] = {NULL, &by_tcp};

#define FOR_EACH_TRANSPORT(opt)                                                                    \
    for (int at_ = 0; at_ < 2; at_++)                                                              \
        for (const tri_rpc_options *opt = transports[at_], *once_ = &by_tcp; once_ != NULL;        \
             once_ = NULL)

static inline tri_status run_sum(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    const double *x = in->data;
    double sum = 0;

    if (object != NULL)
        return tri_status_fail(TRI_ERR_INTERNAL, "an object");
    for (size_t i = 0; i < in->bytes / sizeof(*x); i++)
        sum += x[i];
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &sum, .bytes = sizeof(sum)});
}

static const tri_rpc_function sum = {.name = "sum", .run = run_sum};

static atomic_int n_started, release_all;

/* Until it is cancelled, or released. */
static inline tri_status run_hang(tri_rpc_request *request, void *object)
{
    (void)object;
    atomic_fetch_add(&n_started, 1);
    while (!tri_rpc_request_is_cancelled(request) && atomic_load(&release_all) == 0)
        trii_thread_yield();
    return TRI_OK;
}

static const tri_rpc_function hang = {.name = "hang", .run = run_hang};

/* Workers that all serve the functions. */
static inline void calls_begin(workers *w, int n, const tri_rpc_options *opt,
                               const tri_rpc_function *const *functions, int n_functions)
{
    atomic_store(&n_started, 0);
    atomic_store(&release_all, 0);
    workers_begin(w, n, opt);
    for (int i = 0; i < n; i++)
        CHECK_OK(tri_rpc_serve(w->rpc[i], functions, n_functions));
}

static inline void check_sum(tri_rpc_ref *to, const tri_rpc_function *function)
{
    const double x[] = {1, 2, 39};
    tri_rpc_message reply;

    CHECK_OK(tri_rpc_sync(to, function, &(tri_rpc_message){.data = x, .bytes = sizeof(x)}, NULL,
                          &reply));
    assert_int_equal(reply.bytes, sizeof(double));
    assert_true(*(const double *)reply.data == 42);
    tri_rpc_message_free(&reply);
    assert_null(reply.owner);
}

#endif
