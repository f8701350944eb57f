/*
 * rpc_chain_test.c - handlers that call: recursion with one thread, serial objects, deadlines that
 * are inherited, the cap on threads, what an inline handler must not do.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

static const tri_rpc_options one_thread = {.threads = 1};
static const tri_rpc_options one_by_tcp = {.threads = 1, .tcp_only = true};

/* --- recursion ------------------------------------------------------------ */

static tri_rpc_ref *to_other[2]; /* as worker i calls the other */
static tri_status run_down(tri_rpc_request *request, void *object);
static const tri_rpc_function down = {.name = "down", .run = run_down};

/* {who runs it, how deep}: replies with the depth that was reached. */
static tri_status run_down(tri_rpc_request *request, void *object)
{
    int at[2], reached;
    tri_rpc_message reply;
    tri_status status;

    (void)object;
    memcpy(at, tri_rpc_request_message(request)->data, sizeof(at));
    reached = at[1];
    if (at[1] < 100) {
        const int next[2] = {1 - at[0], at[1] + 1};

        status =
            tri_rpc_sync(to_other[at[0]], &down,
                         &(tri_rpc_message){.data = next, .bytes = sizeof(next)}, NULL, &reply);
        if (status != TRI_OK)
            return status;
        memcpy(&reached, reply.data, sizeof(reached));
        tri_rpc_message_free(&reply);
    }
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &reached, .bytes = sizeof(reached)});
}

static void a_recursion_of_a_hundred_calls_needs_one_thread(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const int start[2] = {1, 1};
        tri_rpc_message reply;
        workers w;
        int reached;

        workers_begin(&w, 2, t == 0 ? &one_thread : &one_by_tcp);
        for (int i = 0; i < 2; i++) {
            worker_serve(&w, i, &down);
            to_other[i] = worker_find(&w, i, i == 0 ? "w1" : "w0");
        }
        CHECK_OK(tri_rpc_sync(to_other[0], &down,
                              &(tri_rpc_message){.data = start, .bytes = sizeof(start)}, NULL,
                              &reply));
        memcpy(&reached, reply.data, sizeof(reached));
        assert_int_equal(reached, 100);
        tri_rpc_message_free(&reply);
        /* the caller's thread and one of the callee's did it all */
        assert_int_equal(w.rpc[0]->n_threads, 0);
        assert_int_equal(w.rpc[1]->n_threads, 1);
        for (int i = 0; i < 2; i++)
            tri_rpc_ref_unref(to_other[i]);
        workers_end(&w);
    }
}

static void a_worker_with_one_thread_recurses_into_itself(void **state)
{
    const int start[2] = {0, 1};
    tri_rpc_message reply;
    workers w;

    (void)state;
    workers_begin(&w, 1, &one_thread);
    worker_serve(&w, 0, &down);
    to_other[0] = to_other[1] = worker_find(&w, 0, "w0");
    CHECK_OK(tri_rpc_sync(to_other[0], &down,
                          &(tri_rpc_message){.data = start, .bytes = sizeof(start)}, NULL, &reply));
    assert_int_equal(*(const int *)reply.data, 100);
    tri_rpc_message_free(&reply);
    tri_rpc_ref_unref(to_other[0]);
    workers_end(&w);
}

/* --- other chains --------------------------------------------------------- */

static atomic_int n_inside, n_most, n_calls;

static tri_status run_slow(tri_rpc_request *request, void *object)
{
    int inside = atomic_fetch_add(&n_inside, 1) + 1;
    int64_t until = trii_now_ns() + 2 * TRII_NS_PER_MS;

    (void)request;
    (void)object;
    if (inside > atomic_load(&n_most))
        atomic_store(&n_most, inside);
    while (trii_now_ns() < until)
        trii_thread_yield();
    atomic_fetch_sub(&n_inside, 1);
    atomic_fetch_add(&n_calls, 1);
    return TRI_OK;
}
static const tri_rpc_function slow = {.name = "slow", .run = run_slow};

static void count_release(void *object)
{
    atomic_fetch_add((atomic_int *)object, 1);
}
static const tri_rpc_object serial_kind = {
    .name = "queue", .serial = true, .release = count_release};

static void a_serial_object_has_one_request_at_a_time(void **state)
{
    const tri_rpc_options four = {.threads = 4};
    tri_rpc_call *calls[20];
    atomic_int released = 0;
    tri_rpc_ref *own, *to;
    workers w;

    (void)state;
    workers_begin(&w, 2, &four);
    worker_serve(&w, 1, &slow);
    CHECK_OK(tri_rpc_own(w.rpc[1], "queue", &serial_kind, &released, &own));
    to = worker_find(&w, 0, "w1/queue");
    for (int i = 0; i < 20; i++)
        CHECK_OK(tri_rpc_async(to, &slow, NULL, NULL, &calls[i]));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(tri_rpc_call_wait(calls[i], 0));
        tri_rpc_call_destroy(calls[i]);
    }
    assert_int_equal(atomic_load(&n_calls), 20);
    assert_int_equal(atomic_load(&n_most), 1);
    tri_rpc_ref_unref(to);
    assert_ptr_equal(tri_rpc_ref_object(own), &released);
    tri_rpc_ref_unref(own);
    assert_int_equal(atomic_load(&released), 0); /* its name keeps it */
    workers_end(&w);
    assert_int_equal(atomic_load(&released), 1);
}

/* A serial object whose handler is called back by whom it calls. */
static tri_rpc_ref *back_to_queue, *helper;
static tri_status run_enter(tri_rpc_request *request, void *object);
static tri_status run_help(tri_rpc_request *request, void *object);
static const tri_rpc_function enter_object = {.name = "enter", .run = run_enter};
static const tri_rpc_function help = {.name = "help", .run = run_help};

static tri_status run_enter(tri_rpc_request *request, void *object)
{
    const int depth = *(const int *)tri_rpc_request_message(request)->data;

    if (object == NULL)
        return tri_status_fail(TRI_ERR_INTERNAL, "no object");
    if (depth == 0)
        return TRI_OK;
    return tri_rpc_sync(helper, &help, &(tri_rpc_message){.data = &depth, .bytes = sizeof(depth)},
                        NULL, NULL);
}

static tri_status run_help(tri_rpc_request *request, void *object)
{
    const int depth = *(const int *)tri_rpc_request_message(request)->data - 1;

    (void)object;
    return tri_rpc_sync(back_to_queue, &enter_object,
                        &(tri_rpc_message){.data = &depth, .bytes = sizeof(depth)}, NULL, NULL);
}

static void a_serial_object_lets_its_own_chain_in_again(void **state)
{
    const int depth = 5;
    atomic_int released = 0;
    tri_rpc_ref *own;
    workers w;

    (void)state;
    workers_begin(&w, 2, &one_thread);
    worker_serve(&w, 1, &enter_object);
    worker_serve(&w, 0, &help);
    CHECK_OK(tri_rpc_own(w.rpc[1], "queue", &serial_kind, &released, &own));
    back_to_queue = worker_find(&w, 0, "w1/queue");
    helper = worker_find(&w, 1, "w0");
    CHECK_OK(tri_rpc_sync(back_to_queue, &enter_object,
                          &(tri_rpc_message){.data = &depth, .bytes = sizeof(depth)}, NULL, NULL));
    tri_rpc_ref_unref(back_to_queue);
    tri_rpc_ref_unref(helper);
    tri_rpc_ref_unref(own);
    workers_end(&w);
}

/* --- order ---------------------------------------------------------------- */

static int seen[400];
static atomic_int n_seen;

static tri_status run_note(tri_rpc_request *request, void *object)
{
    (void)object;
    seen[atomic_fetch_add(&n_seen, 1)] = *(const int *)tri_rpc_request_message(request)->data;
    return TRI_OK;
}
static const tri_rpc_function note = {.name = "note", .run = run_note};
static const tri_rpc_function inline_note = {
    .name = "inline_note", .flags = TRI_RPC_INLINE, .run = run_note};

static void calls_of_a_thread_start_in_their_order(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        const tri_rpc_options o = {.threads = 1, .tcp_only = t % 2 == 1};
        const tri_rpc_function *function = t < 2 ? &note : &inline_note;
        tri_rpc_call *calls[400];
        tri_rpc_ref *to;
        workers w;

        atomic_store(&n_seen, 0);
        workers_begin(&w, 2, &o);
        worker_serve(&w, 1, function);
        to = worker_find(&w, 0, "w1");
        for (int i = 0; i < 400; i++)
            CHECK_OK(tri_rpc_async(to, function, &(tri_rpc_message){.data = &i, .bytes = sizeof(i)},
                                   NULL, &calls[i]));
        for (int i = 0; i < 400; i++) {
            CHECK_OK(tri_rpc_call_wait(calls[i], 0));
            tri_rpc_call_destroy(calls[i]);
        }
        for (int i = 0; i < 400; i++)
            assert_int_equal(seen[i], i);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* --- deadlines and the cap ------------------------------------------------ */

static tri_rpc_ref *nested_to;
static atomic_int n_ran;

static tri_status run_forever(tri_rpc_request *request, void *object)
{
    (void)object;
    atomic_fetch_add(&n_ran, 1);
    while (!tri_rpc_request_is_cancelled(request))
        trii_thread_yield();
    return TRI_OK;
}
static const tri_rpc_function forever = {.name = "forever", .run = run_forever};

static void requests_that_come_at_once_have_a_thread_each(void **state)
{
    const tri_rpc_options two = {.threads = 2};
    tri_rpc_ref *to;
    workers w;

    (void)state;
    workers_begin(&w, 2, &two);
    worker_serve(&w, 1, &forever);
    worker_serve(&w, 1, &note);
    to = worker_find(&w, 0, "w1");
    for (int round = 0; round < 200; round++) {
        const int i = 0;
        tri_rpc_call *calls[2];

        atomic_store(&n_seen, 0); /* a thread that is idle */
        CHECK_OK(tri_rpc_sync(to, &note, &(tri_rpc_message){.data = &i, .bytes = sizeof(i)}, NULL,
                              NULL));
        atomic_store(&n_ran, 0);
        for (int k = 0; k < 2; k++)
            CHECK_OK(tri_rpc_async(to, &forever, NULL, NULL, &calls[k]));
        worker_wait_for(&n_ran, 2);
        for (int k = 0; k < 2; k++) {
            tri_rpc_call_cancel(calls[k]);
            tri_rpc_call_destroy(calls[k]);
        }
    }
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* Calls `forever` with the longest deadline; the line of its failure is its reply. */
static tri_status run_nest(tri_rpc_request *request, void *object)
{
    const tri_rpc_call_options patient = {.timeout_ms = TRI_FOREVER};

    (void)object;
    (void)request;
    return tri_rpc_sync(nested_to, &forever, NULL, &patient, NULL);
}
static const tri_rpc_function nest = {.name = "nest", .run = run_nest};

static void a_nested_call_has_at_most_what_is_left(void **state)
{
    const tri_rpc_call_options o = {.timeout_ms = 200};
    int64_t began = trii_now_ns();
    tri_rpc_ref *to;
    workers w;

    (void)state;
    workers_begin(&w, 3, NULL);
    worker_serve(&w, 1, &nest);
    worker_serve(&w, 2, &forever);
    to = worker_find(&w, 0, "w1");
    nested_to = worker_find(&w, 1, "w2");
    CHECK_FAILS(tri_rpc_sync(to, &nest, NULL, &o, NULL), TRI_ERR_TIMEOUT, "nest on w1");
    assert_true(trii_now_ns() - began < 20 * TRII_NS_PER_S);
    tri_rpc_ref_unref(to);
    tri_rpc_ref_unref(nested_to);
    workers_end(&w); /* would wait for `forever`, were it not cancelled */
}

static void handlers_that_wait_at_the_cap_are_an_error_that_names_them(void **state)
{
    const tri_rpc_options two = {.threads = 1, .max_threads = 2};
    const tri_rpc_call_options o = {.timeout_ms = 20000};
    tri_rpc_call *calls[2];
    tri_rpc_ref *to;
    workers w;

    (void)state;
    workers_begin(&w, 3, &two);
    worker_serve(&w, 1, &nest);
    worker_serve(&w, 2, &forever);
    to = worker_find(&w, 0, "w1");
    nested_to = worker_find(&w, 1, "w2");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tri_rpc_async(to, &nest, NULL, &o, &calls[i]));
        rpc_lock(w.rpc[1]);
        while (w.rpc[1]->n_lent <= i) {
            rpc_unlock(w.rpc[1]);
            trii_thread_yield();
            rpc_lock(w.rpc[1]);
        }
        rpc_unlock(w.rpc[1]);
    }
    CHECK_FAILS(tri_rpc_sync(to, &nest, NULL, &o, NULL), TRI_ERR_STATE,
                "2 handlers wait (max_threads): nest <- w0, nest <- w0");
    for (int i = 0; i < 2; i++) {
        tri_rpc_call_cancel(calls[i]);
        tri_rpc_call_destroy(calls[i]);
    }
    rpc_lock(w.rpc[2]);
    for (int i = 0; i < w.rpc[2]->n_requests; i++) {
        rpc_unlock(w.rpc[2]);
        trii_thread_yield();
        rpc_lock(w.rpc[2]);
    }
    rpc_unlock(w.rpc[2]);
    tri_rpc_ref_unref(to);
    tri_rpc_ref_unref(nested_to);
    for (int i = 0; i < 3; i++)
        tri_rpc_abort(w.rpc[i], "enough");
    workers_destroy(&w);
}

/* What the cap refuses does not keep the object that it was for. */
static void a_serial_object_is_free_after_a_request_that_the_cap_refused(void **state)
{
    const tri_rpc_options one = {.threads = 1, .max_threads = 1};
    const tri_rpc_call_options o = {.timeout_ms = 20000};
    atomic_int released = 0;
    tri_rpc_call *call;
    tri_rpc_ref *own, *to, *to_object;
    tri_status status;
    workers w;

    (void)state;
    workers_begin(&w, 3, &one);
    worker_serve(&w, 1, &nest);
    worker_serve(&w, 1, &slow);
    worker_serve(&w, 2, &forever);
    CHECK_OK(tri_rpc_own(w.rpc[1], "queue", &serial_kind, &released, &own));
    to = worker_find(&w, 0, "w1");
    to_object = worker_find(&w, 0, "w1/queue");
    nested_to = worker_find(&w, 1, "w2");
    CHECK_OK(tri_rpc_async(to, &nest, NULL, &o, &call));
    do /* until the only thread waits */
        status = tri_rpc_sync(to_object, &slow, NULL, &o, NULL);
    while (status == TRI_OK);
    assert_int_equal(status, TRI_ERR_STATE);
    tri_rpc_call_cancel(call);
    tri_rpc_call_destroy(call);
    tri_rpc_abort(w.rpc[2], "enough"); /* so that the thread comes back */
    do
        status = tri_rpc_sync(to_object, &slow, NULL, &o, NULL);
    while (status == TRI_ERR_STATE);
    assert_int_equal(status, TRI_OK);
    tri_rpc_ref_unref(to);
    tri_rpc_ref_unref(to_object);
    tri_rpc_ref_unref(nested_to);
    tri_rpc_ref_unref(own);
    for (int i = 0; i < 2; i++)
        tri_rpc_abort(w.rpc[i], "enough");
    workers_destroy(&w);
}

/* --- inline --------------------------------------------------------------- */

static tri_status run_blocking(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_rpc_sync(nested_to, &slow, NULL, NULL, NULL);
}
static const tri_rpc_function blocking = {
    .name = "blocking", .flags = TRI_RPC_INLINE, .run = run_blocking};

static void an_inline_handler_that_would_wait_fails(void **state)
{
    tri_rpc_ref *to;
    workers w;

    (void)state;
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &blocking);
    to = worker_find(&w, 0, "w1");
    nested_to = worker_find(&w, 1, "w0");
    CHECK_FAILS(tri_rpc_sync(to, &blocking, NULL, NULL, NULL), TRI_ERR_STATE,
                "rpc_sync: an inline handler");
    tri_rpc_ref_unref(to);
    tri_rpc_ref_unref(nested_to);
    workers_end(&w);
}

static tri_rpc_request *kept[3];
static int n_kept;

/* Batched: the last one answers for all. */
static tri_status run_batch(tri_rpc_request *request, void *object)
{
    (void)object;
    kept[n_kept++] = request;
    if (n_kept < 3)
        return TRI_INPROGRESS;
    n_kept = 0;
    for (int i = 0; i < 3; i++) {
        if (tri_rpc_reply(kept[i], &(tri_rpc_message){.data = &i, .bytes = sizeof(i)}) != TRI_OK)
            return TRI_ERR_INTERNAL;
    }
    return TRI_INPROGRESS;
}
static const tri_rpc_function batch = {.name = "batch", .run = run_batch};

static void a_request_is_kept_and_answered_by_another(void **state)
{
    atomic_int released = 0;
    tri_rpc_call *calls[3];
    tri_rpc_ref *own, *to;
    workers w;
    int sum = 0;

    (void)state;
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &batch);
    CHECK_OK(tri_rpc_own(w.rpc[1], "batch", &serial_kind, &released, &own));
    to = worker_find(&w, 0, "w1/batch");
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 3; i++)
            CHECK_OK(tri_rpc_async(to, &batch, NULL, NULL, &calls[i]));
        for (int i = 0; i < 3; i++) {
            tri_rpc_message reply;

            CHECK_OK(tri_rpc_call_wait(calls[i], 0));
            CHECK_OK(tri_rpc_call_take_reply(calls[i], &reply));
            sum += *(const int *)reply.data;
            tri_rpc_message_free(&reply);
            tri_rpc_call_destroy(calls[i]);
        }
    }
    assert_int_equal(sum, 150);
    tri_rpc_ref_unref(to);
    tri_rpc_ref_unref(own);
    workers_end(&w);
}

static tri_rpc_request *unanswered[16];
static atomic_int n_unanswered;

/* Kept, and never answered: unless the data say that it fails. */
static tri_status run_never(tri_rpc_request *request, void *object)
{
    (void)object;
    if (tri_rpc_request_message(request)->bytes > 0) {
        (void)tri_status_fail(TRI_ERR_NAN, "it was kept, and failed");
        tri_rpc_fail(request, TRI_ERR_NAN);
        tri_rpc_fail(request, TRI_ERR_IO); /* once */
    } else {
        unanswered[atomic_load(&n_unanswered)] = request;
        atomic_fetch_add(&n_unanswered, 1);
    }
    return TRI_INPROGRESS;
}
static const tri_rpc_function never = {.name = "never", .run = run_never};

static void a_request_that_is_never_answered_ends_at_its_deadline(void **state)
{
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options o = {.threads = 1, .tcp_only = t == 1};
        tri_rpc_ref *to;
        int64_t ms = 30;
        workers w;

        (void)state;
        workers_begin(&w, 2, &o);
        worker_serve(&w, 1, &never);
        to = worker_find(&w, 0, "w1");
        do { /* one that has been on its way for longer than that is not begun */
            CHECK_FAILS(
                tri_rpc_sync(to, &never, NULL, &(tri_rpc_call_options){.timeout_ms = ms}, NULL),
                TRI_ERR_TIMEOUT, "never on w1");
            /* after which the only thread has seen it, in any case */
            CHECK_FAILS(
                tri_rpc_sync(to, &never, &(tri_rpc_message){.data = "f", .bytes = 1}, NULL, NULL),
                TRI_ERR_NAN, "never on w1");
            assert_non_null(strstr(tri_last_error(), "it was kept, and failed (rpc_chain_test.c:"));
            ms *= 2;
        } while (atomic_load(&n_unanswered) == 0 && ms < 4000);
        assert_true(atomic_load(&n_unanswered) > 0);
        for (int i = 0; i < n_unanswered; i++) {
            while (!tri_rpc_request_is_cancelled(unanswered[i])) /* it is told */
                trii_thread_yield();
        }
        CHECK_FAILS(tri_rpc_leave(w.rpc[1], 50), TRI_ERR_TIMEOUT,
                    "unfinished after 50 ms: request never of w0");
        while (atomic_load(&n_unanswered) > 0) { /* nobody reads it */
            int last = atomic_fetch_sub(&n_unanswered, 1) - 1;

            CHECK_OK(tri_rpc_reply(unanswered[last], NULL));
        }
        tri_rpc_ref_unref(to);
        CHECK_OK(tri_rpc_leave(w.rpc[0], 20000));
        workers_destroy(&w);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_recursion_of_a_hundred_calls_needs_one_thread),
    cmocka_unit_test(a_worker_with_one_thread_recurses_into_itself),
    cmocka_unit_test(a_serial_object_has_one_request_at_a_time),
    cmocka_unit_test(a_serial_object_lets_its_own_chain_in_again),
    cmocka_unit_test(calls_of_a_thread_start_in_their_order),
    cmocka_unit_test(requests_that_come_at_once_have_a_thread_each),
    cmocka_unit_test(a_nested_call_has_at_most_what_is_left),
    cmocka_unit_test(handlers_that_wait_at_the_cap_are_an_error_that_names_them),
    cmocka_unit_test(a_serial_object_is_free_after_a_request_that_the_cap_refused),
    cmocka_unit_test(an_inline_handler_that_would_wait_fails),
    cmocka_unit_test(a_request_is_kept_and_answered_by_another),
    cmocka_unit_test(a_request_that_is_never_answered_ends_at_its_deadline),
};

TEST_MAIN(tests)
