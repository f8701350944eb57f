/*
 * rpc_ref_test.c - objects and references: who holds what, third parties, promises.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

static const tri_rpc_options by_tcp = {.tcp_only = true};

static void count_release(void *object)
{
    atomic_fetch_add((atomic_int *)object, 1);
}
static const tri_rpc_object counted = {.name = "counted", .release = count_release};

/* --- functions ------------------------------------------------------------ */

static tri_status run_touch(tri_rpc_request *request, void *object)
{
    (void)request;
    return object != NULL ? TRI_OK : tri_status_fail(TRI_ERR_INTERNAL, "no object");
}
static const tri_rpc_function touch = {.name = "touch", .run = run_touch};

static atomic_int released;
static tri_rpc *maker;

/* Makes an object, and returns the only reference to it. */
static tri_status run_make(tri_rpc_request *request, void *object)
{
    tri_rpc_ref *ref = NULL;
    tri_status status = tri_rpc_own(maker, NULL, &counted, &released, &ref);

    (void)object;
    if (status != TRI_OK)
        return status;
    status = tri_rpc_reply(request, &(tri_rpc_message){.refs = &ref, .n_refs = 1});
    tri_rpc_ref_unref(ref);
    return status;
}
static const tri_rpc_function make = {.name = "make", .run = run_make};

static tri_rpc_ref *kept;

/* Calls what it was given, and keeps it if the data say so. */
static tri_status run_pass(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);

    (void)object;
    if (in->n_refs != 1)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "%d references", in->n_refs);
    if (in->bytes > 0)
        kept = tri_rpc_ref_ref(in->refs[0]);
    return tri_rpc_sync(in->refs[0], &touch, NULL, NULL, NULL);
}
static const tri_rpc_function pass = {.name = "pass", .run = run_pass};

static tri_status run_take(tri_rpc_request *request, void *object)
{
    (void)object;
    return tri_rpc_request_message(request)->n_refs == 1 ? TRI_OK : TRI_ERR_INVALID_ARG;
}
static const tri_rpc_function take = {.name = "take", .flags = TRI_RPC_INLINE, .run = run_take};

/* Keeps it and never calls it. */
static tri_status run_keep(tri_rpc_request *request, void *object)
{
    (void)object;
    kept = tri_rpc_ref_ref(tri_rpc_request_message(request)->refs[0]);
    return TRI_OK;
}
static const tri_rpc_function keep = {.name = "keep", .run = run_keep};

static atomic_int n_makers_held; /* 1: slow_make waits for 0 */

static tri_status run_slow_make(tri_rpc_request *request, void *object)
{
    int64_t until = trii_now_ns() + 30 * TRII_NS_PER_MS;

    while (trii_now_ns() < until || atomic_load(&n_makers_held) > 0)
        trii_thread_yield();
    return run_make(request, object);
}
static const tri_rpc_function slow_make = {.name = "slow_make", .run = run_slow_make};

static tri_rpc_ref *maker_of_promise; /* "w1", as w2 calls it */
static const tri_rpc_function refuse;

/* Replies with a promise: of slow_make, or with data of what fails. */
static tri_status run_promise(tri_rpc_request *request, void *object)
{
    bool fails = tri_rpc_request_message(request)->bytes > 0;
    tri_rpc_ref *ref = NULL;
    tri_status status =
        tri_rpc_remote(maker_of_promise, fails ? &refuse : &slow_make, NULL, NULL, &ref);

    (void)object;
    if (status == TRI_OK)
        status = tri_rpc_reply(request, &(tri_rpc_message){.refs = &ref, .n_refs = 1});
    if (status == TRI_OK && tri_rpc_reply(request, NULL) != TRI_ERR_STATE)
        status = tri_status_fail(TRI_ERR_INTERNAL, "it was answered twice");
    tri_rpc_ref_unref(ref);
    return status;
}
static const tri_rpc_function promise_of = {.name = "promise_of", .run = run_promise};

static tri_status run_refuse(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_status_fail(TRI_ERR_NAN, "nothing is made today");
}
static const tri_rpc_function refuse = {.name = "refuse", .run = run_refuse};

static const tri_rpc_function *const all[] = {&touch, &make,      &pass,   &take,
                                              &keep,  &slow_make, &refuse, &promise_of};

static void begin(workers *w, int n, const tri_rpc_options *opt)
{
    atomic_store(&released, 0);
    kept = NULL;
    workers_begin(w, n, opt);
    for (int i = 0; i < n; i++)
        CHECK_OK(tri_rpc_serve(w->rpc[i], all, (int)TRII_COUNT_OF(all)));
    maker = w->rpc[1];
}

/* Calls the function of the worker with a reference. */
static tri_status call_with(tri_rpc_ref *to, const tri_rpc_function *function, tri_rpc_ref *ref,
                            bool with_data)
{
    return tri_rpc_sync(
        to, function,
        &(tri_rpc_message){.refs = &ref, .n_refs = 1, .data = "k", .bytes = with_data ? 1 : 0},
        NULL, NULL);
}

static tri_rpc_ref *make_at(tri_rpc_ref *to)
{
    tri_rpc_message reply;
    tri_rpc_ref *ref;

    CHECK_OK(tri_rpc_sync(to, &make, NULL, NULL, &reply));
    assert_int_equal(reply.n_refs, 1);
    ref = tri_rpc_ref_ref(reply.refs[0]);
    tri_rpc_message_free(&reply);
    return ref;
}

/* --- cases ---------------------------------------------------------------- */

static void an_object_lives_until_nobody_holds_it(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *to, *object, *again;
        workers w;

        begin(&w, 2, t == 0 ? NULL : &by_tcp);
        to = worker_find(&w, 0, "w1");
        object = make_at(to);
        assert_string_equal(tri_rpc_ref_owner(object), "w1");
        assert_null(tri_rpc_ref_object(object));
        CHECK_OK(tri_rpc_ref_status(object));
        CHECK_OK(tri_rpc_sync(object, &touch, NULL, NULL, NULL));
        again = tri_rpc_ref_ref(object);
        tri_rpc_ref_unref(object);
        CHECK_OK(tri_rpc_sync(again, &touch, NULL, NULL, NULL));
        assert_int_equal(atomic_load(&released), 0);
        /* home and back: the owner's own handle */
        CHECK_OK(call_with(to, &pass, again, false));
        tri_rpc_ref_unref(again);
        worker_wait_for(&released, 1);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static void a_reference_is_passed_on_while_its_giver_drops_it(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *to_owner, *to_third, *object;
        workers w;

        begin(&w, 3, t == 0 ? NULL : &by_tcp);
        to_owner = worker_find(&w, 0, "w1");
        to_third = worker_find(&w, 0, "w2");
        object = make_at(to_owner);
        CHECK_OK(call_with(to_third, &pass, object, true));
        tri_rpc_ref_unref(object);
        for (int i = 0; i < 10; i++)
            CHECK_OK(tri_rpc_sync(kept, &touch, NULL, NULL, NULL));
        assert_int_equal(atomic_load(&released), 0);
        tri_rpc_ref_unref(kept);
        worker_wait_for(&released, 1);
        tri_rpc_ref_unref(to_owner);
        tri_rpc_ref_unref(to_third);
        workers_end(&w);
    }
}

static int n_holds(tri_rpc *rpc)
{
    int n = 0;

    rpc_lock(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next) {
        for (const rpc_hold *hold = p->holds; hold != NULL; hold = hold->next)
            n++;
    }
    rpc_unlock(rpc);
    return n;
}

static void nothing_is_held_after_many_were_passed_on(void **state)
{
    enum { N = TEST_SANITIZED ? 2000 : 20000 };
    const tri_rpc_options one = {.threads = 1};
    tri_rpc_ref *to_owner, *to_third, *object;
    tri_rpc_call *calls[64] = {NULL};
    workers w;

    (void)state;
    begin(&w, 3, &one);
    to_owner = worker_find(&w, 0, "w1");
    to_third = worker_find(&w, 0, "w2");
    object = make_at(to_owner);
    for (int i = 0; i < N; i++) {
        tri_rpc_call **call = &calls[i % 64];

        if (*call != NULL) {
            CHECK_OK(tri_rpc_call_wait(*call, 0));
            tri_rpc_call_destroy(*call);
        }
        CHECK_OK(tri_rpc_async(to_third, &take, &(tri_rpc_message){.refs = &object, .n_refs = 1},
                               NULL, call));
    }
    for (int i = 0; i < 64; i++) {
        CHECK_OK(tri_rpc_call_wait(calls[i], 0));
        tri_rpc_call_destroy(calls[i]);
    }
    assert_int_equal(atomic_load(&released), 0);
    tri_rpc_ref_unref(object);
    worker_wait_for(&released, 1);
    while (n_holds(w.rpc[1]) > 0)
        trii_thread_yield();
    assert_null(w.rpc[0]->intros);
    tri_rpc_ref_unref(to_owner);
    tri_rpc_ref_unref(to_third);
    workers_end(&w);
}

static void a_promise_is_called_and_passed_on_before_it_is_there(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *to_owner, *to_third, *promise;
        tri_rpc_call *touched, *passed;
        workers w;

        begin(&w, 3, t == 0 ? NULL : &by_tcp);
        to_owner = worker_find(&w, 0, "w1");
        to_third = worker_find(&w, 0, "w2");
        atomic_store(&n_makers_held, 1);
        CHECK_OK(tri_rpc_remote(to_owner, &slow_make, NULL, NULL, &promise));
        assert_int_equal(tri_rpc_ref_status(promise), TRI_INPROGRESS);
        assert_string_equal(tri_rpc_ref_owner(promise), "");
        CHECK_OK(tri_rpc_async(promise, &touch, NULL, NULL, &touched));
        CHECK_OK(tri_rpc_async(to_third, &pass, &(tri_rpc_message){.refs = &promise, .n_refs = 1},
                               NULL, &passed));
        assert_int_equal(tri_rpc_call_test(touched), TRI_INPROGRESS);
        atomic_store(&n_makers_held, 0);
        CHECK_OK(tri_rpc_call_wait(passed, 0));
        CHECK_OK(tri_rpc_call_wait(touched, 0));
        CHECK_OK(tri_rpc_ref_status(promise));
        assert_string_equal(tri_rpc_ref_owner(promise), "w1");
        CHECK_OK(tri_rpc_sync(promise, &touch, NULL, NULL, NULL));
        tri_rpc_call_destroy(passed);
        tri_rpc_call_destroy(touched);
        tri_rpc_ref_unref(promise);
        worker_wait_for(&released, 1);
        tri_rpc_ref_unref(to_owner);
        tri_rpc_ref_unref(to_third);
        workers_end(&w);
    }
}

/* The call that makes a promise has ended. */
typedef struct ended {
    atomic_int n;
    tri_status status;
    tri_rpc_ref *ref; /* NULL: its reply had none */
} ended;

static void take_from_done(tri_rpc_call *call, void *arg)
{
    ended *e = arg;
    tri_rpc_message reply = {0};

    e->status = tri_rpc_call_take_reply(call, &reply);
    if (reply.n_refs == 1)
        e->ref = tri_rpc_ref_ref(reply.refs[0]);
    tri_rpc_message_free(&reply);
    atomic_fetch_add(&e->n, 1);
}

static void what_done_takes_of_a_promise_outlives_it(void **state)
{
    ended e = {0};
    const tri_rpc_call_options o = {.done = take_from_done, .arg = &e};
    tri_rpc_ref *to_owner, *to_third, *promise;
    workers w;

    (void)state;
    begin(&w, 3, NULL);
    to_owner = worker_find(&w, 0, "w1");
    to_third = worker_find(&w, 0, "w2");
    CHECK_OK(tri_rpc_remote(to_owner, &make, NULL, &o, &promise));
    worker_wait_for(&e.n, 1);
    assert_int_equal(e.status, TRI_OK);
    assert_non_null(e.ref);
    tri_rpc_ref_unref(promise);
    CHECK_OK(tri_rpc_sync(e.ref, &touch, NULL, NULL, NULL));
    CHECK_OK(
        tri_rpc_sync(to_third, &pass, &(tri_rpc_message){.refs = &e.ref, .n_refs = 1}, NULL, NULL));
    tri_rpc_ref_unref(e.ref);
    worker_wait_for(&released, 1);
    tri_rpc_ref_unref(to_owner);
    tri_rpc_ref_unref(to_third);
    workers_end(&w);
}

static void a_reply_with_a_promise_goes_when_it_is_there(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *to_third, *object;
        tri_rpc_message reply;
        workers w;

        begin(&w, 3, t == 0 ? NULL : &by_tcp);
        to_third = worker_find(&w, 0, "w2");
        maker_of_promise = worker_find(&w, 2, "w1");
        for (int i = 0; i < 3; i++) {
            CHECK_OK(tri_rpc_sync(to_third, &promise_of, NULL, NULL, &reply));
            assert_int_equal(reply.n_refs, 1);
            object = tri_rpc_ref_ref(reply.refs[0]);
            tri_rpc_message_free(&reply);
            assert_string_equal(tri_rpc_ref_owner(object), "w1");
            CHECK_OK(tri_rpc_sync(object, &touch, NULL, NULL, NULL));
            tri_rpc_ref_unref(object);
            worker_wait_for(&released, i + 1);
        }
        CHECK_FAILS(tri_rpc_sync(to_third, &promise_of, &(tri_rpc_message){.data = "f", .bytes = 1},
                                 NULL, NULL),
                    TRI_ERR_NAN, "nothing is made today");
        tri_rpc_ref_unref(maker_of_promise);
        tri_rpc_ref_unref(to_third);
        workers_end(&w);
    }
}

static void a_promise_that_fails_fails_what_waits_for_it(void **state)
{
    tri_rpc_ref *to, *promise, *dropped, *none;
    tri_rpc_call *call;
    workers w;

    (void)state;
    begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_remote(to, &refuse, NULL, NULL, &promise));
    CHECK_OK(tri_rpc_async(promise, &touch, NULL, NULL, &call));
    assert_int_equal(tri_rpc_call_wait(call, 0), TRI_ERR_NAN);
    assert_non_null(strstr(tri_last_error(), "nothing is made today"));
    tri_rpc_call_destroy(call);
    CHECK_FAILS(tri_rpc_ref_status(promise), TRI_ERR_NAN, "nothing is made today");
    CHECK_FAILS(tri_rpc_sync(promise, &touch, NULL, NULL, NULL), TRI_ERR_NAN, "has failed");
    /* a reply without a reference */
    CHECK_OK(tri_rpc_remote(to, &take, &(tri_rpc_message){.refs = &to, .n_refs = 1}, NULL, &none));
    CHECK_FAILS(tri_rpc_sync(none, &touch, NULL, NULL, NULL), TRI_ERR_FORMAT, "no reference");
    /* dropped while it is pending: what is made is released */
    CHECK_OK(tri_rpc_remote(to, &slow_make, NULL, NULL, &dropped));
    tri_rpc_ref_unref(dropped);
    worker_wait_for(&released, 1);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(none);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void a_name_is_waited_for_and_found(void **state)
{
    const tri_rpc_options quick = {.open = true, .timeout_ms = 100};
    tri_rpc_ref *own, *to, *none = NULL;
    tri_rpc *seeker;
    workers w;

    (void)state;
    begin(&w, 2, NULL);
    CHECK_OK(tri_rpc_create(w.store, "seeker", 0, 0, &quick, &seeker));
    CHECK_FAILS(tri_rpc_find(seeker, "w1/later", &none), TRI_ERR_TIMEOUT, "rpc_find: w1/later");
    CHECK_FAILS(tri_rpc_find(seeker, "nobody", &none), TRI_ERR_TIMEOUT, "no worker nobody");
    CHECK_OK(tri_rpc_leave(seeker, 20000));
    tri_rpc_destroy(seeker);
    CHECK_OK(tri_rpc_own(w.rpc[1], "later", &counted, &released, &own));
    CHECK_FAILS(tri_rpc_own(w.rpc[1], "later", &counted, &released, &none), TRI_ERR_STATE,
                "w1 has an object later already");
    to = worker_find(&w, 0, "w1/later");
    CHECK_OK(tri_rpc_sync(to, &touch, NULL, NULL, NULL));
    tri_rpc_ref_unref(own);
    tri_rpc_ref_unref(to);
    to = worker_find(&w, 1, "w1/later"); /* one's own */
    CHECK_OK(tri_rpc_sync(to, &touch, NULL, NULL, NULL));
    tri_rpc_ref_unref(to);
    workers_end(&w);
    assert_int_equal(atomic_load(&released), 1);
}

static void what_a_lost_worker_held_is_released(void **state)
{
    tri_rpc_ref *to_owner, *to_third, *object;
    workers w;

    (void)state;
    begin(&w, 3, NULL);
    to_owner = worker_find(&w, 0, "w1");
    to_third = worker_find(&w, 0, "w2");
    object = make_at(to_owner);
    /* the third holds it, and has never had a connection with the owner: only w0 sees it die */
    CHECK_OK(call_with(to_third, &take, object, true));
    CHECK_OK(call_with(to_third, &keep, object, true));
    tri_rpc_ref_unref(object);
    CHECK_OK(tri_rpc_sync(to_owner, &take, &(tri_rpc_message){.refs = &to_owner, .n_refs = 1}, NULL,
                          NULL));
    assert_int_equal(atomic_load(&released), 0);
    while (n_holds(w.rpc[1]) > 1) /* that of the call that took it goes when the call has ended */
        trii_thread_yield();
    assert_int_equal(n_holds(w.rpc[1]), 1);
    tri_rpc_abort(w.rpc[2], "killed");
    worker_wait_for(&released, 1);
    assert_int_equal(n_holds(w.rpc[1]), 0);
    CHECK_FAILS(tri_rpc_sync(kept, &touch, NULL, NULL, NULL), TRI_ERR_ABORTED, "killed");
    tri_rpc_ref_unref(kept);
    tri_rpc_ref_unref(to_owner);
    tri_rpc_ref_unref(to_third);
    tri_rpc_abort(w.rpc[0], "end");
    tri_rpc_abort(w.rpc[1], "end");
    workers_destroy(&w);
}

/* Nobody but the message refers to it while it is on its way. */
static void an_object_goes_to_its_own_worker(void **state)
{
    workers w;

    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *self;

        begin(&w, 2, t == 0 ? NULL : &by_tcp);
        self = worker_find(&w, 1, "w1");
        for (int i = 0; i < 500; i++) {
            tri_rpc_message reply;
            tri_rpc_call *call;

            CHECK_OK(tri_rpc_async(self, &make, NULL, NULL, &call));
            while (tri_rpc_call_test(call) == TRI_INPROGRESS)
                trii_thread_yield();
            CHECK_OK(tri_rpc_call_take_reply(call, &reply));
            tri_rpc_call_destroy(call);
            CHECK_OK(tri_rpc_sync(reply.refs[0], &touch, NULL, NULL, NULL));
            assert_int_equal(atomic_load(&released), i);
            tri_rpc_message_free(&reply);
            worker_wait_for(&released, i + 1);
        }
        assert_int_equal(n_holds(w.rpc[1]), 0);
        tri_rpc_ref_unref(self);
        workers_end(&w);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_object_lives_until_nobody_holds_it),
    cmocka_unit_test(a_reference_is_passed_on_while_its_giver_drops_it),
    cmocka_unit_test(nothing_is_held_after_many_were_passed_on),
    cmocka_unit_test(a_promise_is_called_and_passed_on_before_it_is_there),
    cmocka_unit_test(what_done_takes_of_a_promise_outlives_it),
    cmocka_unit_test(a_reply_with_a_promise_goes_when_it_is_there),
    cmocka_unit_test(a_promise_that_fails_fails_what_waits_for_it),
    cmocka_unit_test(a_name_is_waited_for_and_found),
    cmocka_unit_test(what_a_lost_worker_held_is_released),
    cmocka_unit_test(an_object_goes_to_its_own_worker),
};

TEST_MAIN(tests)
