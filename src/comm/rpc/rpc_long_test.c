/*
 * rpc_long_test.c - a million references passed on while their giver drops them and their owner is
 * slow: then nobody holds anything.
 * ctest: labels=full timeout=300 tsan=no
 */
#include "base/alloc.h"
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

enum { N = TEST_SANITIZED ? 100000 : 1000000, AT_ONCE = 256 };

static atomic_int released;
static tri_rpc_ref *own;

static void count_release(void *object)
{
    (void)object;
    atomic_fetch_add(&released, 1);
}
static const tri_rpc_object counted = {.name = "counted", .release = count_release};

/* Another reference to the object; slowly, so that what others say of it waits in the ring. */
static tri_status run_get(tri_rpc_request *request, void *object)
{
    int64_t until = trii_now_ns() + TRII_NS_PER_MS / 10;

    (void)object;
    while (trii_now_ns() < until)
        trii_thread_yield();
    return tri_rpc_reply(request, &(tri_rpc_message){.refs = &own, .n_refs = 1});
}
static const tri_rpc_function get = {.name = "get", .flags = TRI_RPC_INLINE, .run = run_get};

static tri_status run_take(tri_rpc_request *request, void *object)
{
    (void)object;
    return tri_rpc_request_message(request)->n_refs == 1 ? TRI_OK : TRI_ERR_INVALID_ARG;
}
static const tri_rpc_function take = {.name = "take", .flags = TRI_RPC_INLINE, .run = run_take};

static int n_holds(tri_rpc *rpc)
{
    int n = 0;

    rpc_lock(rpc);
    for (const rpc_peer *p = rpc->peers; p != NULL; p = p->next)
        n += p->holds != NULL;
    rpc_unlock(rpc);
    return n;
}

static void nothing_is_held_after_a_million_were_passed_on(void **state)
{
    const tri_rpc_options one = {.threads = 1};
    tri_rpc_call *calls[AT_ONCE] = {NULL};
    tri_rpc_ref *to_owner, *to_third;
    int64_t deadline;
    long live = 0;
    workers w;

    (void)state;
    workers_begin(&w, 3, &one);
    worker_serve(&w, 1, &get);
    worker_serve(&w, 2, &take);
    CHECK_OK(tri_rpc_own(w.rpc[1], NULL, &counted, &released, &own));
    to_owner = worker_find(&w, 0, "w1");
    to_third = worker_find(&w, 0, "w2");
    for (int i = 0; i < N; i += AT_ONCE) {
        tri_rpc_message reply;
        tri_rpc_ref *object;

        CHECK_OK(tri_rpc_sync(to_owner, &get, NULL, NULL, &reply));
        object = tri_rpc_ref_ref(reply.refs[0]);
        tri_rpc_message_free(&reply);
        for (int k = 0; k < AT_ONCE; k++)
            CHECK_OK(tri_rpc_async(to_third, &take,
                                   &(tri_rpc_message){.refs = &object, .n_refs = 1}, NULL,
                                   &calls[k]));
        tri_rpc_ref_unref(object); /* while they are on their way */
        for (int k = 0; k < AT_ONCE; k++) {
            CHECK_OK(tri_rpc_call_wait(calls[k], 0));
            tri_rpc_call_destroy(calls[k]);
        }
        if (i == 20 * AT_ONCE)
            live = trii_alloc_live();
    }
    assert_true(trii_alloc_live() < live + 1000);
    tri_rpc_ref_unref(own);
    worker_wait_for(&released, 1);
    deadline = trii_deadline_ms(20000);
    while (n_holds(w.rpc[1]) > 0) {
        if (trii_now_ns() > deadline)
            fail_msg("it is held still");
        trii_thread_yield();
    }
    assert_null(w.rpc[0]->intros);
    tri_rpc_ref_unref(to_owner);
    tri_rpc_ref_unref(to_third);
    workers_end(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_held_after_a_million_were_passed_on),
};

TEST_MAIN(tests)
