/*
 * rpc_poor_test.c - no memory: whichever allocation fails, calls end with NO_MEMORY or with the
 * loss of the connection, nobody waits for ever, nothing is left, and the next attempt works.
 * ctest: start=first timeout=120
 */
#include "base/alloc.h"
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

#define MOST 1000     /* allocations of a scene */
#define CALL_MS 20000 /* if it is waited out, the test has failed */

static atomic_int made, released;

static void count_release(void *object)
{
    (void)object;
    atomic_fetch_add(&released, 1);
}
static const tri_rpc_object counted = {.name = "counted", .release = count_release};

static tri_rpc *owner;

static tri_status run_make(tri_rpc_request *request, void *object)
{
    tri_rpc_ref *ref = NULL;
    tri_status status = tri_rpc_own(owner, NULL, &counted, NULL, &ref);

    (void)object;
    if (status != TRI_OK)
        return status;
    atomic_fetch_add(&made, 1);
    status = tri_rpc_reply(request, &(tri_rpc_message){.refs = &ref, .n_refs = 1});
    tri_rpc_ref_unref(ref);
    return status;
}
static const tri_rpc_function make = {.name = "make", .run = run_make};

/* Answers with all that came. */
static tri_status run_echo(tri_rpc_request *request, void *object)
{
    (void)object;
    return tri_rpc_reply(request, tri_rpc_request_message(request));
}
static const tri_rpc_function echo = {.name = "echo",
                                      .max_request = 1 << 20,
                                      .max_reply = 1 << 20,
                                      .max_part = 1 << 20,
                                      .run = run_echo};

static const tri_rpc_function *const all[] = {&make, &echo};

typedef struct scene {
    tri_store *store;
    tri_rpc_options options;
    tri_rpc *rpc[3];
    tri_rpc_ref *to[2], *object;
} scene;

static tri_status begin(scene *s)
{
    static const char *const names[] = {"a", "b", "c"};
    tri_status status = TRI_OK;

    for (int i = 0; i < 3 && status == TRI_OK; i++)
        status = tri_rpc_create(s->store, names[i], 0, 0, &s->options, &s->rpc[i]);
    owner = s->rpc[1];
    for (int i = 0; i < 2 && status == TRI_OK; i++)
        status = tri_rpc_find(s->rpc[0], names[i + 1], &s->to[i]);
    return status;
}

static tri_status talk(scene *s)
{
    static char data[200000];
    const tri_rpc_call_options o = {.timeout_ms = CALL_MS};
    const tri_rpc_part parts[] = {{data, 3000}, {data, 100000}, {data, 10}};
    tri_rpc_message reply = {0};
    tri_rpc_call *call = NULL;
    tri_rpc_ref *refs[4];
    tri_status status;

    for (size_t bytes = 100; bytes <= sizeof(data); bytes = 2000 * bytes / 100) {
        status = tri_rpc_sync(s->to[0], &echo, &(tri_rpc_message){.data = data, .bytes = bytes}, &o,
                              NULL);
        if (status != TRI_OK)
            return status;
    }
    status =
        tri_rpc_sync(s->to[0], &echo, &(tri_rpc_message){.parts = parts, .n_parts = 3}, &o, &reply);
    if (status != TRI_OK)
        return status;
    tri_rpc_message_free(&reply);
    status = tri_rpc_remote(s->to[0], &make, NULL, &o, &s->object); /* a promise, passed on */
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < 4; i++)
        refs[i] = i % 2 == 0 ? s->object : s->to[1];
    status =
        tri_rpc_async(s->to[1], &echo, &(tri_rpc_message){.refs = refs, .n_refs = 4}, &o, &call);
    if (status == TRI_OK)
        status = tri_rpc_call_wait(call, 0);
    tri_rpc_call_destroy(call);
    return status;
}

/*
 * The same workers go on. A worker that gave up a connection for want of memory may have done so
 * after its last reply: then the other end sees it only now, once for each pair of workers.
 */
static void talk_again(scene *s, int n)
{
    tri_status status = TRI_ERR_PEER_LOST;

    for (int pair = 0; pair <= 3 && status == TRI_ERR_PEER_LOST; pair++) {
        tri_rpc_ref_unref(s->object);
        s->object = NULL;
        status = talk(s);
    }
    if (status != TRI_OK)
        fail_msg("after allocation %d: %s", n, tri_last_error());
}

static void end(scene *s)
{
    tri_rpc_ref_unref(s->object);
    tri_rpc_ref_unref(s->to[0]);
    tri_rpc_ref_unref(s->to[1]);
    for (int i = 0; i < 3; i++) {
        tri_rpc_abort(s->rpc[i], "end");
        tri_rpc_destroy(s->rpc[i]);
    }
    s->object = s->to[0] = s->to[1] = NULL;
    s->rpc[0] = s->rpc[1] = s->rpc[2] = NULL;
}

/* Jobs and executors of a worker may outlive it for a moment. */
static void check_live(long before, int n)
{
    int64_t deadline = trii_deadline_ms(5000);

    while (trii_alloc_live() != before) {
        if (trii_now_ns() > deadline)
            fail_msg("allocation %d: %ld blocks are left", n, trii_alloc_live() - before);
        trii_thread_yield();
    }
}

static void torture(bool tcp, bool at_start)
{
    scene s = {.options = {.open = true,
                           .tcp_only = tcp,
                           .timeout_ms = CALL_MS,
                           .functions = all,
                           .n_functions = (int)TRII_COUNT_OF(all)}};
    bool over = false;
    int n;

    setenv("TRI_LOG", "error", 1);
    CHECK_OK(tri_store_hash(&s.store));
    CHECK_OK(begin(&s)); /* what is made once, and stays */
    CHECK_OK(talk(&s));
    end(&s);
    for (n = 1; n < MOST && !over; n += TEST_TSAN ? 3 : 1) {
        long live = trii_alloc_live(), calls;
        tri_status status = TRI_OK;

        atomic_store(&made, 0);
        atomic_store(&released, 0);
        if (!at_start)
            CHECK_OK(begin(&s));
        trii_alloc_fail_at(n);
        calls = trii_alloc_calls();
        if (at_start)
            status = begin(&s);
        if (status == TRI_OK)
            status = talk(&s);
        over = status == TRI_OK && trii_alloc_calls() - calls < n;
        trii_alloc_fail_at(0);
        if (getenv("TRI_TEST_TELL") != NULL)
            printf("%d: %s %s\n", n, tri_status_name(status), status < 0 ? tri_last_error() : "");
        if (status != TRI_OK && status != TRI_ERR_NO_MEMORY && status != TRI_ERR_PEER_LOST &&
            status != TRI_ERR_ABORTED)
            fail_msg("allocation %d: %s: %s", n, tri_status_name(status), tri_last_error());
        if (!at_start)
            talk_again(&s, n);
        end(&s);
        check_live(live, n);
        assert_int_equal(atomic_load(&released), atomic_load(&made));
    }
    assert_true(over);
    tri_store_unref(s.store);
}

static void each_allocation_of_calls_fails(void **state)
{
    (void)state;
    torture(false, false);
}

static void each_allocation_of_calls_over_tcp_fails(void **state)
{
    (void)state;
    torture(true, false);
}

static void each_allocation_of_workers_that_begin_fails(void **state)
{
    (void)state;
    torture(false, true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_allocation_of_calls_fails),
    cmocka_unit_test(each_allocation_of_calls_over_tcp_fails),
    cmocka_unit_test(each_allocation_of_workers_that_begin_fails),
};

TEST_MAIN(tests)
