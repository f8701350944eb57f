/*
 * rpc_deadline_test.c - calls that end at their deadline, be it seen by the caller or by the callee
 * first, wherever the request is by then.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_calls.h"
#include "testing/rpc_workers.h"

static const tri_rpc_function *const all[] = {&sum, &hang};

static void begin(workers *w, int n, const tri_rpc_options *opt)
{
    calls_begin(w, n, opt, all, (int)TRII_COUNT_OF(all));
}

static void a_deadline_ends_the_call_and_tells_where_it_was(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        const tri_rpc_options one = {.threads = 1, .tcp_only = opt == &by_tcp};
        workers w;
        tri_rpc_ref *to;
        tri_rpc_call *call;
        tri_status status;
        int64_t ms;
        int started;

        begin(&w, 2, &one);
        to = worker_find(&w, 0, "w1");
        /* the callee has 20 ms to say so, and an eighth of a longer deadline */
        CHECK_FAILS_WITHIN(
            ms, tri_rpc_sync(to, &hang, NULL, &(tri_rpc_call_options){.timeout_ms = ms}, NULL),
            TRI_ERR_TIMEOUT, " ms; it has run there for ");
        check_sum(to, &sum); /* after it, on the only thread */
        started = atomic_load(&n_started);
        CHECK_OK(tri_rpc_async(to, &hang, NULL, NULL, &call)); /* keeps that thread */
        worker_wait_for(&n_started, started + 1);
        CHECK_FAILS_WITHIN(
            ms, tri_rpc_sync(to, &hang, NULL, &(tri_rpc_call_options){.timeout_ms = ms}, NULL),
            TRI_ERR_TIMEOUT, " ms; it is queued there");
        assert_int_equal(tri_rpc_call_test(call), TRI_INPROGRESS);
        assert_int_equal(tri_rpc_call_wait(call, 10), TRI_ERR_TIMEOUT);
        tri_rpc_call_cancel(call);
        status = tri_rpc_call_wait(call, 0);
        assert_int_equal(status, TRI_ERR_ABORTED);
        tri_rpc_call_destroy(call);
        check_sum(to, &sum);
        assert_int_equal(atomic_load(&n_started), started + 1); /* the queued one never ran */
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* Whether a request is queued whose deadline is at most that. */
static bool has_queued(tri_rpc *rpc, int64_t deadline_ns)
{
    bool has;

    rpc_lock(rpc);
    has = rpc->queue != NULL && rpc->queue->deadline_ns <= deadline_ns;
    rpc_unlock(rpc);
    return has;
}

static bool has_requests(tri_rpc *rpc)
{
    bool any = false;

    rpc_lock(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
        any = any || p->requests != NULL;
    rpc_unlock(rpc);
    return any;
}

/* The callee is the first where the caller does not run then, as on a busy machine. */
static void a_deadline_is_a_timeout_whoever_sees_it_first(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        const tri_rpc_options one = {.threads = 1, .max_threads = 1, .tcp_only = opt == &by_tcp};
        const tri_rpc_call_options soon = {.timeout_ms = 100};
        tri_rpc_call *runs, *waits;
        tri_rpc_ref *to;
        workers w;

        begin(&w, 2, &one);
        to = worker_find(&w, 0, "w1");
        CHECK_OK(tri_rpc_async(to, &hang, NULL, NULL, &runs)); /* keeps the only thread */
        worker_wait_for(&n_started, 1);
        CHECK_OK(tri_rpc_async(to, &hang, NULL, &soon, &waits));
        /* the thread that takes it in there may need the lock of the caller first */
        while (!has_queued(w.rpc[1], INT64_MAX) && tri_rpc_call_test(waits) == TRI_INPROGRESS)
            trii_thread_yield();
        rpc_lock(w.rpc[0]);
        if (!rpc_call_is_over(waits)) {
            while (!has_queued(w.rpc[1], trii_now_ns()))
                trii_thread_yield();
            atomic_store(&release_all, 1);
            while (has_requests(w.rpc[1]))
                trii_thread_yield();
        }
        rpc_unlock(w.rpc[0]);
        CHECK_FAILS(tri_rpc_call_wait(waits, 0), TRI_ERR_TIMEOUT, "hang on w1");
        atomic_store(&release_all, 1);
        CHECK_OK(tri_rpc_call_wait(runs, 0));
        assert_int_equal(atomic_load(&n_started), 1);
        tri_rpc_call_destroy(waits);
        tri_rpc_call_destroy(runs);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static void nobody_waits_and_the_deadline_comes_all_the_same(void **state)
{
    const tri_rpc_call_options soon = {.timeout_ms = 60};
    workers w;
    tri_rpc_ref *to;
    tri_rpc_call *call;
    int64_t deadline = trii_deadline_ms(20000);

    (void)state;
    begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_async(to, &hang, NULL, &soon, &call));
    while (tri_rpc_call_test(call) == TRI_INPROGRESS && trii_now_ns() < deadline)
        trii_thread_yield();
    assert_int_equal(tri_rpc_call_test(call), TRI_ERR_TIMEOUT);
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* Whenever it passes, also while the worker was looked for. */
static void a_deadline_of_the_past_is_no_patience(void **state)
{
    tri_rpc_ref *to, *found = NULL;
    workers w;

    (void)state;
    workers_begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1"); /* is connected */
    for (int64_t us = 0; us <= 4000; us += 100)
        CHECK_FAILS(rpc_look_up(w.rpc[0], "w1/line", false, trii_now_ns() - us * 1000, &found),
                    TRI_ERR_TIMEOUT, "w1");
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_deadline_ends_the_call_and_tells_where_it_was),
    cmocka_unit_test(a_deadline_is_a_timeout_whoever_sees_it_first),
    cmocka_unit_test(nobody_waits_and_the_deadline_comes_all_the_same),
    cmocka_unit_test(a_deadline_of_the_past_is_no_patience),
};

TEST_MAIN(tests)
