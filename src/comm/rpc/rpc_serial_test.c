/*
 * rpc_serial_test.c - a serial object lets in what its running request leads to, but only while
 * that waits.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

static const tri_rpc_options four = {.threads = 4};

/* --- functions ------------------------------------------------------------ */

typedef struct place {
    atomic_int inside, most, n, goes_on;
    tri_rpc_ref *self;
} place;

static const tri_rpc_object place_kind = {.name = "place", .serial = true};

static void enter(place *p)
{
    int inside = atomic_fetch_add(&p->inside, 1) + 1;

    if (inside > atomic_load(&p->most))
        atomic_store(&p->most, inside);
    atomic_fetch_add(&p->n, 1);
}

static void leave(place *p)
{
    atomic_fetch_sub(&p->inside, 1);
}

/* Long enough for another one to come in, if it may. */
static tri_status run_visit(tri_rpc_request *request, void *object)
{
    int64_t until = trii_now_ns() + 5 * TRII_NS_PER_MS;
    place *p = object;

    (void)request;
    enter(p);
    while (trii_now_ns() < until)
        trii_thread_yield();
    leave(p);
    return TRI_OK;
}
static const tri_rpc_function visit = {.name = "visit", .run = run_visit, .of = &place_kind};
static const tri_rpc_function glance = {
    .name = "glance", .run = run_visit, .of = &place_kind, .flags = TRI_RPC_INLINE};

#define VISITS 4

/* Calls of one handler, that is, of one chain; every second one is of an inline function. */
static tri_status visit_often(tri_rpc_ref *to)
{
    tri_rpc_call *calls[VISITS] = {NULL};
    tri_status status = TRI_OK;

    for (int i = 0; i < VISITS && status == TRI_OK; i++)
        status = tri_rpc_async(to, i % 2 == 0 ? &visit : &glance, NULL, NULL, &calls[i]);
    for (int i = 0; i < VISITS; i++) {
        if (status == TRI_OK)
            status = tri_rpc_call_wait(calls[i], 0);
        tri_rpc_call_destroy(calls[i]);
    }
    return status;
}

static tri_status run_send(tri_rpc_request *request, void *object)
{
    (void)object;
    return visit_often(tri_rpc_request_message(request)->refs[0]);
}
static const tri_rpc_function send_visits = {.name = "send", .run = run_send};

/* The object calls itself: while it waits, they come in, one at a time beside itself. */
static tri_status run_recall(tri_rpc_request *request, void *object)
{
    place *p = object;
    tri_status status;

    (void)request;
    enter(p);
    status = visit_often(p->self);
    leave(p);
    return status;
}
static const tri_rpc_function recall = {.name = "recall", .run = run_recall, .of = &place_kind};

/* Has answered long before it ends. */
static tri_status run_answer_early(tri_rpc_request *request, void *object)
{
    place *p = object;
    tri_status status;

    enter(p);
    status = tri_rpc_reply(request, &(tri_rpc_message){.refs = &p->self, .n_refs = 1});
    if (status == TRI_OK)
        status = worker_stays_until(&p->goes_on);
    leave(p);
    return status;
}
static const tri_rpc_function answer_early = {
    .name = "answer_early", .run = run_answer_early, .of = &place_kind};

static tri_status run_pipe(tri_rpc_request *request, void *object)
{
    tri_rpc_ref *promise, *to = tri_rpc_request_message(request)->refs[0];
    tri_status status = tri_rpc_remote(to, &answer_early, NULL, NULL, &promise);

    (void)object;
    if (status != TRI_OK)
        return status;
    status = visit_often(promise);
    tri_rpc_ref_unref(promise);
    return status;
}
static const tri_rpc_function pipe_calls = {.name = "pipe", .run = run_pipe};

static const tri_rpc_function *const all[] = {&visit,  &glance,       &send_visits,
                                              &recall, &answer_early, &pipe_calls};

/* --- cases ---------------------------------------------------------------- */

typedef struct trio {
    workers w;
    tri_rpc_ref *handler, *found;
    place p;
} trio;

/* w0 calls a handler of w1, which calls the place of w2. */
static void begin(trio *t)
{
    memset(&t->p, 0, sizeof(t->p));
    workers_begin(&t->w, 3, &four);
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_rpc_serve(t->w.rpc[i], all, (int)TRII_COUNT_OF(all)));
    CHECK_OK(tri_rpc_own(t->w.rpc[2], "place", &place_kind, &t->p, &t->p.self));
    t->handler = worker_find(&t->w, 0, "w1");
    t->found = worker_find(&t->w, 0, "w2/place");
}

static void end(trio *t)
{
    assert_int_equal(atomic_load(&t->p.inside), 0);
    tri_rpc_ref_unref(t->handler);
    tri_rpc_ref_unref(t->found);
    tri_rpc_ref_unref(t->p.self);
    workers_end(&t->w);
}

static void calls_of_one_handler_come_in_one_at_a_time(void **state)
{
    trio t;

    (void)state;
    begin(&t);
    CHECK_OK(tri_rpc_sync(t.handler, &send_visits,
                          &(tri_rpc_message){.refs = &t.found, .n_refs = 1}, NULL, NULL));
    assert_int_equal(atomic_load(&t.p.n), VISITS);
    assert_int_equal(atomic_load(&t.p.most), 1);
    end(&t);
}

static void what_comes_back_waits_until_the_handler_waits(void **state)
{
    trio t;

    (void)state;
    begin(&t);
    CHECK_OK(tri_rpc_sync(t.found, &recall, NULL, NULL, NULL));
    assert_int_equal(atomic_load(&t.p.n), 1 + VISITS);
    assert_int_equal(atomic_load(&t.p.most), 2);
    end(&t);
}

static void what_was_called_on_a_promise_waits_for_the_end_of_its_maker(void **state)
{
    tri_rpc_call *call;
    trio t;

    (void)state;
    begin(&t);
    CHECK_OK(tri_rpc_async(t.handler, &pipe_calls,
                           &(tri_rpc_message){.refs = &t.found, .n_refs = 1}, NULL, &call));
    worker_wait_for(&t.p.n, 1);
    assert_int_equal(tri_rpc_call_wait(call, 20), TRI_ERR_TIMEOUT); /* to let them come in */
    atomic_store(&t.p.goes_on, 1);
    CHECK_OK(tri_rpc_call_wait(call, 0));
    tri_rpc_call_destroy(call);
    assert_int_equal(atomic_load(&t.p.n), 1 + VISITS);
    assert_int_equal(atomic_load(&t.p.most), 1);
    end(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(calls_of_one_handler_come_in_one_at_a_time),
    cmocka_unit_test(what_comes_back_waits_until_the_handler_waits),
    cmocka_unit_test(what_was_called_on_a_promise_waits_for_the_end_of_its_maker),
};

TEST_MAIN(tests)
