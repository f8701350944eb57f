/*
 * rpc_wait_test.c - who reads what comes, and who is woken: threads that wait for calls and hand
 * over to each other, the thread in tri_rpc_join, and how long each looks before it sleeps.
 */
#include <time.h>

#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_standing.h"
#include "testing/rpc_workers.h"

static const tri_rpc_options by_tcp = {.tcp_only = true};

enum { LESS = TEST_SANITIZED ? 4 : 1 };

/* --- functions ------------------------------------------------------------ */

static tri_status run_twice(tri_rpc_request *request, void *object)
{
    int x;

    (void)object;
    memcpy(&x, tri_rpc_request_message(request)->data, sizeof(x));
    x *= 2;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &x, .bytes = sizeof(x)});
}
static const tri_rpc_function twice = {.name = "twice", .run = run_twice};
static const tri_rpc_function inline_twice = {
    .name = "inline_twice", .flags = TRI_RPC_INLINE, .run = run_twice};

static tri_rpc_ref *caller; /* that run_back calls */

/* Asks its caller, in the same chain. */
static tri_status run_back(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    tri_rpc_message reply;

    (void)object;
    TRI_TRY(tri_rpc_sync(caller, &twice, &(tri_rpc_message){.data = in->data, .bytes = in->bytes},
                         NULL, &reply));
    TRI_TRY(tri_rpc_reply(request, &(tri_rpc_message){.data = reply.data, .bytes = reply.bytes}));
    tri_rpc_message_free(&reply);
    return TRI_INPROGRESS;
}
static const tri_rpc_function back = {.name = "back", .run = run_back};

static _Atomic(tri_rpc_request *) kept;
static atomic_int joiner_clock;         /* processor time of the thread in tri_rpc_join */
static atomic_int_fast64_t kept_cpu_ns; /* by that, when it was kept */

/* On any thread; 0: there is no such clock. */
static int64_t cpu_ns(clockid_t clock)
{
    struct timespec t = {0};

    (void)clock_gettime(clock, &t);
    return t.tv_sec * TRII_NS_PER_S + t.tv_nsec;
}

static tri_status run_keep(tri_rpc_request *request, void *object)
{
    (void)object;
    atomic_store(&kept_cpu_ns, cpu_ns(atomic_load(&joiner_clock))); /* any thread runs this */
    atomic_store(&kept, request);
    return TRI_INPROGRESS;
}
static const tri_rpc_function keep = {.name = "keep", .flags = TRI_RPC_INLINE, .run = run_keep};

static tri_status run_sum(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    const unsigned char *data = in->parts[0].data;
    uint64_t sum = 0;

    (void)object;
    for (size_t i = 0; i < in->parts[0].bytes; i++)
        sum += data[i];
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &sum, .bytes = sizeof(sum)});
}
static const tri_rpc_function sum = {
    .name = "sum", .flags = TRI_RPC_INLINE, .max_part = 1 << 20, .run = run_sum};

static atomic_int n_held, may_end;

/* Runs until it may end, and its answer is all that comes of it. */
static tri_status run_hold(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    atomic_fetch_add(&n_held, 1);
    return worker_stays_until(&may_end);
}
static const tri_rpc_function hold = {.name = "hold", .run = run_hold};

/* The thread that has read it. */
static tri_status run_reader(tri_rpc_request *request, void *object)
{
    const int64_t thread = trii_thread_id();

    (void)object;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &thread, .bytes = sizeof(thread)});
}
static const tri_rpc_function reader = {
    .name = "reader", .flags = TRI_RPC_INLINE, .run = run_reader};

static const tri_rpc_function *const all[] = {&twice, &inline_twice, &back,  &keep,
                                              &sum,   &hold,         &reader};

/* On any thread. */
static tri_status call_twice(tri_rpc_ref *to, const tri_rpc_function *function, int x)
{
    tri_rpc_message reply;
    int y = 0;
    bool has_y;
    tri_status status = tri_rpc_sync(
        to, function, &(tri_rpc_message){.data = &x, .bytes = sizeof(x)}, NULL, &reply);

    if (status != TRI_OK)
        return status;
    has_y = reply.bytes == sizeof(y);
    if (has_y)
        memcpy(&y, reply.data, sizeof(y));
    tri_rpc_message_free(&reply);
    return has_y && y == 2 * x
               ? TRI_OK
               : tri_status_fail(TRI_ERR_INTERNAL, "twice %d is %d, has come: %d", x, y, has_y);
}

static void check_twice(tri_rpc_ref *to, const tri_rpc_function *function, int x)
{
    CHECK_OK(call_twice(to, function, x));
}

/* --- two workers, the second of which may be in join ---------------------- */

typedef struct pair {
    workers w;
    tri_rpc_ref *to;
    trii_thread joiner;
    tri_status joined;
    bool joins, on_last_core;
} pair;

static bool use_last_core(void)
{
    cpu_set_t all_cores, last;
    int core = CPU_SETSIZE - 1;

    if (sched_getaffinity(0, sizeof(all_cores), &all_cores) != 0)
        return false;
    while (!CPU_ISSET(core, &all_cores))
        core--;
    CPU_ZERO(&last);
    CPU_SET(core, &last);
    return sched_setaffinity(0, sizeof(last), &last) == 0;
}

static void join_main(void *arg)
{
    pair *p = arg;
    clockid_t clock;

    p->joined = TRI_ERR_INTERNAL;
    if ((p->on_last_core && !use_last_core()) || pthread_getcpuclockid(pthread_self(), &clock) != 0)
        return;
    atomic_store(&joiner_clock, clock);
    p->joined = tri_rpc_join(p->w.rpc[1], TRI_FOREVER);
}

static bool has_joiner(tri_rpc *rpc)
{
    bool has;

    rpc_lock(rpc);
    has = rpc->joiner != NULL;
    rpc_unlock(rpc);
    return has;
}

static void pair_begin(pair *p, const tri_rpc_options *opt, bool joins)
{
    int64_t deadline = trii_deadline_ms(20000);

    workers_begin(&p->w, 2, opt);
    for (int i = 0; i < 2; i++)
        CHECK_OK(tri_rpc_serve(p->w.rpc[i], all, (int)TRII_COUNT_OF(all)));
    p->to = worker_find(&p->w, 0, "w1");
    caller = worker_find(&p->w, 1, "w0");
    p->joins = joins;
    if (joins)
        CHECK_OK(trii_thread_start(&p->joiner, "join", join_main, p));
    while (joins && !has_joiner(p->w.rpc[1]) && trii_now_ns() < deadline)
        trii_thread_yield();
    assert_int_equal(has_joiner(p->w.rpc[1]), joins);
}

static void pair_end(pair *p)
{
    tri_rpc_ref_unref(p->to);
    tri_rpc_ref_unref(caller);
    if (!p->joins) {
        workers_end(&p->w);
        return;
    }
    CHECK_OK(tri_rpc_leave(p->w.rpc[0], 20000));
    trii_thread_join(&p->joiner);
    assert_int_equal(p->joined, TRI_OK);
    CHECK_OK(tri_rpc_leave(p->w.rpc[1], 20000));
    workers_destroy(&p->w);
}

/* As worker `i` sees the other one. */
static rpc_peer *peer_of(const pair *p, int i)
{
    rpc_peer *peer;

    rpc_lock(p->w.rpc[i]);
    peer = rpc_peer_named(p->w.rpc[i], i == 0 ? "w1" : "w0");
    rpc_unlock(p->w.rpc[i]);
    assert_non_null(peer);
    return peer;
}

static void wait_until_asleep(const pair *p)
{
    worker_wait_for(&peer_of(p, 1)->in->sleep, RPC_BY_BELL);
}

/* --- join ----------------------------------------------------------------- */

static void a_thread_in_join_sleeps_on_a_bell_and_is_woken_each_time(void **state)
{
    pair p = {0};

    (void)state;
    pair_begin(&p, NULL, true);
    for (int i = 0; i < 3000 / LESS; i++) {
        if (i % 3 == 0)
            wait_until_asleep(&p);
        check_twice(p.to, i % 2 == 0 ? &twice : &inline_twice, i);
    }
    wait_until_asleep(&p);
    pair_end(&p);
}

/* The thread in join sleeps while a handler's thread reads the same ring for its own call. */
static void threads_of_handlers_read_beside_it(void **state)
{
    pair p = {0};

    (void)state;
    pair_begin(&p, NULL, true);
    for (int i = 0; i < 1000 / LESS; i++) {
        check_twice(p.to, &back, i);
        check_twice(p.to, &inline_twice, i);
    }
    pair_end(&p);
}

static void a_sleeping_reader_is_woken_for_large_parts_too(void **state)
{
    const size_t sizes[] = {32 << 10, 300000, 1 << 20};
    unsigned char *data = malloc(1 << 20);

    (void)state;
    assert_non_null(data);
    for (int joins = 0; joins < 2; joins++) {
        pair p = {0};

        pair_begin(&p, NULL, joins == 1);
        for (int i = 0; i < 30; i++) {
            const tri_rpc_part part = {data, sizes[i % 3]};
            tri_rpc_message reply;
            uint64_t found;

            memset(data, i + 1, part.bytes);
            if (joins == 1)
                wait_until_asleep(&p);
            CHECK_OK(tri_rpc_sync(p.to, &sum, &(tri_rpc_message){.parts = &part, .n_parts = 1},
                                  NULL, &reply));
            memcpy(&found, reply.data, sizeof(found));
            assert_int_equal(found, part.bytes * (size_t)(i + 1));
            tri_rpc_message_free(&reply);
        }
        pair_end(&p);
    }
    free(data);
}

/* --- waiters -------------------------------------------------------------- */

typedef struct waiting {
    tri_rpc_call *call;
    tri_status status;
    trii_thread thread;
} waiting;

static void wait_main(void *arg)
{
    waiting *t = arg;

    t->status = tri_rpc_call_wait(t->call, 0);
}

static bool is_polled(rpc_peer *peer, unsigned *events_out)
{
    bool polled;

    rpc_lock(peer->rpc);
    polled = peer->is_polled;
    *events_out = peer->events;
    rpc_unlock(peer->rpc);
    return polled;
}

static void over_tcp_the_thread_that_waits_reads_and_can_be_woken(void **state)
{
    int64_t deadline = trii_deadline_ms(20000);
    waiting t = {0};
    unsigned events;
    rpc_peer *peer;
    pair p = {0};

    (void)state;
    pair_begin(&p, &by_tcp, false);
    peer = peer_of(&p, 0);
    assert_false(is_polled(peer, &events));
    assert_int_equal(events, TRII_READABLE);
    CHECK_OK(tri_rpc_async(p.to, &keep, NULL, NULL, &t.call));
    CHECK_OK(trii_thread_start(&t.thread, "waits", wait_main, &t));
    while (!is_polled(peer, &events) && trii_now_ns() < deadline)
        trii_thread_yield();
    assert_int_equal(events, 0); /* the loop has nothing to do with it */
    for (int i = 0; i < 500; i++)
        check_twice(p.to, i % 2 == 0 ? &twice : &inline_twice, i); /* read by the other thread */
    check_twice(caller, &twice, 21);
    tri_rpc_call_cancel(t.call); /* which nobody answers: it is not the socket that wakes */
    trii_thread_join(&t.thread);
    assert_int_equal(t.status, TRI_ERR_ABORTED);
    tri_rpc_call_destroy(t.call);
    CHECK_OK(tri_rpc_reply(atomic_load(&kept), NULL));
    deadline = trii_deadline_ms(20000);
    while (is_polled(peer, &events) && trii_now_ns() < deadline)
        trii_thread_yield(); /* while calls are in flight it is left for some ms */
    assert_int_equal(events, TRII_READABLE);
    check_twice(caller, &twice, 4); /* which the loop reads */
    pair_end(&p);
}

typedef struct many {
    trii_thread thread;
    tri_rpc_ref *to;
    int seed;
    tri_status status;
    char error[512];
} many;

static void many_main(void *arg)
{
    many *m = arg;

    for (int i = 0; i < 400 / LESS && m->status == TRI_OK; i++)
        m->status = call_twice(m->to,
                               m->to != caller && (i + m->seed) % 7 == 0 ? &back
                               : (i + m->seed) % 2 == 0                  ? &twice
                                                                         : &inline_twice,
                               i * 10 + m->seed);
    if (m->status != TRI_OK)
        snprintf(m->error, sizeof(m->error), "%s", tri_last_error());
}

static void threads_that_wait_for_one_worker_hand_over_to_each_other(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        many threads[5];
        pair p = {0};

        pair_begin(&p, t % 2 == 0 ? NULL : &by_tcp, t >= 2);
        for (int i = 0; i < 5; i++) {
            threads[i] = (many){.to = i < 4 ? p.to : caller, .seed = i}; /* from both sides */
            CHECK_OK(trii_thread_start(&threads[i].thread, "calls", many_main, &threads[i]));
        }
        for (int i = 0; i < 5; i++) {
            trii_thread_join(&threads[i].thread);
            if (threads[i].status != TRI_OK)
                fail_msg("thread %d: %s", i, threads[i].error);
        }
        pair_end(&p);
    }
}

/* --- threads that have answered ------------------------------------------- */

typedef struct lingerer {
    trii_thread thread;
    tri_rpc *rpc;
    _Atomic int64_t id;
    _Atomic clockid_t clock; /* processor time of the thread */
    atomic_int called;
    int64_t used_ns; /* by that, in all; once it has ended */
} lingerer;

static void linger_main(void *arg)
{
    lingerer *l = arg;
    clockid_t clock;

    if (pthread_getcpuclockid(pthread_self(), &clock) == 0)
        atomic_store(&l->clock, clock);
    atomic_store(&l->id, trii_thread_id());
    trii_rpc_beyond_begin(l->rpc);
    while (atomic_load(&l->called) == 0)
        trii_rpc_linger(l->rpc, "w0", &l->called, 0);
    trii_rpc_beyond_end(l->rpc);
    l->used_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
}

static int64_t reader_of(tri_rpc_ref *to)
{
    tri_rpc_message reply;
    int64_t thread;

    CHECK_OK(tri_rpc_sync(to, &reader, NULL, NULL, &reply));
    memcpy(&thread, reply.data, sizeof(thread));
    tri_rpc_message_free(&reply);
    return thread;
}

/* And when it has ended, the thread that read before does so again. */
static void a_thread_that_has_answered_reads_what_comes_next(void **state)
{
    (void)state;
    for (int joins = 0; joins < 2; joins++) {
        int64_t deadline = trii_deadline_ms(20000), used_ns;
        lingerer l = {.id = 0};
        pair p = {0};

        pair_begin(&p, NULL, joins == 1);
        l.rpc = p.w.rpc[1];
        CHECK_OK(trii_thread_start(&l.thread, "linger", linger_main, &l));
        while (reader_of(p.to) != atomic_load(&l.id) && trii_now_ns() < deadline)
            ;
        assert_true(trii_now_ns() < deadline);
        atomic_store(&peer_of(&p, 1)->spin.ns, INT32_MAX); /* it would look for two seconds */
        (void)reader_of(p.to);
        used_ns = cpu_ns(atomic_load(&l.clock));
        atomic_store(&l.called, 1);
        trii_thread_join(&l.thread);
        assert_in_range(l.used_ns - used_ns, 0, TRII_NS_PER_S);
        for (int i = 0; i < 10; i++)
            assert_int_not_equal(reader_of(p.to), atomic_load(&l.id));
        pair_end(&p);
    }
}

/* Its core may be what the thread needs that answers. */
static void no_thread_lingers_while_something_is_unanswered(void **state)
{
    int64_t deadline = trii_deadline_ms(20000);
    tri_rpc_call *call = NULL;
    lingerer l = {.id = 0};
    pair p = {0};

    (void)state;
    pair_begin(&p, NULL, true);
    l.rpc = p.w.rpc[1];
    atomic_store(&kept, NULL);
    CHECK_OK(tri_rpc_async(p.to, &keep, NULL, NULL, &call));
    while (atomic_load(&kept) == NULL && trii_now_ns() < deadline)
        trii_thread_yield();
    CHECK_OK(trii_thread_start(&l.thread, "linger", linger_main, &l));
    while (atomic_load(&l.id) == 0)
        trii_thread_yield();
    for (int i = 0; i < 100; i++)
        assert_int_not_equal(reader_of(p.to), atomic_load(&l.id));
    atomic_store(&l.called, 1);
    trii_thread_join(&l.thread);
    CHECK_OK(tri_rpc_reply(atomic_load(&kept), NULL));
    CHECK_OK(tri_rpc_call_wait(call, 20000));
    tri_rpc_call_destroy(call);
    pair_end(&p);
}

/* --- how long they look --------------------------------------------------- */

static void looks_become_longer_where_they_pay_and_shorter_where_not(void **state)
{
    rpc_spin spin = {0};
    int32_t ns = rpc_spin_budget(&spin), most;

    (void)state;
    for (int i = 0; i < 20; i++)
        rpc_spin_paid(&spin, 0);
    most = rpc_spin_budget(&spin);
    assert_true(most > ns);
    for (int i = 0; i < 20; i++)
        rpc_spin_slept(&spin, 20 * (int64_t)most);
    ns = rpc_spin_budget(&spin);
    assert_true(ns < most / 4 && ns > 0);
    rpc_spin_slept(&spin, most / 2); /* a longer look would have seen it */
    assert_int_equal(rpc_spin_budget(&spin), most);
    for (int i = 0; i < 20; i++)
        rpc_spin_slept(&spin, 20 * (int64_t)most);
    rpc_spin_paid(&spin, most / 4); /* a try that paid is worth repeating */
    assert_int_equal(rpc_spin_budget(&spin), most / 2);
    for (int i = 0; i < 20; i++)
        rpc_spin_slept(&spin, 20 * (int64_t)most);
    for (int i = 0, tried = 0; i < 32; i++) { /* now and then, it tries again */
        tried += rpc_spin_budget(&spin) == most;
        if (i == 31)
            assert_int_equal(tried, 2);
    }
}

/* Were each to look for all of TRI_SPIN_US while the other waits for the core, it would be 2 ms for
 * each of 1000 waits. */
static void workers_that_share_a_core_do_not_look(void **state)
{
    struct timespec before, after;
    cpu_set_t allowed;
    pair p = {0};

    (void)state;
    workers_use_one_core(&allowed);
    pair_begin(&p, NULL, true);
    for (int i = 0; i < 20; i++)
        check_twice(p.to, &inline_twice, i);
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before), 0);
    for (int i = 0; i < 500; i++)
        check_twice(p.to, &inline_twice, i);
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after), 0);
    assert_true((after.tv_sec - before.tv_sec) * TRII_NS_PER_S + after.tv_nsec - before.tv_nsec <
                300 * TRII_NS_PER_MS);
    workers_use_cores(&allowed);
    pair_end(&p);
}

static bool joiner_sleeps(tri_rpc *rpc)
{
    bool sleeps;

    rpc_lock(rpc);
    sleeps = rpc->joiner_sleeps;
    rpc_unlock(rpc);
    return sleeps;
}

/* With one core for all of its threads it would look for up to a second, as it has learnt. */
static void while_another_thread_answers_a_joiner_leaves_it_the_core(void **state)
{
    tri_rpc_call *call = NULL;
    int64_t deadline;
    cpu_set_t allowed;
    pair p = {.on_last_core = true};

    (void)state;
    pair_begin(&p, NULL, true);
    workers_use_one_core(&allowed); /* where there are two, another one than the joiner */
    for (int i = 0; i < 100; i++)
        check_twice(p.to, &inline_twice, i);
    atomic_store(&kept, NULL);
    CHECK_OK(tri_rpc_async(p.to, &keep, NULL, NULL, &call));
    deadline = trii_deadline_ms(20000);
    while ((atomic_load(&kept) == NULL || !joiner_sleeps(p.w.rpc[1])) && trii_now_ns() < deadline)
        trii_thread_yield();
    assert_true(joiner_sleeps(p.w.rpc[1]));
    assert_in_range(cpu_ns(atomic_load(&joiner_clock)) - atomic_load(&kept_cpu_ns), 0,
                    200 * TRII_NS_PER_MS);
    CHECK_OK(tri_rpc_reply(atomic_load(&kept), NULL));
    CHECK_OK(tri_rpc_call_wait(call, 20000));
    tri_rpc_call_destroy(call);
    workers_use_cores(&allowed);
    pair_end(&p);
}

/* It may have left the core to the thread that answers (above): it looks once more, though nobody
 * sends it anything. */
static void a_joiner_looks_again_once_all_is_answered(void **state)
{
    int64_t deadline = trii_deadline_ms(20000);
    tri_rpc_call *call;
    unsigned looks;
    tri_rpc *rpc;
    pair p = {.on_last_core = true}; /* and those that it starts */

    (void)state;
    pair_begin(&p, NULL, true);
    rpc = p.w.rpc[1];
    atomic_store(&n_held, 0);
    atomic_store(&may_end, 0);
    CHECK_OK(tri_rpc_async(p.to, &hold, NULL, NULL, &call));
    worker_wait_for(&n_held, 1);
    while (!joiner_sleeps(rpc) && trii_now_ns() < deadline)
        trii_thread_yield();
    looks = atomic_load(&rpc->joiner_spin.waits); /* it sleeps, and adds none */
    assert_true(joiner_sleeps(rpc));
    atomic_store(&may_end, 1);
    CHECK_OK(tri_rpc_call_wait(call, 20000));
    while (atomic_load(&rpc->joiner_spin.waits) == looks && trii_now_ns() < deadline)
        trii_thread_yield();
    assert_int_not_equal(atomic_load(&rpc->joiner_spin.waits), looks);
    tri_rpc_call_destroy(call);
    pair_end(&p);
}

/* One that had nothing to look at, and left no core to anybody, is not woken by answers. */
static void a_joiner_that_is_in_nobodys_way_sleeps_on(void **state)
{
    int64_t deadline = trii_deadline_ms(20000);
    unsigned looks = 0;
    tri_rpc *rpc;
    pair p = {0};

    (void)state;
    pair_begin(&p, &by_tcp, true); /* the control thread reads */
    rpc = p.w.rpc[1];
    for (int i = 0; i < 50; i++) {
        check_twice(p.to, i % 2 == 0 ? &twice : &inline_twice, i);
        while (!joiner_sleeps(rpc) && trii_now_ns() < deadline)
            trii_thread_yield();
        if (i == 9)
            looks = atomic_load(&rpc->joiner_spin.waits);
    }
    assert_in_range(atomic_load(&rpc->joiner_spin.waits), looks, looks + 4);
    pair_end(&p);
}

static int set_long_spin(void **state)
{
    (void)state;
    return setenv("TRI_SPIN_US", "1000000", 1);
}

static int set_spin(void **state)
{
    (void)state;
    return setenv("TRI_SPIN_US", "2000", 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(workers_that_share_a_core_do_not_look, set_spin),
    cmocka_unit_test_setup(while_another_thread_answers_a_joiner_leaves_it_the_core, set_long_spin),
    cmocka_unit_test(a_joiner_looks_again_once_all_is_answered),
    cmocka_unit_test(a_joiner_that_is_in_nobodys_way_sleeps_on),
    cmocka_unit_test(a_thread_in_join_sleeps_on_a_bell_and_is_woken_each_time),
    cmocka_unit_test(threads_of_handlers_read_beside_it),
    cmocka_unit_test(a_sleeping_reader_is_woken_for_large_parts_too),
    cmocka_unit_test(over_tcp_the_thread_that_waits_reads_and_can_be_woken),
    cmocka_unit_test(threads_that_wait_for_one_worker_hand_over_to_each_other),
    cmocka_unit_test(looks_become_longer_where_they_pay_and_shorter_where_not),
    cmocka_unit_test_setup(a_thread_that_has_answered_reads_what_comes_next, set_spin),
    cmocka_unit_test_setup(no_thread_lingers_while_something_is_unanswered, set_spin),
};

TEST_MAIN(tests)
