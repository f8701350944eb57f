/*
 * remote_gone_test.c - remote modules whose owner or caller dies, or whose time is over.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/logged.h"
#include "testing/remote_layers.h"
#include "testing/remote_served.h"

/* A function that waits, in forward or backward, until the test lets it go on. */
static atomic_int reached, may_go, waits_in_backward;

static void wait_here(void)
{
    int64_t deadline = trii_deadline_ms(20000);

    atomic_store(&reached, 1);
    while (atomic_load(&may_go) == 0 && trii_now_ns() < deadline)
        trii_thread_yield();
}

static tri_status slow_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    out[0].data = NULL;
    return TRI_OK;
}

static tri_status slow_forward(const tri_function_call *call)
{
    if (atomic_load(&waits_in_backward) == 0)
        wait_here();
    memcpy(call->out[0].data, call->in[0].data, 4 * WIDTH * sizeof(float));
    return TRI_OK;
}

static tri_status slow_backward(const tri_function_call *call)
{
    if (atomic_load(&waits_in_backward) == 1)
        wait_here();
    memcpy(call->grad_in[0].data, call->grad_out[0].data, 4 * WIDTH * sizeof(float));
    return TRI_OK;
}

static const tri_function_class slow_class = {.name = "slow",
                                              .shape = slow_shape,
                                              .forward = slow_forward,
                                              .backward = slow_backward,
                                              .backward_without_in = true,
                                              .backward_without_out = true};

static tri_tensor *slow(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = NULL;

    (void)self;
    tri_function_apply(&slow_class, NULL, &x, 1, &y, 1);
    return y;
}

static tri_module *slow_with(int unused)
{
    (void)unused;
    return tri_module_simple("Slow", 0, slow);
}

static void aborter(void *arg)
{
    if (worker_sees(&reached, 1)) /* else what is to be lost is not */
        tri_rpc_abort(arg, "killed");
}

static void slow_begin(bool in_backward)
{
    atomic_store(&reached, 0);
    atomic_store(&may_go, 0);
    atomic_store(&waits_in_backward, in_backward);
}

static void the_death_of_an_owner_ends_what_waits_for_it(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        trii_thread thread;
        far_net f;

        slow_begin(k == 1);
        far_begin(&f, slow_with, NULL);
        tri_backward(remote_loss(tri_forward(f.remote, f.x)));
        CHECK_OK(trii_thread_start(&thread, "abort", aborter, f.r.w.rpc[1]));
        CHECK_FAILS(tri_run(), TRI_ERR_PEER_LOST, "w1");
        assert_int_equal(atomic_load(&may_go), 0);
        trii_thread_join(&thread);
        tri_step_end();
        CHECK_FAILS(tri_tensor_status(tri_forward(f.remote, f.x)), TRI_ERR_PEER_LOST, "w1");
        tri_step_end();
        atomic_store(&may_go, 1);
        far_end_without(&f, 1);
    }
}

/* By a module whose calls have so long. */
static tri_status forward_within(int64_t ms, tri_rpc *rpc, tri_tensor *x)
{
    tri_module *remote =
        tri_remote_module(rpc, "w1/net", &(tri_remote_module_options){.timeout_ms = ms});
    tri_status status;
    char text[512];

    status = tri_tensor_status(tri_forward(remote, x)); /* it opens there what it calls */
    if (status == TRI_OK)
        status = tri_run();
    snprintf(text, sizeof(text), "%s", tri_last_error());
    tri_step_end();
    tri_module_destroy(remote);
    return status == TRI_OK ? status : tri_status_fail(status, "%s", text);
}

static void a_call_ends_at_its_deadline(void **state)
{
    far_net f;
    int64_t ms;

    (void)state;
    slow_begin(false);
    far_begin(&f, slow_with, NULL);
    CHECK_FAILS_WITHIN(ms, forward_within(ms, f.r.w.rpc[0], f.x), TRI_ERR_TIMEOUT,
                       "remote.forward on w1");
    atomic_store(&may_go, 1);
    tri_backward(remote_loss(tri_forward(f.remote, f.x)));
    CHECK_OK(tri_run());
    tri_step_end();
    far_end(&f);
}

static void what_a_dead_caller_had_is_dropped(void **state)
{
    trii_served *served;
    far_net f;

    (void)state;
    far_begin(&f, linear_with, NULL);
    served = served_as(&f.r, 1, "net");
    for (int i = 0; i < 3; i++)
        (void)tri_forward(f.remote, f.x);
    CHECK_OK(tri_run());
    assert_int_equal(served_count(served, served_sessions), 1);
    tri_rpc_abort(f.r.w.rpc[0], "killed");
    served_await(served, served_sessions, 0);
    tri_step_end();
    far_end_without(&f, 0);
}

/* Nobody waits for a release, and none is needed there any more. */
static void a_release_that_its_owner_never_reads_is_not_told(void **state)
{
    int64_t deadline = trii_deadline_ms(20000);
    tri_rpc_ref *session;
    static logged log;
    far_net f;

    (void)state;
    logged_begin(&log);
    far_begin(&f, linear_with, NULL);
    (void)tri_forward(f.remote, f.x);
    CHECK_OK(tri_run());
    CHECK_OK(trii_remote_session(trii_remote_of(f.remote), &session, NULL));
    rpc_lock(f.r.w.rpc[1]); /* reads nothing from here on */
    tri_step_end();
    rpc_end_all(f.r.w.rpc[1], "killed");
    rpc_unlock(f.r.w.rpc[1]);
    while (tri_rpc_ref_status(session) == TRI_OK && trii_now_ns() < deadline)
        trii_thread_yield();
    CHECK_FAILS(tri_rpc_ref_status(session), TRI_ERR_PEER_LOST, "w1");
    tri_rpc_ref_unref(session);
    far_end_without(&f, 1);
    logged_expect_nothing(&log);
}

/* A thread that calls meanwhile. */
typedef struct holder {
    tri_rpc *rpc;
    tri_status status;
    trii_thread thread;
} holder;

/* The thread of the module is in it until the test lets it go on. */
static void holder_main(void *arg)
{
    static const float data[4 * WIDTH] = {1};
    holder *h = arg;
    tri_tensor *x = tri_tensor_from((int64_t[]){4, WIDTH}, 2, TRI_DTYPE_F32, data);

    h->status = forward_within(20000, h->rpc, x);
    tri_tensor_unref(x);
    trii_step_release();
}

/* The first request of those that run before others, if nobody waits for it any more. */
static int has_late_release(const trii_served *s)
{
    return s->queue[0] != NULL && tri_rpc_request_is_cancelled(s->queue[0]->request);
}

static void a_release_that_comes_too_late_is_carried_out_and_told(void **state)
{
    trii_served *served;
    holder h = {0};
    char *text;
    static logged log;
    far_net f;

    (void)state;
    logged_begin(&log);
    slow_begin(false);
    atomic_store(&may_go, 1);
    far_begin(&f, slow_with, NULL);
    served = served_as(&f.r, 1, "net");
    for (int i = 0; i < 3; i++)
        (void)tri_forward(f.remote, f.x);
    CHECK_OK(tri_run());
    slow_begin(false);
    h.rpc = f.r.w.rpc[0];
    CHECK_OK(trii_thread_start(&h.thread, "holder", holder_main, &h));
    worker_wait_for(&reached, 1);
    h.rpc->options.timeout_ms = 10; /* of the release */
    tri_step_end();
    served_await(served, has_late_release, 1);
    assert_int_equal(served_count(served, served_graphs), 3);
    h.rpc->options.timeout_ms = 20000;
    atomic_store(&may_go, 1);
    trii_thread_join(&h.thread);
    CHECK_OK(h.status);
    served_await(served, served_graphs, 0);
    far_end(&f);
    text = logged_read(&log);
    assert_non_null(strstr(text, "may still keep what a step has released: remote.release on w1"));
    free(text);
    logged_end(&log);
}

static int has_urgent(const trii_served *s)
{
    return s->queue[0] != NULL;
}

static int is_stopped(const trii_served *s)
{
    return s->stop;
}

static void withdraw_main(void *arg)
{
    holder *h = arg;

    h->status = tri_remote_withdraw(h->rpc, "net");
}

static void a_release_that_waits_for_a_module_that_is_withdrawn_is_not_told(void **state)
{
    trii_served *served;
    holder h = {0}, end = {0};
    static logged log;
    far_net f;

    (void)state;
    logged_begin(&log);
    slow_begin(false);
    atomic_store(&may_go, 1);
    far_begin(&f, slow_with, NULL);
    served = served_as(&f.r, 1, "net");
    (void)tri_forward(f.remote, f.x);
    CHECK_OK(tri_run());
    slow_begin(false);
    h.rpc = f.r.w.rpc[0];
    CHECK_OK(trii_thread_start(&h.thread, "holder", holder_main, &h));
    worker_wait_for(&reached, 1);
    tri_step_end();
    served_await(served, has_urgent, 1);
    end.rpc = f.r.w.rpc[1];
    CHECK_OK(trii_thread_start(&end.thread, "withdraw", withdraw_main, &end));
    served_await(served, is_stopped, 1);
    atomic_store(&may_go, 1);
    trii_thread_join(&h.thread);
    CHECK_OK(h.status);
    trii_thread_join(&end.thread);
    CHECK_OK(end.status);
    far_end_without(&f, 1);
    logged_expect_nothing(&log);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_death_of_an_owner_ends_what_waits_for_it),
    cmocka_unit_test(a_call_ends_at_its_deadline),
    cmocka_unit_test(what_a_dead_caller_had_is_dropped),
    cmocka_unit_test(a_release_that_its_owner_never_reads_is_not_told),
    cmocka_unit_test(a_release_that_comes_too_late_is_carried_out_and_told),
    cmocka_unit_test(a_release_that_waits_for_a_module_that_is_withdrawn_is_not_told),
};

TEST_MAIN(tests)
