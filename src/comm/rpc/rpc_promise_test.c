/*
 * rpc_promise_test.c - calls on references that are not there yet: they wait where those are made.
 */
#include "testing/rpc_promises.h"

enum { CALLS = PROMISE_CALLS, LONG = TEST_SANITIZED ? 1000 : 8000 };

/* --- functions ------------------------------------------------------------ */

static const tri_rpc_function make = {.name = "make", .run = run_make};

typedef struct book {
    int notes[2 * CALLS];
    atomic_int n;
    tri_rpc_ref *self; /* replied by `same`; NULL = none */
} book;

static tri_status run_note(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    book *b = object;

    if (b == NULL || in->bytes != sizeof(int))
        return tri_status_fail(TRI_ERR_INTERNAL, "no book, or no number");
    memcpy(&b->notes[atomic_load(&b->n)], in->data, sizeof(int));
    atomic_fetch_add(&b->n, 1);
    return TRI_OK;
}
static const tri_rpc_object book_type = {.name = "book", .serial = true};
static const tri_rpc_function note = {.name = "note", .run = run_note, .of = &book_type};
static const tri_rpc_function note_at_once = {
    .name = "note_at_once", .flags = TRI_RPC_INLINE, .run = run_note};

static tri_status run_same(tri_rpc_request *request, void *object)
{
    book *b = object;

    return tri_rpc_reply(request, &(tri_rpc_message){.refs = &b->self, .n_refs = 1});
}
static const tri_rpc_function same = {.name = "same", .run = run_same};

static const tri_rpc_object table_type = {.name = "table"};
static const tri_rpc_function *const all[] = {&make, &note, &note_at_once, &same};

static void begin(workers *w, int n, const tri_rpc_options *opt)
{
    promises_begin(w, n, opt, all, (int)TRII_COUNT_OF(all));
}

static int count_results(tri_rpc *rpc)
{
    int n = 0;

    rpc_lock(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
        n += p->n_results;
    rpc_unlock(rpc);
    return n;
}

/* The caller's last word of its promises is on its way at most. */
static void wait_for_no_results(tri_rpc *rpc)
{
    int64_t deadline = trii_deadline_ms(10000);

    while (count_results(rpc) > 0) {
        if (trii_now_ns() > deadline)
            fail_msg("%d results are kept", count_results(rpc));
        trii_thread_yield();
    }
}

/* --- cases ---------------------------------------------------------------- */

static void calls_wait_where_their_target_is_made(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *to, *first, *second, *third;
        tri_rpc_call *call;
        book b = {.n = 0};
        workers w;

        begin(&w, 2, t == 0 ? NULL : &by_tcp);
        to = worker_find(&w, 0, "w1");
        CHECK_OK(tri_rpc_own(w.rpc[1], NULL, &book_type, &b, &b.self));
        CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &first));
        CHECK_OK(tri_rpc_remote(first, &same, NULL, NULL, &second));
        CHECK_OK(tri_rpc_remote(second, &same, NULL, NULL, &third));
        call = call_note(third, &note, 7);
        wait_for_requests(w.rpc[1], 4); /* all of them in one way there */
        assert_int_equal(atomic_load(&b.n), 0);
        assert_int_equal(tri_rpc_ref_status(third), TRI_INPROGRESS);
        worker_wait_for(&n_held, 1);
        answer(0, b.self);
        end_call(call);
        assert_int_equal(atomic_load(&b.n), 1);
        assert_int_equal(b.notes[0], 7);
        CHECK_OK(tri_rpc_ref_status(third));
        assert_string_equal(tri_rpc_ref_owner(third), "w1");
        wait_for_no_results(w.rpc[1]);
        tri_rpc_ref_unref(first);
        tri_rpc_ref_unref(second);
        tri_rpc_ref_unref(third);
        tri_rpc_ref_unref(b.self);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* Calls that are made when the promise is there and the first of those on their way comes back. */
static struct {
    rpc_upcalls up;
    const rpc_upcalls *real;
    tri_rpc_ref *promise;
    tri_rpc_call **calls;
    int n_piped; /* then */
    tri_status status;
    atomic_int n;
} late;

static void call_late(rpc_peer *peer, const rpc_header *h, rpc_source *source)
{
    if ((h->flags & RPC_OF_PROMISE) != 0 && atomic_load(&late.n) == 0) {
        late.n_piped = late.promise->n_piped;
        rpc_unlock(peer->rpc);
        for (int i = CALLS / 2; i < CALLS && late.status == TRI_OK; i++)
            late.status = start_note(late.promise, &note, i, &late.calls[i]);
        rpc_lock(peer->rpc);
        atomic_store(&late.n, 1);
    }
    late.real->reply(peer, h, source);
}

static void arrange_late(tri_rpc *rpc, tri_rpc_ref *promise, tri_rpc_call **calls)
{
    rpc_lock(rpc);
    late.real = rpc->up;
    late.up = *rpc->up;
    late.up.reply = call_late;
    late.promise = promise;
    late.calls = calls;
    late.status = TRI_OK;
    atomic_store(&late.n, 0);
    rpc->up = &late.up;
    rpc_unlock(rpc);
}

/* Half of the calls before the promise is there, half after; the object is of worker `owner`. */
static void check_order(const char *owner, const tri_rpc_options *opt, bool inlined)
{
    const tri_rpc_function *function = inlined ? &note_at_once : &note;
    int at = owner[1] - '0';
    tri_rpc_ref *to, *promise, *made;
    tri_rpc_call *calls[CALLS];
    book b = {.n = 0};
    workers w;

    begin(&w, 3, opt);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_own(w.rpc[at], at == 1 ? NULL : "book", &book_type, &b, &b.self));
    made = at == 1 ? tri_rpc_ref_ref(b.self) : worker_find(&w, 1, at == 0 ? "w0/book" : "w2/book");
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &promise));
    tri_rpc_ref_unref(worker_find(&w, 0, owner)); /* connected: nothing later waits for that */
    for (int i = 0; i < CALLS / 2; i++)
        calls[i] = call_note(promise, function, i);
    worker_wait_for(&n_held, 1);
    if (at != 1)
        arrange_late(w.rpc[0], promise, calls);
    answer(0, made);
    if (at != 1) {
        worker_wait_for(&late.n, 1);
        assert_int_equal(late.n_piped, CALLS / 2);
        assert_int_equal(late.status, TRI_OK);
    }
    for (int i = CALLS / 2; i < CALLS && at == 1; i++)
        calls[i] = call_note(promise, function, i);
    for (int i = 0; i < CALLS; i++)
        end_call(calls[i]);
    assert_int_equal(atomic_load(&b.n), CALLS);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(b.notes[i], i);
    assert_string_equal(tri_rpc_ref_owner(promise), owner);
    wait_for_no_results(w.rpc[1]);
    tri_rpc_ref_unref(made);
    tri_rpc_ref_unref(b.self);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void calls_before_and_after_start_in_order(void **state)
{
    (void)state;
    for (int n = 0; n < 5; n++) {
        check_order("w1", NULL, false);
        check_order("w1", &by_tcp, false);
        check_order("w1", NULL, true);
    }
}

static void what_a_third_worker_owns_is_called_there_in_order(void **state)
{
    (void)state;
    for (int n = 0; n < 5; n++) {
        check_order("w2", NULL, false);
        check_order("w2", &by_tcp, false);
        check_order("w0", NULL, false); /* the caller's own */
    }
}

static void a_chain_of_promises_moves_to_the_third_worker(void **state)
{
    tri_rpc_ref *to, *first, *second, *made;
    tri_rpc_call *calls[CALLS];
    book b = {.n = 0};
    workers w;

    (void)state;
    begin(&w, 3, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_own(w.rpc[2], "book", &book_type, &b, &b.self));
    made = worker_find(&w, 1, "w2/book");
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &first));
    CHECK_OK(tri_rpc_remote(first, &same, NULL, NULL, &second));
    for (int i = 0; i < CALLS / 2; i++)
        calls[i] = call_note(second, &note, i);
    wait_for_requests(w.rpc[1], 2 + CALLS / 2);
    worker_wait_for(&n_held, 1);
    answer(0, made);
    for (int i = CALLS / 2; i < CALLS; i++)
        calls[i] = call_note(second, &note, i);
    for (int i = 0; i < CALLS; i++)
        end_call(calls[i]);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(b.notes[i], i);
    assert_string_equal(tri_rpc_ref_owner(second), "w2");
    wait_for_no_results(w.rpc[1]);
    wait_for_no_results(w.rpc[2]);
    tri_rpc_ref_unref(made);
    tri_rpc_ref_unref(b.self);
    tri_rpc_ref_unref(first);
    tri_rpc_ref_unref(second);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* The first is kept until there is a second. */
static tri_rpc_request *alone;
static tri_status run_pair(tri_rpc_request *request, void *object)
{
    tri_rpc_request *other = alone;

    (void)object;
    alone = other == NULL ? request : NULL;
    return other == NULL ? TRI_INPROGRESS : tri_rpc_reply(other, NULL);
}
static const tri_rpc_function make_pair = {.name = "pair", .run = run_pair, .of = &book_type};

/* Those that have moved go first, and that is all: they need not end before others go. */
static void what_has_moved_holds_nothing_up(void **state)
{
    tri_rpc_ref *to, *first, *second, *made;
    tri_rpc_call *calls[2];
    book b = {.n = 0};
    workers w;

    (void)state;
    begin(&w, 3, NULL);
    worker_serve(&w, 2, &make_pair); /* and not where they wait before */
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_own(w.rpc[2], "book", &book_type, &b, &b.self));
    made = worker_find(&w, 1, "w2/book");
    tri_rpc_ref_unref(worker_find(&w, 0, "w2"));
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &first));
    CHECK_OK(tri_rpc_remote(first, &make, NULL, NULL, &second));
    CHECK_OK(tri_rpc_async(second, &make_pair, NULL, NULL, &calls[0]));
    wait_for_requests(w.rpc[1], 3);
    worker_wait_for(&n_held, 1);
    answer(0, made);
    worker_wait_for(&n_held, 2);
    wait_for_requests(w.rpc[2], 2); /* both have moved */
    CHECK_OK(tri_rpc_async(second, &make_pair, NULL, NULL, &calls[1]));
    wait_for_requests(w.rpc[2], 3);
    answer(1, b.self);
    for (int i = 0; i < 2; i++)
        end_call(calls[i]);
    tri_rpc_ref_unref(made);
    tri_rpc_ref_unref(b.self);
    tri_rpc_ref_unref(first);
    tri_rpc_ref_unref(second);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void what_waits_for_a_promise_is_cancelled_or_fails_with_it(void **state)
{
    tri_rpc_ref *to, *first, *second;
    tri_rpc_call *cancelled, *call;
    workers w;

    (void)state;
    begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &first));
    CHECK_OK(tri_rpc_remote(first, &same, NULL, NULL, &second));
    cancelled = call_note(second, &note, 1);
    call = call_note(second, &note, 2);
    wait_for_requests(w.rpc[1], 4);
    tri_rpc_call_cancel(cancelled);
    wait_for_requests(w.rpc[1], 3);
    CHECK_FAILS(tri_rpc_call_wait(cancelled, 0), TRI_ERR_ABORTED, "note on w1");
    worker_wait_for(&n_held, 1);
    (void)tri_status_fail(TRI_ERR_NAN, "no books today");
    tri_rpc_fail(held[0], TRI_ERR_NAN);
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_NAN, "no books today");
    tri_rpc_call_destroy(call);
    call = call_note(second, &note, 3);
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_NAN, "note on w1: NAN: a reference that it");
    CHECK_FAILS(tri_rpc_ref_status(second), TRI_ERR_NAN, "no books today");
    wait_for_requests(w.rpc[1], 0);
    wait_for_no_results(w.rpc[1]);
    tri_rpc_call_destroy(cancelled);
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(first);
    tri_rpc_ref_unref(second);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void a_function_does_not_run_on_what_it_is_not_for(void **state)
{
    tri_rpc_ref *to, *promise, *table;
    tri_rpc_call *call;
    workers w;

    (void)state;
    begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_own(w.rpc[1], NULL, &table_type, NULL, &table));
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &promise));
    call = call_note(promise, &note, 1);
    wait_for_requests(w.rpc[1], 2);
    worker_wait_for(&n_held, 1);
    answer(0, table);
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_INVALID_ARG,
                "not for one of the kind \"table\"");
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(table);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* Half of the window is left for what the maker needs. */
static void what_waits_leaves_room_for_other_calls(void **state)
{
    const tri_rpc_options narrow = {.window_calls = 8};
    tri_rpc_ref *to, *promise, *other;
    tri_rpc_call *calls[20];
    book b = {.n = 0};
    workers w;

    (void)state;
    begin(&w, 2, &narrow);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_own(w.rpc[1], "book", &book_type, &b, &b.self));
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &promise));
    for (int i = 0; i < 20; i++)
        calls[i] = call_note(promise, &note, i);
    CHECK_OK(tri_rpc_remote(to, &make, NULL, &(tri_rpc_call_options){.no_wait = true}, &other));
    worker_wait_for(&n_held, 2);
    answer(1, b.self);
    answer(0, b.self);
    for (int i = 0; i < 20; i++)
        end_call(calls[i]);
    tri_rpc_ref_unref(other);
    for (int i = 0; i < 20; i++)
        assert_int_equal(b.notes[i], i);
    tri_rpc_ref_unref(b.self);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void a_lost_caller_leaves_nothing_behind(void **state)
{
    tri_rpc_ref *to, *first, *second;
    book b = {.n = 0};
    workers w;

    (void)state;
    begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_own(w.rpc[1], NULL, &book_type, &b, &b.self));
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &first));
    CHECK_OK(tri_rpc_remote(first, &same, NULL, NULL, &second));
    tri_rpc_call_destroy(call_note(second, &note, 1));
    wait_for_requests(w.rpc[1], 3);
    worker_wait_for(&n_held, 1);
    tri_rpc_abort(w.rpc[0], "it dies");
    while (!tri_rpc_request_is_cancelled(held[0]))
        trii_thread_yield();
    answer(0, b.self);
    wait_for_requests(w.rpc[1], 0);
    wait_for_no_results(w.rpc[1]);
    assert_int_equal(atomic_load(&b.n), 0); /* nobody waits for it */
    tri_rpc_ref_unref(b.self);
    tri_rpc_ref_unref(first);
    tri_rpc_ref_unref(second);
    tri_rpc_ref_unref(to);
    workers_destroy(&w);
}

/* It answers when it has been destroyed. */
static void a_destroyed_maker_leaves_nothing_behind(void **state)
{
    tri_rpc_ref *to, *promise;
    tri_rpc_call *call;
    book b = {.n = 0};
    workers w;

    (void)state;
    begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_own(w.rpc[1], NULL, &book_type, &b, &b.self));
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &promise));
    call = call_note(promise, &note, 1);
    wait_for_requests(w.rpc[1], 2);
    worker_wait_for(&n_held, 1);
    tri_rpc_destroy(w.rpc[1]);
    w.rpc[1] = NULL;
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_PEER_LOST, "w1");
    answer(0, b.self);
    tri_rpc_ref_unref(b.self);
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(to);
    workers_destroy(&w);
    assert_int_equal(atomic_load(&b.n), 0);
}

static void refuse_main(void *arg)
{
    (void)tri_status_fail(TRI_ERR_NAN, "no books today");
    tri_rpc_fail(arg, TRI_ERR_NAN);
}

/* Neither side goes through it by recursion: a stack is not as long. */
static void a_long_chain_of_promises_fails_as_one(void **state)
{
    const tri_rpc_options wide = {.window_calls = 2 * LONG + 4};
    static tri_rpc_ref *refs[LONG + 1];
    trii_thread thread;
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, 2, &wide);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &refs[0]));
    for (int i = 1; i <= LONG; i++)
        CHECK_OK(tri_rpc_remote(refs[i - 1], &same, NULL, NULL, &refs[i]));
    wait_for_requests(w.rpc[1], LONG + 1);
    worker_wait_for(&n_held, 1);
    CHECK_OK(trii_thread_start(&thread, "refuser", refuse_main, held[0]));
    trii_thread_join(&thread);
    while (tri_rpc_ref_status(refs[LONG]) == TRI_INPROGRESS)
        trii_thread_yield();
    CHECK_FAILS(tri_rpc_ref_status(refs[LONG]), TRI_ERR_NAN,
                "a reference that it needs has failed");
    wait_for_requests(w.rpc[1], 0);
    for (int i = 0; i <= LONG; i++)
        tri_rpc_ref_unref(refs[i]);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* A worker that never says that it names a result no more. */
static void forget_to_free(rpc_peer *peer, const rpc_header *h, rpc_source *source)
{
    tri_rpc_call *call = rpc_call_at(peer->rpc, h->call);

    if (call != NULL)
        call->keeps = false;
    late.real->reply(peer, h, source);
}

static void results_that_are_never_freed_are_bounded(void **state)
{
    const tri_rpc_options narrow = {.window_calls = 4};
    tri_rpc_ref *to, *refs[6];
    tri_status status = TRI_OK;
    book b = {.n = 0};
    int n = 0;
    workers w;

    (void)state;
    begin(&w, 2, &narrow);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_own(w.rpc[1], "book", &book_type, &b, &b.self));
    tri_rpc_ref_unref(to);
    to = worker_find(&w, 0, "w1/book");
    arrange_late(w.rpc[0], NULL, NULL);
    late.up.reply = forget_to_free;
    for (; n < 6 && status == TRI_OK; n++) {
        CHECK_OK(tri_rpc_remote(to, &same, NULL, NULL, &refs[n]));
        while ((status = tri_rpc_ref_status(refs[n])) == TRI_INPROGRESS)
            trii_thread_yield();
    }
    assert_int_equal(n, 5);
    assert_int_equal(status, TRI_ERR_PEER_LOST);
    wait_for_no_results(w.rpc[1]);
    while (n-- > 0)
        tri_rpc_ref_unref(refs[n]);
    tri_rpc_ref_unref(b.self);
    tri_rpc_ref_unref(to);
    workers_destroy(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_destroyed_maker_leaves_nothing_behind),
    cmocka_unit_test(a_function_does_not_run_on_what_it_is_not_for),
    cmocka_unit_test(a_long_chain_of_promises_fails_as_one),
    cmocka_unit_test(results_that_are_never_freed_are_bounded),
    cmocka_unit_test(calls_wait_where_their_target_is_made),
    cmocka_unit_test(calls_before_and_after_start_in_order),
    cmocka_unit_test(what_a_third_worker_owns_is_called_there_in_order),
    cmocka_unit_test(a_chain_of_promises_moves_to_the_third_worker),
    cmocka_unit_test(what_has_moved_holds_nothing_up),
    cmocka_unit_test(what_waits_for_a_promise_is_cancelled_or_fails_with_it),
    cmocka_unit_test(what_waits_leaves_room_for_other_calls),
    cmocka_unit_test(a_lost_caller_leaves_nothing_behind),
};

TEST_MAIN(tests)
