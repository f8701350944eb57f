/*
 * rpc_places_test.c - how many handlers run at a time: those that compute have `threads` places,
 * and one that waits, for a call or for anything else, has lent its own.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

#define PATIENT_MS 20000
#define MOST 8

/* --- functions ------------------------------------------------------------ */

static pthread_barrier_t barrier;
static tri_rpc_ref *caller; /* as w1 calls it */
static atomic_int n_inside;

static tri_status run_ping(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function ping = {.name = "ping", .run = run_ping};

static tri_status run_meet(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    (void)pthread_barrier_wait(&barrier);
    return TRI_OK;
}
static const tri_rpc_function meet = {.name = "meet", .run = run_meet};

static tri_rpc *callee; /* w1, for w0's handler */
static tri_rpc_request *kept[MOST];
static int n_kept, n_asleep;

/* Answers three at once: all of them wait for their calls by then. */
static tri_status run_collect(tri_rpc_request *request, void *object)
{
    (void)object;
    kept[n_kept++] = request;
    if (n_kept < 3)
        return TRI_INPROGRESS;
    rpc_lock(callee);
    n_asleep = callee->n_asleep;
    rpc_unlock(callee);
    for (int i = 0; i < 3; i++)
        (void)tri_rpc_reply(kept[i], NULL);
    return TRI_INPROGRESS;
}
static const tri_rpc_function collect = {
    .name = "collect", .flags = TRI_RPC_INLINE, .run = run_collect};

/* Has slept, and waits for a call then. */
static tri_status run_meet_and_call(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    (void)pthread_barrier_wait(&barrier);
    return tri_rpc_sync(caller, &collect, NULL, NULL, NULL);
}
static const tri_rpc_function meet_and_call = {.name = "meet_and_call", .run = run_meet_and_call};

static tri_status run_compute(tri_rpc_request *request, void *object)
{
    int64_t until = trii_now_ns() + 5 * TRII_NS_PER_MS;

    (void)request;
    (void)object;
    while (trii_now_ns() < until)
        ;
    return TRI_OK;
}
static const tri_rpc_function compute = {.name = "compute", .run = run_compute};

static trii_mutex gate = TRII_MUTEX_INITIALIZER;

/* Sleeps until the gate is opened. */
static tri_status run_pass(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    atomic_fetch_add(&n_inside, 1);
    trii_mutex_lock(&gate);
    trii_mutex_unlock(&gate);
    return TRI_OK;
}
static const tri_rpc_function pass = {.name = "pass", .run = run_pass};

/* Waits for the same in the other worker. */
static tri_status run_call_pass(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_rpc_sync(caller, &pass, NULL, NULL, NULL);
}
static const tri_rpc_function call_pass = {.name = "call_pass", .run = run_call_pass};

/* --- two workers ---------------------------------------------------------- */

static void begin_with(workers *w, int threads, int max_threads, tri_rpc_ref **to_out)
{
    static const tri_rpc_function *const all[] = {&ping,    &meet, &meet_and_call, &collect,
                                                  &compute, &pass, &call_pass};
    const tri_rpc_options o = {.threads = threads,
                               .max_threads = max_threads,
                               .timeout_ms = PATIENT_MS,
                               .window_calls = 64};

    workers_begin(w, 2, &o);
    CHECK_OK(tri_rpc_serve(w->rpc[0], all, (int)TRII_COUNT_OF(all)));
    CHECK_OK(tri_rpc_serve(w->rpc[1], all, (int)TRII_COUNT_OF(all)));
    *to_out = worker_find(w, 0, "w1");
    caller = worker_find(w, 1, "w0");
    atomic_store(&n_inside, 0);
}

static void begin(workers *w, int max_threads, tri_rpc_ref **to_out)
{
    begin_with(w, 1, max_threads, to_out);
}

static void end(workers *w, tri_rpc_ref *to)
{
    tri_rpc_ref_unref(to);
    tri_rpc_ref_unref(caller);
    workers_end(w);
}

/* The same, where so many handlers of w1 meet. */
static void begin_meeting(workers *w, unsigned n, tri_rpc_ref **to_out)
{
    assert_int_equal(pthread_barrier_init(&barrier, NULL, n), 0);
    begin(w, 0, to_out);
}

static void end_meeting(workers *w, tri_rpc_ref *to)
{
    end(w, to);
    pthread_barrier_destroy(&barrier);
}

/* Nobody runs, and nobody has a place or has lent one; returns how many threads there are. */
static int settle(tri_rpc *rpc)
{
    int64_t deadline = trii_deadline_ms(PATIENT_MS);
    int n_threads = -1;

    while (n_threads < 0 && trii_now_ns() < deadline) {
        rpc_lock(rpc);
        if (rpc->n_active == 0 && rpc->n_lent == 0 && rpc->n_asleep == 0)
            n_threads = rpc->n_threads;
        rpc_unlock(rpc);
        trii_thread_yield();
    }
    return n_threads;
}

static void call(tri_rpc_ref *to, const tri_rpc_function *function, tri_rpc_call **calls, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_OK(tri_rpc_async(to, function, NULL, NULL, &calls[i]));
}

static void wait_for(tri_rpc_call **calls, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_OK(tri_rpc_call_wait(calls[i], 0));
        tri_rpc_call_destroy(calls[i]);
    }
}

/* --- cases ---------------------------------------------------------------- */

static void handlers_that_wait_for_each_other_all_run(void **state)
{
    tri_rpc_call *calls[MOST];
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin_meeting(&w, 4, &to);
    for (int i = 0; i < 2; i++) { /* and again: its places have come back */
        call(to, &meet, calls, 4);
        wait_for(calls, 4);
        assert_int_equal(settle(w.rpc[1]), 4);
    }
    end_meeting(&w, to);
}

static void one_that_slept_may_wait_for_a_call_then(void **state)
{
    tri_rpc_call *calls[MOST];
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin_meeting(&w, 3, &to);
    callee = w.rpc[1];
    n_kept = 0;
    n_asleep = -1;
    call(to, &meet_and_call, calls, 3);
    wait_for(calls, 3);
    assert_int_equal(n_asleep, 0); /* none has lent its place twice */
    assert_true(settle(w.rpc[1]) >= 3);
    end_meeting(&w, to);
}

static void a_deep_queue_of_short_handlers_starts_no_other_thread(void **state)
{
    tri_rpc_call *calls[64];
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, 0, &to);
    for (int i = 0; i < (TEST_SANITIZED ? 60 : 300); i++) {
        call(to, &ping, calls, 64);
        wait_for(calls, 64);
    }
    assert_int_equal(settle(w.rpc[1]), 1);
    end(&w, to);
}

static void handlers_that_compute_keep_their_places(void **state)
{
    tri_rpc_call *calls[MOST];
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, 0, &to);
    call(to, &compute, calls, MOST);
    wait_for(calls, MOST);
    assert_int_equal(settle(w.rpc[1]), 1);
    end(&w, to);
}

/* The handler that runs has been there for an hour: without a wait for that. */
static void make_old(tri_rpc *rpc)
{
    rpc_lock(rpc);
    for (rpc_place *p = rpc->places; p != NULL; p = p->next) {
        if (p->request != NULL)
            p->request->started_ns -= 3600 * TRII_NS_PER_S;
    }
    rpc_unlock(rpc);
}

/* How long the next one waits for the place of a handler that has slept for long. */
static int64_t wait_behind_a_sleeper(workers *w, tri_rpc_ref *to)
{
    tri_rpc_call *sleeper;
    int64_t began_ns;

    atomic_store(&n_inside, 0);
    trii_mutex_lock(&gate);
    call(to, &pass, &sleeper, 1);
    worker_wait_for(&n_inside, 1);
    make_old(w->rpc[1]);
    began_ns = trii_now_ns();
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    began_ns = trii_now_ns() - began_ns;
    trii_mutex_unlock(&gate);
    wait_for(&sleeper, 1);
    return began_ns;
}

/* A machine that is busy may take as long at times. */
static void one_that_has_slept_for_long_gives_its_place_as_soon(void **state)
{
    int64_t least_ns = INT64_MAX;
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, 0, &to);
    for (int i = 0; i < 20 && least_ns >= 60 * TRII_NS_PER_MS; i++) {
        int64_t ns = wait_behind_a_sleeper(&w, to);

        least_ns = ns < least_ns ? ns : least_ns;
    }
    assert_in_range(least_ns, 0, 60 * TRII_NS_PER_MS);
    end(&w, to);
}

/* One waits for a call, and one for the gate: neither of the two threads has a place for another,
 * although one more might run. */
static void a_free_place_without_a_thread_is_looked_into(void **state)
{
    tri_rpc_call *calls[2];
    tri_rpc_ref *to;
    workers w;
    int64_t ms;

    (void)state;
    begin_with(&w, 2, 2, &to);
    trii_mutex_lock(&gate);
    call(to, &call_pass, &calls[0], 1);
    call(to, &pass, &calls[1], 1);
    worker_wait_for(&n_inside, 2); /* one of them in the other worker */
    CHECK_FAILS_WITHIN(
        ms, tri_rpc_sync(to, &ping, NULL, &(tri_rpc_call_options){.timeout_ms = ms}, NULL),
        TRI_ERR_TIMEOUT, "it is queued there, and 2 handlers wait (max_threads): ");
    assert_in_range(ms, 0, 2000); /* later, something else may have looked */
    trii_mutex_unlock(&gate);
    wait_for(calls, 2);
    end(&w, to);
}

static void where_all_threads_wait_the_line_names_the_handlers(void **state)
{
    tri_rpc_call *calls[MOST];
    tri_rpc_ref *to;
    workers w;
    int64_t ms;

    (void)state;
    begin(&w, 2, &to);
    trii_mutex_lock(&gate);
    call(to, &pass, calls, 2);
    worker_wait_for(&n_inside, 2);
    /* the callee has 20 ms to say so, and an eighth of a longer deadline */
    CHECK_FAILS_WITHIN(
        ms, tri_rpc_sync(to, &ping, NULL, &(tri_rpc_call_options){.timeout_ms = ms}, NULL),
        TRI_ERR_TIMEOUT,
        "it is queued there, and 2 handlers wait (max_threads): pass <- w0, pass <- w0");
    trii_mutex_unlock(&gate);
    wait_for(calls, 2);
    assert_int_equal(settle(w.rpc[1]), 2);
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    end(&w, to);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(handlers_that_wait_for_each_other_all_run),
    cmocka_unit_test(one_that_slept_may_wait_for_a_call_then),
    cmocka_unit_test(a_deep_queue_of_short_handlers_starts_no_other_thread),
    cmocka_unit_test(handlers_that_compute_keep_their_places),
    cmocka_unit_test(one_that_has_slept_for_long_gives_its_place_as_soon),
    cmocka_unit_test(a_free_place_without_a_thread_is_looked_into),
    cmocka_unit_test(where_all_threads_wait_the_line_names_the_handlers),
};

TEST_MAIN(tests)
