/*
 * rpc_end_test.c - a worker is destroyed, or its process forks, while requests are kept, queued or
 * run: nothing hangs, nothing is used after it was freed, and the parent's calls are left alone.
 */

#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"
#include "testing/scratch.h"
#include "testing/test_fork.h"

/* --- functions ------------------------------------------------------------ */

static tri_rpc_request *kept;
static atomic_int n_kept, n_begun, n_released, goes_on;

static tri_status run_keep(tri_rpc_request *request, void *object)
{
    (void)object;
    kept = request;
    atomic_fetch_add(&n_kept, 1);
    return TRI_INPROGRESS;
}
static const tri_rpc_function keep = {.name = "keep", .run = run_keep};

static tri_status run_stay(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    atomic_fetch_add(&n_begun, 1);
    return worker_stays_until(&goes_on);
}
static const tri_rpc_function stay = {.name = "stay", .run = run_stay};

static tri_status run_ping(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function ping = {.name = "ping", .run = run_ping};

static void released(void *object)
{
    (void)object;
    atomic_fetch_add(&n_released, 1);
}
static const tri_rpc_object serial = {.name = "serial", .serial = true, .release = released};

static void begin(workers *w, const tri_rpc_options *opt)
{
    workers_begin(w, 2, opt);
    worker_serve(w, 1, &keep);
    worker_serve(w, 1, &stay);
    worker_serve(w, 1, &ping);
    n_kept = n_begun = n_released = goes_on = 0;
}

/* --- the end of a worker -------------------------------------------------- */

static void a_kept_request_outlives_its_worker(void **state)
{
    tri_rpc_call *call;
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_async(to, &keep, NULL, NULL, &call));
    worker_wait_for(&n_kept, 1);
    tri_rpc_destroy(w.rpc[1]);
    w.rpc[1] = NULL;
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_PEER_LOST, "keep on w1");
    assert_true(tri_rpc_request_is_cancelled(kept));
    CHECK_OK(tri_rpc_reply(kept, NULL)); /* nobody reads it */
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(to);
    workers_destroy(&w);
}

static void what_waits_for_a_serial_object_ends_with_the_worker(void **state)
{
    tri_rpc_call *calls[20];
    tri_rpc_ref *object, *to;
    workers w;

    (void)state;
    begin(&w, NULL);
    CHECK_OK(tri_rpc_own(w.rpc[1], "object", &serial, NULL, &object));
    tri_rpc_ref_unref(object);
    to = worker_find(&w, 0, "w1/object");
    CHECK_OK(tri_rpc_async(to, &stay, NULL, NULL, &calls[0]));
    worker_wait_for(&n_begun, 1);
    for (int i = 1; i < 20; i++)
        CHECK_OK(tri_rpc_async(to, &stay, NULL, NULL, &calls[i]));
    do { /* until all have come */
        rpc_lock(w.rpc[1]);
        atomic_store(&n_kept, w.rpc[1]->n_requests);
        rpc_unlock(w.rpc[1]);
    } while (atomic_load(&n_kept) < 20);
    tri_rpc_abort(w.rpc[1], "test");
    atomic_store(&goes_on, 1);
    tri_rpc_destroy(w.rpc[1]);
    w.rpc[1] = NULL;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(tri_rpc_call_wait(calls[i], 0), TRI_ERR_PEER_LOST);
        tri_rpc_call_destroy(calls[i]);
    }
    assert_int_equal(n_begun, 1);
    assert_int_equal(n_released, 1);
    tri_rpc_ref_unref(to);
    workers_destroy(&w);
}

static tri_status run_fini(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_rpc_fini();
}
static const tri_rpc_function fini = {.name = "fini", .run = run_fini};

static void a_handler_does_not_end_its_own_worker(void **state)
{
    const tri_rpc_function *const functions[] = {&fini, &ping};
    tri_rpc_ref *to;

    (void)state;
    CHECK_OK(tri_rpc_init("alone", &(tri_rpc_options){.functions = functions, .n_functions = 2}));
    CHECK_OK(tri_rpc_find(NULL, "alone", &to));
    CHECK_FAILS(tri_rpc_sync(to, &fini, NULL, NULL, NULL), TRI_ERR_STATE, "called by a handler");
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    tri_rpc_ref_unref(to);
    CHECK_OK(tri_rpc_fini());
}

static void say_something_else(tri_rpc_call *call, void *arg)
{
    (void)call;
    (void)arg;
    (void)tri_status_fail(TRI_ERR_IO, "a line of something else");
}

/* What ends then has lines of its own. */
static void a_worker_that_leaves_too_early_says_what_was_unfinished(void **state)
{
    const tri_rpc_call_options o = {.done = say_something_else};
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_async(to, &keep, NULL, &o, NULL));
    worker_wait_for(&n_kept, 1);
    CHECK_FAILS(tri_rpc_leave(w.rpc[0], 10), TRI_ERR_TIMEOUT,
                "rpc_leave: unfinished after 10 ms: call keep on w1");
    CHECK_OK(tri_rpc_reply(kept, NULL));
    tri_rpc_ref_unref(to);
    workers_destroy(&w);
}

static tri_status run_join(tri_rpc_request *request, void *object)
{
    (void)object;
    return tri_rpc_join(request->rpc, 10);
}
static const tri_rpc_function join = {.name = "join", .run = run_join};

/* The main thread is in it, or will be. */
static void a_handler_does_not_join(void **state)
{
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, NULL);
    worker_serve(&w, 1, &join);
    to = worker_find(&w, 0, "w1");
    CHECK_FAILS(tri_rpc_sync(to, &join, NULL, NULL, NULL), TRI_ERR_STATE,
                "rpc_join: called by a handler");
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* --- a connection that breaks --------------------------------------------- */

static void a_request_that_the_system_refuses_was_not_sent(void **state)
{
    const tri_rpc_options by_tcp = {.tcp_only = true};
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, &by_tcp);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL)); /* defines it */
    rpc_lock(w.rpc[0]); /* as if the peer had closed, and nobody had read that yet */
    worker_stop_sending(to->peer->fd);
    rpc_unlock(w.rpc[0]);
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* --- two workers of a process --------------------------------------------- */

static tri_rpc_ref *back; /* to w1, of w0 */

/* Calls its own worker, in the name of the other one. */
static tri_status run_across(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_rpc_sync(back, &ping, NULL, NULL, NULL);
}
static const tri_rpc_function across = {.name = "across", .run = run_across};

static void a_handler_that_waits_for_another_worker_lends_its_own_place(void **state)
{
    const tri_rpc_options one = {.threads = 1, .max_threads = 2};
    const tri_rpc_call_options o = {.timeout_ms = 5000};
    workers w;

    (void)state;
    begin(&w, &one);
    worker_serve(&w, 1, &across);
    back = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_sync(back, &across, NULL, &o, NULL));
    for (int i = 0; i < 2; i++)
        assert_int_equal(w.rpc[i]->n_lent, 0);
    tri_rpc_ref_unref(back);
    workers_end(&w);
}

/* --- a child -------------------------------------------------------------- */

static void a_forked_child_harms_no_call_of_its_parent(void **state)
{
    tri_rpc_call *call;
    tri_rpc_ref *object, *to;
    int pid, how = 0, which;
    workers w;

    (void)state;
    begin(&w, NULL);
    CHECK_OK(tri_rpc_own(w.rpc[1], "object", &serial, NULL, &object));
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_async(to, &keep, NULL, NULL, &call));
    worker_wait_for(&n_kept, 1);
    tri_rpc_ref_unref(to);
    to = worker_find(&w, 0, "w1/object");
    rpc_lock(w.rpc[1]); /* another thread may be anywhere */
    pid = test_fork();
    if (pid == 0) {
        alarm(60);
        tri_rpc_ref_unref(to);
        tri_rpc_call_cancel(call);
        if (tri_rpc_call_test(call) != TRI_ERR_STATE ||
            tri_rpc_wait_any(&call, 1, 10, &which) != TRI_ERR_STATE ||
            tri_rpc_reply(kept, NULL) != TRI_ERR_STATE)
            _exit(1);
        tri_rpc_fail(kept, TRI_ERR_NAN);
        tri_rpc_call_destroy(call);
        tri_rpc_ref_unref(object);
        _exit(7);
    }
    rpc_unlock(w.rpc[1]);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 7);
    tri_rpc_ref_unref(object);
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    assert_int_equal(n_released, 0);
    assert_int_equal(tri_rpc_call_test(call), TRI_INPROGRESS);
    CHECK_OK(tri_rpc_reply(kept, NULL));
    CHECK_OK(tri_rpc_call_wait(call, 0));
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_worker_that_leaves_too_early_says_what_was_unfinished),
    cmocka_unit_test(a_handler_does_not_join),
    cmocka_unit_test(a_kept_request_outlives_its_worker),
    cmocka_unit_test(what_waits_for_a_serial_object_ends_with_the_worker),
    cmocka_unit_test(a_handler_does_not_end_its_own_worker),
    cmocka_unit_test(a_handler_that_waits_for_another_worker_lends_its_own_place),
    cmocka_unit_test(a_request_that_the_system_refuses_was_not_sent),
    cmocka_unit_test(a_forked_child_harms_no_call_of_its_parent),
};

TEST_MAIN(tests)
