/*
 * remote_rules_test.c - what is refused of remote modules, with whose line; and several callers of
 * one.
 */
#include "testing/remote_layers.h"
#include "testing/remote_served.h"

static void an_error_of_the_owner_comes_with_its_line(void **state)
{
    const int64_t at[] = {3, 11};
    tri_module *net, *table, *remote, *rows;
    tri_tensor *x, *i, *y;
    remote_workers r;

    (void)state;
    remote_begin(&r, 2, NULL);
    net = linear_with(1);
    table = tri_nn_embedding(10, 4, NULL);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "table", table, NULL, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    rows = tri_remote_module(r.w.rpc[0], "w1/table", NULL);
    x = remote_tensor((int64_t[]){2, 3}, 2, TRI_DTYPE_F32, 1);
    i = tri_tensor_from((int64_t[]){2}, 1, TRI_DTYPE_I64, at);
    /* what is known when it is recorded */
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_INVALID_ARG, "w1");
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_INVALID_ARG, "[2, 3]");
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_INVALID_ARG,
                "remote_rules_test.c");
    tri_step_end();
    /* and what is known when it runs */
    y = tri_forward(rows, i);
    CHECK_OK(tri_tensor_status(y));
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "w1");
    CHECK_FAILS(tri_run(), TRI_ERR_INVALID_ARG, "11");
    tri_step_end();
    /* the next step is as good as any */
    tri_tensor_unref(i);
    i = tri_tensor_from((int64_t[]){1}, 1, TRI_DTYPE_I64, at);
    y = tri_forward(rows, i);
    tri_backward(remote_loss(y));
    CHECK_OK(tri_run());
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(i);
    tri_module_destroy(remote);
    tri_module_destroy(rows);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "table"));
    tri_module_destroy(net);
    tri_module_destroy(table);
    remote_end(&r);
}

static const tri_rpc_object thing = {.name = "thing"};

/* This process has workers, and is none by itself. */
static void serving_without_a_worker_fails_with_one_name(void **state)
{
    tri_module *net = tri_nn_linear(2, 2, NULL);

    (void)state;
    CHECK_FAILS(tri_remote_serve(NULL, "net", net, NULL, NULL), TRI_ERR_STATE,
                "remote_serve: this process is not a worker (tri_rpc_init)");
    assert_int_equal(strncmp(tri_last_error(), "remote_serve: this", 18), 0);
    tri_module_destroy(net);
}

static void what_is_not_served_is_refused(void **state)
{
    tri_module *net, *remote;
    tri_rpc_ref *ref = NULL;
    tri_tensor *x;
    remote_workers r;
    int object = 0;

    (void)state;
    remote_begin(&r, 2, NULL);
    net = linear_with(1);
    x = input(1);
    CHECK_OK(tri_rpc_own(r.w.rpc[1], "thing", &thing, &object, &ref));
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    CHECK_FAILS(tri_remote_serve(r.w.rpc[1], "again", net, NULL, NULL), TRI_ERR_STATE,
                "served already, as net");
    remote = tri_remote_module(r.w.rpc[0], "w1/thing", NULL);
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_NOT_FOUND,
                "not a remote module");
    tri_module_destroy(remote);
    remote = tri_remote_module(r.w.rpc[0], "w1", NULL);
    CHECK_FAILS(tri_module_status(remote), TRI_ERR_INVALID_ARG, "ps/table");
    tri_module_destroy(remote);
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    (void)tri_forward(remote, x);
    CHECK_OK(tri_run());
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    CHECK_FAILS(tri_remote_withdraw(r.w.rpc[1], "net"), TRI_ERR_NOT_FOUND, "net");
    (void)tri_forward(remote, x);
    CHECK_FAILS(tri_run(), TRI_ERR_NOT_FOUND, "not served any more");
    tri_step_end();
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_NOT_FOUND,
                "not served any more");
    tri_step_end();
    tri_module_destroy(remote);
    tri_tensor_unref(x);
    tri_module_destroy(net);
    tri_rpc_ref_unref(ref);
    remote_end(&r);
}

/* A worker is the same by its handle and, in a handler of it, by NULL. */
static tri_module *to_serve;

static tri_status run_serve(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_remote_serve(NULL, "net", to_serve, NULL, NULL);
}

static void a_withdrawn_name_may_be_served_again(void **state)
{
    static const tri_rpc_function serve = {.name = "serve", .run = run_serve};
    tri_module *nets[3], *remote;
    tri_rpc_ref *owner;
    tri_tensor *x;
    remote_workers r;

    (void)state;
    remote_begin(&r, 2, NULL);
    worker_serve(&r.w, 1, &serve);
    owner = worker_find(&r.w, 0, "w1");
    remote = tri_remote_module(r.w.rpc[0], "w1/net", NULL);
    x = input(1);
    for (int i = 0; i < 3; i++) {
        tri_tensor *y, *here;

        to_serve = nets[i] = linear_with(i + 1);
        CHECK_OK(tri_rpc_sync(owner, &serve, NULL, NULL, NULL));
        CHECK_FAILS(tri_remote_serve(r.w.rpc[1], "net", nets[0], NULL, NULL), TRI_ERR_STATE, "net");
        if (i > 0) { /* the forward's session was with the last one */
            (void)tri_forward(remote, x);
            CHECK_FAILS(tri_run(), TRI_ERR_NOT_FOUND, "not served any more");
            tri_step_end();
        }
        y = tri_tensor_clone(tri_forward(remote, x));
        CHECK_OK(tri_run());
        CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
        here = tri_tensor_clone(tri_forward(nets[i], x));
        remote_expect_equal(y, here);
        tri_step_end();
        tri_tensor_unref(y);
        tri_tensor_unref(here);
    }
    tri_module_destroy(remote);
    tri_tensor_unref(x);
    tri_rpc_ref_unref(owner);
    for (int i = 0; i < 3; i++)
        tri_module_destroy(nets[i]);
    remote_end(&r);
}

static void an_owner_keeps_only_so_many_graphs(void **state)
{
    far_net f;

    (void)state;
    far_begin(&f, linear_with, &(tri_remote_serve_options){.max_graphs = 3});
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 3; i++)
            (void)tri_forward(f.remote, f.x);
        CHECK_OK(tri_run());
        (void)tri_forward(f.remote, f.x);
        CHECK_FAILS(tri_run(), TRI_ERR_STATE, "max_graphs");
        tri_step_end();
    }
    far_end(&f);
}

/* --- several callers ------------------------------------------------------ */

#define CALLS 40

typedef struct caller {
    tri_rpc *rpc;
    trii_thread thread;
    tri_status status;
    char error[512];
    float losses[CALLS];
} caller;

static tri_status call_often(caller *c, tri_module *net)
{
    tri_status status = TRI_OK;

    for (int step = 0; step < CALLS && status == TRI_OK; step++) {
        float data[4 * WIDTH];
        tri_tensor *x, *loss;
        double value = 0;

        for (int i = 0; i < 4 * WIDTH; i++)
            data[i] = (float)remote_spread(i, step);
        x = tri_tensor_from((int64_t[]){4, WIDTH}, 2, TRI_DTYPE_F32, data);
        tri_requires_grad(x, true);
        loss = remote_loss(tri_forward(net, tri_forward(net, x)));
        tri_backward(loss);
        status = tri_item_status(loss, &value);
        c->losses[step] = (float)value;
        if (status == TRI_OK)
            status = tri_step_end_status();
        tri_tensor_unref(x);
    }
    return status;
}

static void caller_main(void *arg)
{
    caller *c = arg;
    tri_module *remote = tri_remote_module(c->rpc, "w1/net", NULL);

    c->status = call_often(c, remote);
    if (c->status != TRI_OK)
        snprintf(c->error, sizeof(c->error), "%s", tri_last_error());
    tri_step_end();
    tri_module_destroy(remote);
    trii_step_release();
}

static void several_callers_share_a_module(void **state)
{
    caller callers[4], here = {0};
    remote_workers r;
    tri_module *net;

    (void)state;
    remote_begin(&r, 5, NULL);
    net = linear_with(1);
    CHECK_OK(call_often(&here, net));
    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        assert_non_null(tri_grad(tri_module_state(net, i).tensor));
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "net", net, NULL, NULL));
    for (int k = 0; k < 4; k++) {
        callers[k] = (caller){.rpc = r.w.rpc[k == 1 ? 4 : k]};
        CHECK_OK(trii_thread_start(&callers[k].thread, "caller", caller_main, &callers[k]));
    }
    for (int k = 0; k < 4; k++) {
        trii_thread_join(&callers[k].thread);
        if (callers[k].status != TRI_OK)
            fail_msg("%s", callers[k].error);
        assert_memory_equal(callers[k].losses, here.losses, sizeof(here.losses));
    }
    served_await(served_as(&r, 1, "net"), served_sessions, 0);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "net"));
    tri_module_destroy(net);
    remote_end(&r);
}

static int count_answers(tri_module *module)
{
    trii_remote *remote = trii_remote_of(module);
    int n = 0;

    trii_mutex_lock(&remote->lock);
    for (const trii_remote_answer *a = remote->answers; a != NULL; a = a->next)
        n++;
    trii_mutex_unlock(&remote->lock);
    return n;
}

/* As sequences do whose lengths differ. */
static void operands_of_any_number_of_shapes_take_bounded_memory(void **state)
{
    far_net f;

    (void)state;
    far_begin(&f, linear_with, NULL);
    tri_no_grad_begin();
    for (int rows = 1; rows <= 300; rows++) {
        tri_tensor *x = tri_zeros(TRI_SHAPE(rows, WIDTH), TRI_DTYPE_F32);

        CHECK_OK(tri_tensor_status(tri_forward(f.remote, x)));
        tri_step_end();
    }
    assert_int_equal(count_answers(f.remote), 256);
    CHECK_OK(tri_tensor_status(tri_forward(f.remote, f.x))); /* was forgotten, and is asked again */
    tri_step_end();
    assert_int_equal(count_answers(f.remote), 256);
    tri_no_grad_end();
    far_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(operands_of_any_number_of_shapes_take_bounded_memory),
    cmocka_unit_test(an_error_of_the_owner_comes_with_its_line),
    cmocka_unit_test(serving_without_a_worker_fails_with_one_name),
    cmocka_unit_test(what_is_not_served_is_refused),
    cmocka_unit_test(a_withdrawn_name_may_be_served_again),
    cmocka_unit_test(an_owner_keeps_only_so_many_graphs),
    cmocka_unit_test(several_callers_share_a_module),
};

TEST_MAIN(tests)
