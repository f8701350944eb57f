/*
 * rpc_states_test.c - a worker is killed in each state that a call, a reply or a reference passed
 * on can be in: nobody waits for it, and nothing is held for it.
 * ctest: start=first
 */
#include "base/alloc.h"
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_children.h"

#define MIB ((size_t)1 << 20)

static const tri_rpc_options by_tcp = {.tcp_only = true};

/* --- functions ------------------------------------------------------------ */

static const tri_rpc_function hang = {.name = "hang", .run = child_hang};

static tri_status run_ping(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function ping = {.name = "ping", .flags = TRI_RPC_INLINE, .run = run_ping};

/* Replies with so many bytes and is gone, while they are on their way: ThreadSanitizer lets a
 * process that exits live for a second. */
static tri_status run_reply_and_die(tri_rpc_request *request, void *object)
{
    const size_t bytes = *(const size_t *)tri_rpc_request_message(request)->data;
    const tri_rpc_part part = {calloc(1, bytes), bytes};

    (void)object;
    if (part.data == NULL ||
        tri_rpc_reply(request, &(tri_rpc_message){.parts = &part, .n_parts = 1}) != TRI_OK)
        return TRI_ERR_INTERNAL;
    (void)raise(SIGKILL);
    return TRI_OK;
}
static const tri_rpc_function reply_and_die = {
    .name = "reply_and_die", .max_part = 64 * MIB, .run = run_reply_and_die};

/* OK while this child has a call on its way. */
static tri_status run_calls(tri_rpc_request *request, void *object)
{
    tri_rpc *rpc = request->rpc; /* open_worker may not have returned */
    bool calls;

    (void)object;
    rpc_lock(rpc);
    calls = rpc->in_flight > 0;
    rpc_unlock(rpc);
    return calls ? TRI_OK : TRI_ERR_STATE;
}
static const tri_rpc_function calls = {.name = "calls", .flags = TRI_RPC_INLINE, .run = run_calls};

/* OK once a call waits for credits. */
static tri_status run_starves(tri_rpc_request *request, void *object)
{
    tri_rpc *rpc = request->rpc;
    bool starves = false;

    (void)object;
    rpc_lock(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
        starves = starves || p->starved.first != NULL;
    rpc_unlock(rpc);
    return starves ? TRI_OK : TRI_ERR_STATE;
}
static const tri_rpc_function starves = {.name = "starves", .run = run_starves};

static void nothing(void *object)
{
    (void)object;
}
static const tri_rpc_object plain = {.name = "plain", .release = nothing};

/* Makes an object of the child's. */
static tri_status run_make(tri_rpc_request *request, void *object)
{
    tri_rpc_ref *ref = NULL;
    tri_status status = tri_rpc_own(request->rpc, NULL, &plain, &child_number, &ref);

    (void)object;
    if (status == TRI_OK)
        status = tri_rpc_reply(request, &(tri_rpc_message){.refs = &ref, .n_refs = 1});
    tri_rpc_ref_unref(ref);
    return status;
}
static const tri_rpc_function make = {.name = "make", .run = run_make};

static tri_rpc_ref *kept;

static tri_status run_keep(tri_rpc_request *request, void *object)
{
    (void)object;
    kept = tri_rpc_ref_ref(tri_rpc_request_message(request)->refs[0]);
    return TRI_OK;
}
static const tri_rpc_function keep = {.name = "keep", .run = run_keep};

/* Calls what it has kept. */
static tri_status run_touch_kept(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_rpc_sync(kept, &ping, NULL, NULL, NULL);
}
static const tri_rpc_function touch_kept = {.name = "touch_kept", .run = run_touch_kept};

/* Passes what it is given on to the worker "c", and keeps nothing. */
static tri_status run_give(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    tri_rpc_ref *c = NULL;
    tri_status status = tri_rpc_find(request->rpc, "c", &c);

    (void)object;
    if (status == TRI_OK)
        status =
            tri_rpc_sync(c, &keep, &(tri_rpc_message){.refs = in->refs, .n_refs = 1}, NULL, NULL);
    tri_rpc_ref_unref(c);
    return status;
}
static const tri_rpc_function give = {.name = "give", .run = run_give};

static const tri_rpc_function *const all[] = {&hang,       &ping, &reply_and_die, &make, &keep,
                                              &touch_kept, &give, &starves,       &calls};

static void begin(void)
{
    scratch_begin(&child_folder);
    child_joins = false;
    child_functions = all;
    child_n_functions = (int)TRII_COUNT_OF(all);
}

static tri_rpc_ref *find(tri_rpc *rpc, const char *name)
{
    tri_rpc_ref *ref = NULL;

    CHECK_OK(tri_rpc_find(rpc, name, &ref));
    return ref;
}

static tri_status pass(tri_rpc_ref *to, const tri_rpc_function *function, tri_rpc_ref *ref)
{
    return tri_rpc_sync(to, function, &(tri_rpc_message){.refs = &ref, .n_refs = 1}, NULL, NULL);
}

static void leave(tri_rpc *rpc)
{
    CHECK_OK(tri_rpc_leave(rpc, 20000));
    tri_rpc_destroy(rpc);
}

/* --- a call --------------------------------------------------------------- */

static void a_call_that_waits_for_credits_was_not_sent(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options o = {.tcp_only = t == 1, .window_calls = 1};
        const tri_rpc_call_options forever = {.timeout_ms = TRI_FOREVER};
        tri_rpc_call *call;
        tri_rpc_ref *ps;
        tri_rpc *rpc;
        int killer;
        child c;

        begin();
        child_fork(&c, "ps", 1, &o);
        child_go(&c);
        killer = test_fork(); /* kills it while this thread waits */
        if (killer == 0) {
            tri_rpc *third = open_worker("killer", NULL);
            tri_rpc_ref *trainer = NULL;

            TRI_TRY(tri_rpc_find(third, "trainer", &trainer));
            while (tri_rpc_sync(trainer, &starves, NULL, NULL, NULL) == TRI_ERR_STATE)
                trii_thread_yield();
            tri_rpc_ref_unref(trainer);
            kill(c.pid, SIGKILL);
            tri_rpc_destroy(third);
            _exit(0);
        }
        rpc = open_worker("trainer", &o);
        ps = find(rpc, "ps");
        CHECK_OK(tri_rpc_async(ps, &hang, NULL, &forever, &call));
        CHECK_FAILS(tri_rpc_sync(ps, &hang, NULL, &forever, NULL), TRI_ERR_PEER_LOST,
                    "before it was sent");
        CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_PEER_LOST, "perhaps executed");
        tri_rpc_call_destroy(call);
        tri_rpc_ref_unref(ps);
        leave(rpc);
        assert_int_equal(waitpid(killer, NULL, 0), killer);
        children_end(&c, 1);
    }
}

/* What is in shared memory is whole, and read after its writer's end; a stream may end within. */
static void a_reply_whose_writer_dies_is_whole_or_lost(void **state)
{
    static const size_t sizes[] = {100, (TEST_SANITIZED ? 16 : 64) * MIB}; /* no socket's buffer */

    (void)state;
    for (int t = 0; t < 4; t++) {
        const tri_rpc_options o = {.tcp_only = t % 2 == 1};
        const size_t bytes = sizes[t / 2];
        tri_rpc_message reply = {0};
        tri_status status;
        tri_rpc_ref *ps;
        tri_rpc *rpc;
        child c;

        begin();
        child_fork(&c, "ps", 1, &o);
        child_go(&c);
        rpc = open_worker("trainer", &o);
        ps = find(rpc, "ps");
        status =
            tri_rpc_sync(ps, &reply_and_die,
                         &(tri_rpc_message){.data = &bytes, .bytes = sizeof(bytes)}, NULL, &reply);
        if (status == TRI_OK) {
            assert_int_equal(reply.parts[0].bytes, bytes);
            assert_int_equal(((const char *)reply.parts[0].data)[bytes - 1], 0);
        } else {
            assert_int_equal(status, TRI_ERR_PEER_LOST);
            assert_int_equal(t % 2, 1);
        }
        tri_rpc_message_free(&reply);
        do /* its end takes a moment */
            status = tri_rpc_sync(ps, &ping, NULL, NULL, NULL);
        while (status == TRI_OK);
        assert_int_equal(status, TRI_ERR_PEER_LOST);
        tri_rpc_ref_unref(ps);
        leave(rpc);
        children_end(&c, 1);
    }
}

static void one_that_is_killed_while_it_leaves_is_not_waited_for(void **state)
{
    const tri_rpc_call_options forever = {.timeout_ms = TRI_FOREVER};
    tri_rpc_call *call;
    tri_rpc_ref *ps;
    tri_rpc *rpc;
    child c;
    bool leaves = false;

    (void)state;
    begin();
    child_fork(&c, "ps", 1, NULL);
    child_go(&c);
    rpc = open_worker("trainer", NULL);
    ps = find(rpc, "ps");
    CHECK_OK(tri_rpc_async(ps, &hang, NULL, &forever, &call));
    CHECK_OK(tri_rpc_sync(ps, &ping, NULL, NULL, NULL));
    assert_int_equal(kill(c.pid, SIGUSR1), 0); /* it leaves, and waits for `hang` */
    while (!leaves) {
        rpc_lock(rpc);
        for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
            leaves = leaves || p->leaving;
        rpc_unlock(rpc);
        trii_thread_yield();
    }
    CHECK_FAILS(tri_rpc_sync(ps, &ping, NULL, NULL, NULL), TRI_ERR_STATE, "worker ps is leaving");
    child_kill(&c);
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_PEER_LOST, "perhaps executed");
    tri_rpc_call_destroy(call);
    CHECK_OK(tri_rpc_join(rpc, 20000));
    tri_rpc_ref_unref(ps);
    leave(rpc);
    children_end(&c, 1);
}

/* --- a reference ---------------------------------------------------------- */

/* The owner has not said yet that it knows of the next holder. */
static bool introduces(tri_rpc *rpc)
{
    bool does;

    rpc_lock(rpc);
    does = rpc->intros != NULL;
    rpc_unlock(rpc);
    return does;
}

static void an_owner_that_dies_while_its_reference_is_passed_on(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options *o = t == 0 ? NULL : &by_tcp;
        tri_rpc_ref *b, *c, *object;
        tri_rpc_message reply;
        tri_rpc *rpc;
        child children[2];

        begin();
        child_fork(&children[0], "b", 1, o);
        child_fork(&children[1], "c", 1, o);
        child_go(&children[0]);
        child_go(&children[1]);
        rpc = open_worker("a", o);
        b = find(rpc, "b");
        c = find(rpc, "c");
        CHECK_OK(tri_rpc_sync(b, &make, NULL, NULL, &reply));
        object = tri_rpc_ref_ref(reply.refs[0]);
        tri_rpc_message_free(&reply);
        child_stop(&children[0]); /* it does not read that c will hold it */
        CHECK_OK(pass(c, &keep, object));
        assert_true(introduces(rpc));
        child_kill(&children[0]);
        CHECK_FAILS(tri_rpc_sync(c, &touch_kept, NULL, NULL, NULL), TRI_ERR_PEER_LOST, "ping on b");
        CHECK_FAILS(tri_rpc_sync(object, &ping, NULL, NULL, NULL), TRI_ERR_PEER_LOST, "b");
        assert_false(introduces(rpc));
        CHECK_FAILS(tri_rpc_ref_status(object), TRI_ERR_PEER_LOST, "b (host ");
        tri_rpc_ref_unref(object);
        tri_rpc_ref_unref(b);
        tri_rpc_ref_unref(c);
        child_kill(&children[1]);
        leave(rpc);
        children_end(children, 2);
    }
}

static atomic_int released;

static void count_release(void *object)
{
    (void)object;
    atomic_fetch_add(&released, 1);
}
static const tri_rpc_object counted = {.name = "counted", .release = count_release};

static void wait_for_release(void)
{
    int64_t deadline = trii_deadline_ms(20000);

    while (atomic_load(&released) == 0) {
        if (trii_now_ns() > deadline)
            fail_msg("it is held still");
        trii_thread_yield();
    }
}

static bool is_held(tri_rpc *rpc)
{
    bool held = false;

    rpc_lock(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
        held = held || p->holds != NULL;
    rpc_unlock(rpc);
    return held;
}

/* The owner is this process; "a" passes its object on to "c", which it has never met. */
static void a_holder_that_dies_holds_nothing(void **state)
{
    enum { GIVER_FIRST, HOLDER_ONLY, HOLDER_STOPPED };

    (void)state;
    for (int how = GIVER_FIRST; how <= HOLDER_STOPPED; how++) {
        tri_rpc_ref *a, *own;
        tri_rpc *rpc;
        child children[2];
        tri_rpc_call *call;
        tri_status status;

        begin();
        atomic_store(&released, 0);
        child_fork(&children[0], "a", 1, NULL);
        child_fork(&children[1], "c", 1, NULL);
        child_go(&children[0]);
        child_go(&children[1]);
        rpc = open_worker("b", NULL);
        CHECK_OK(tri_rpc_own(rpc, NULL, &counted, &released, &own));
        a = find(rpc, "a");
        CHECK_OK(pass(a, &give, own));
        if (how == HOLDER_STOPPED) { /* one more, on its way for ever */
            child_stop(&children[1]);
            CHECK_OK(tri_rpc_async(a, &give, &(tri_rpc_message){.refs = &own, .n_refs = 1}, NULL,
                                   &call));
            do
                status = tri_rpc_sync(a, &calls, NULL, NULL, NULL);
            while (status == TRI_ERR_STATE);
            assert_int_equal(status, TRI_OK);
        }
        tri_rpc_ref_unref(own);
        assert_int_equal(atomic_load(&released), 0);
        if (how == GIVER_FIRST) { /* nobody is left who would tell us of c's end */
            child_kill(&children[0]);
            assert_true(is_held(rpc));
        }
        child_kill(&children[1]);
        if (how == HOLDER_STOPPED) {
            CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_PEER_LOST, "keep on c");
            tri_rpc_call_destroy(call);
        }
        wait_for_release();
        assert_false(is_held(rpc));
        tri_rpc_ref_unref(a);
        if (how != GIVER_FIRST)
            child_kill(&children[0]);
        leave(rpc);
        children_end(children, 2);
    }
}

static void one_that_leaves_with_a_reference_holds_nothing(void **state)
{
    tri_rpc_ref *a, *own;
    tri_rpc *rpc;
    child children[2];

    (void)state;
    begin();
    child_fork(&children[0], "a", 1, NULL);
    child_fork(&children[1], "c", 1, NULL);
    child_go(&children[0]);
    child_go(&children[1]);
    rpc = open_worker("b", NULL);
    CHECK_OK(tri_rpc_own(rpc, NULL, &counted, &released, &own));
    a = find(rpc, "a");
    CHECK_OK(pass(a, &give, own)); /* c keeps it and does not know us */
    tri_rpc_ref_unref(own);
    assert_int_equal(atomic_load(&released), 0);
    assert_int_equal(kill(children[1].pid, SIGUSR1), 0);
    wait_for_release();
    assert_false(is_held(rpc));
    tri_rpc_ref_unref(a);
    assert_int_equal(kill(children[0].pid, SIGUSR1), 0);
    leave(rpc);
    children_end(children, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_call_that_waits_for_credits_was_not_sent),
    cmocka_unit_test(a_reply_whose_writer_dies_is_whole_or_lost),
    cmocka_unit_test(one_that_is_killed_while_it_leaves_is_not_waited_for),
    cmocka_unit_test(an_owner_that_dies_while_its_reference_is_passed_on),
    cmocka_unit_test(a_holder_that_dies_holds_nothing),
    cmocka_unit_test(one_that_leaves_with_a_reference_holds_nothing),
};

TEST_MAIN(tests)
