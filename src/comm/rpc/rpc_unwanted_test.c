/*
 * rpc_unwanted_test.c - references in messages that nobody takes in are held by nobody.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

static const tri_rpc_options by_tcp = {.tcp_only = true};

static atomic_int n_released, n_held;
static tri_rpc_request *held;

static void released(void *object)
{
    (void)object;
    atomic_fetch_add(&n_released, 1);
}
static const tri_rpc_object thing = {.name = "thing", .release = released};

static tri_status run_hold(tri_rpc_request *request, void *object)
{
    (void)object;
    held = request;
    atomic_fetch_add(&n_held, 1);
    return TRI_INPROGRESS;
}
static const tri_rpc_function hold = {.name = "hold", .run = run_hold};
static const tri_rpc_function nobody_serves = {.name = "nobody_serves"};

static void begin(workers *w, const tri_rpc_options *opt)
{
    atomic_store(&n_released, 0);
    atomic_store(&n_held, 0);
    workers_begin(w, 3, opt);
    worker_serve(w, 1, &hold);
}

/* Of worker `owner`, as w0 refers to it; nobody else does. */
static tri_rpc_ref *make_thing(workers *w, int owner)
{
    tri_rpc_ref *own, *found;
    char name[16];

    CHECK_OK(tri_rpc_own(w->rpc[owner], owner == 0 ? NULL : "thing", &thing, NULL, &own));
    if (owner == 0)
        return own;
    snprintf(name, sizeof(name), "w%d/thing", owner);
    found = worker_find(w, 0, name);
    tri_rpc_ref_unref(own);
    return found;
}

static void what_a_call_returns_that_has_ended_is_released(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *to, *made;
        tri_rpc_call *call;
        workers w;

        begin(&w, t == 0 ? NULL : &by_tcp);
        to = worker_find(&w, 0, "w1");
        CHECK_OK(tri_rpc_async(to, &hold, NULL, NULL, &call));
        worker_wait_for(&n_held, 1);
        tri_rpc_call_cancel(call);
        CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_ABORTED, "cancelled");
        CHECK_OK(tri_rpc_own(w.rpc[1], NULL, &thing, NULL, &made));
        CHECK_OK(tri_rpc_reply(held, &(tri_rpc_message){.refs = &made, .n_refs = 1}));
        tri_rpc_ref_unref(made);
        worker_wait_for(&n_released, 1);
        tri_rpc_call_destroy(call);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* w0's own object, and one of w2, which w0 introduces w1 to. */
static void what_a_refused_call_brings_is_released(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        tri_rpc_ref *to, *ref;
        rpc_object *named;
        workers w;

        begin(&w, t % 2 == 0 ? NULL : &by_tcp);
        to = worker_find(&w, 0, "w1");
        ref = make_thing(&w, t / 2 * 2);
        CHECK_FAILS(tri_rpc_sync(to, &nobody_serves, &(tri_rpc_message){.refs = &ref, .n_refs = 1},
                                 NULL, NULL),
                    TRI_ERR_NOT_FOUND, "no function nobody_serves");
        tri_rpc_ref_unref(ref);
        if (t / 2 == 1) { /* its name is the last that refers to it */
            rpc_lock(w.rpc[2]);
            named = rpc_object_named(w.rpc[2], "thing");
            trii_free(named->name);
            named->name = NULL;
            rpc_object_unuse(w.rpc[2], named);
            rpc_unlock(w.rpc[2]);
        }
        worker_wait_for(&n_released, 1);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* By more than the tests above: what tcp skips, since it is too long to be buffered. */
static void what_is_refused_for_its_length_is_released(void **state)
{
    static const tri_rpc_function longer = {
        .name = "hold", .max_request = 1 << 20, .max_part = 1 << 20};
    static char data[100000];
    const tri_rpc_part part = {data, 20000};

    (void)state;
    for (int t = 0; t < 6; t++) {
        const tri_rpc_function *function = t % 3 == 0 ? &nobody_serves : &longer;
        tri_rpc_message in = {.data = data, .bytes = t % 3 == 0 ? 20000 : sizeof(data)};
        tri_rpc_ref *to, *ref;
        workers w;

        if (t % 3 == 2)
            in = (tri_rpc_message){.parts = &part, .n_parts = 1};
        begin(&w, t / 3 == 0 ? NULL : &by_tcp);
        to = worker_find(&w, 0, "w1");
        ref = make_thing(&w, 0);
        in.refs = &ref;
        in.n_refs = 1;
        CHECK_FAILS(tri_rpc_sync(to, function, &in, NULL, NULL),
                    t % 3 == 0 ? TRI_ERR_NOT_FOUND : TRI_ERR_INVALID_ARG, " on w1 (");
        tri_rpc_ref_unref(ref);
        worker_wait_for(&n_released, 1);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static tri_status run_much(tri_rpc_request *request, void *object)
{
    static char data[40000];
    tri_rpc_ref *made;
    tri_status status = tri_rpc_own(NULL, NULL, &thing, NULL, &made);

    (void)object;
    if (status == TRI_OK) {
        status = tri_rpc_reply(
            request,
            &(tri_rpc_message){.data = data, .bytes = sizeof(data), .refs = &made, .n_refs = 1});
        tri_rpc_ref_unref(made);
    }
    return status;
}

static void what_a_reply_that_is_too_long_brings_is_released(void **state)
{
    static const tri_rpc_function much = {.name = "much", .run = run_much};
    static const tri_rpc_function less = {.name = "much", .max_reply = 8};

    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_message reply;
        tri_rpc_ref *to;
        workers w;

        begin(&w, t == 0 ? NULL : &by_tcp);
        worker_serve(&w, 1, &much);
        to = worker_find(&w, 0, "w1");
        CHECK_FAILS(tri_rpc_sync(to, &less, NULL, NULL, &reply), TRI_ERR_INVALID_ARG, "at most 8");
        worker_wait_for(&n_released, 1);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_a_call_returns_that_has_ended_is_released),
    cmocka_unit_test(what_a_refused_call_brings_is_released),
    cmocka_unit_test(what_is_refused_for_its_length_is_released),
    cmocka_unit_test(what_a_reply_that_is_too_long_brings_is_released),
};

TEST_MAIN(tests)
