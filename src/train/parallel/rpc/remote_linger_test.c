/*
 * remote_linger_test.c - the thread of a served module that has answered reads what its caller
 * sends next, so that no other thread has to wake it.
 */
#include "os/thread.h"
#include "testing/remote_workers.h"

#define WIDE 4
#define PATIENCE_MS 20000

static int64_t served_thread; /* the call that reads it has ended */

/* The module, and who runs it. */
static tri_tensor *noting_forward(tri_module *self, tri_tensor *x)
{
    (void)self;
    served_thread = trii_thread_id();
    return tri_square(x);
}

typedef struct owner {
    remote_workers r;
    tri_module *served, *there;
    tri_rpc_ref *to;
    tri_tensor *x;
} owner;

static tri_rpc *owner_rpc;

/* The thread that has read it, and what becomes of a withdrawal of the module. */
static tri_status run_withdraw(tri_rpc_request *request, void *object)
{
    struct {
        int64_t thread;
        tri_status status;
    } found = {trii_thread_id(), TRI_OK};

    (void)object;
    found.status = tri_remote_withdraw(owner_rpc, "noting");
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &found, .bytes = sizeof(found)});
}
static const tri_rpc_function withdraw = {
    .name = "withdraw", .flags = TRI_RPC_INLINE, .run = run_withdraw};

static void owner_begin(owner *o)
{
    float data[WIDE] = {1, 2, 3, 4};

    remote_begin(&o->r, 2, NULL);
    worker_serve(&o->r.w, 1, &withdraw);
    owner_rpc = o->r.w.rpc[1];
    o->served = tri_module_simple("Noting", 0, noting_forward);
    CHECK_OK(tri_remote_serve(owner_rpc, "noting", o->served, NULL, NULL));
    o->there = tri_remote_module(o->r.w.rpc[0], "w1/noting", NULL);
    o->to = worker_find(&o->r.w, 0, "w1");
    o->x = tri_tensor_from((int64_t[]){WIDE}, 1, TRI_DTYPE_F32, data);
}

static void owner_end(owner *o)
{
    CHECK_OK(tri_remote_withdraw(owner_rpc, "noting")); /* nothing has come since */
    tri_rpc_ref_unref(o->to);
    tri_tensor_unref(o->x);
    tri_module_destroy(o->there);
    tri_module_destroy(o->served);
    remote_end(&o->r);
}

static void call_module(const owner *o)
{
    CHECK_OK(tri_tensor_status(tri_keep(tri_forward(o->there, o->x))));
    CHECK_OK(tri_step_end_status());
}

/* A withdrawal by it would wait for itself. Any thread that reads refuses it: an inline handler
 * must not wait. */
static void the_thread_of_a_module_reads_what_its_caller_sends_next(void **state)
{
    int64_t deadline = trii_deadline_ms(PATIENCE_MS), thread;
    tri_status status = TRI_OK;
    owner o;

    (void)state;
    owner_begin(&o);
    do {
        tri_rpc_message reply;

        call_module(&o);
        CHECK_OK(tri_rpc_sync(o.to, &withdraw, NULL, NULL, &reply));
        memcpy(&thread, reply.data, sizeof(thread));
        memcpy(&status, (const char *)reply.data + sizeof(thread), sizeof(status));
        tri_rpc_message_free(&reply);
        assert_int_equal(status, TRI_ERR_STATE);
    } while (thread != served_thread && trii_now_ns() < deadline);
    assert_int_equal(thread, served_thread);
    owner_end(&o);
}

static int set_long_spin(void **state)
{
    (void)state;
    return setenv("TRI_SPIN_US", "1000000", 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(the_thread_of_a_module_reads_what_its_caller_sends_next, set_long_spin),
};

TEST_MAIN(tests)
