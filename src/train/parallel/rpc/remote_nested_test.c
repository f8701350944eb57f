/*
 * remote_nested_test.c - remote modules that call others.
 */
#include "testing/remote_layers.h"

static tri_tensor *both_forward(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = tri_forward(tri_module_submodule(self, "far"), x);

    return tri_forward(tri_module_submodule(self, "near"), tri_tanh(y));
}

/* far, then near. */
static tri_module *both(tri_module *far, tri_module *near)
{
    tri_module *self = tri_module_simple("Both", 0, both_forward);

    (void)tri_module_add_child(self, "far", far);
    (void)tri_module_add_child(self, "near", near);
    CHECK_OK(tri_module_status(self));
    return self;
}

static void modules_on_three_workers_have_the_bits_of_one_process(void **state)
{
    tri_module *here, *middle, *last, *remote;
    tri_tensor *x, *rx;
    remote_workers r;

    (void)state;
    remote_begin(&r, 4, NULL);
    here = both(both(linear_with(1), linear_with(2)), linear_with(3));
    last = linear_with(1);
    CHECK_OK(tri_remote_serve(r.w.rpc[3], "last", last, NULL, NULL));
    middle = both(tri_remote_module(r.w.rpc[2], "w3/last", NULL), linear_with(2));
    CHECK_OK(tri_remote_serve(r.w.rpc[2], "middle", middle, NULL, NULL));
    remote = both(tri_remote_module(r.w.rpc[0], "w2/middle", NULL), linear_with(3));
    /* the bias of both is random: one for all */
    remote_copy_state(last, tri_module_submodule(here, "far.far"));
    remote_copy_state(tri_module_submodule(middle, "near"), tri_module_submodule(here, "far.near"));
    remote_copy_state(tri_module_submodule(remote, "near"), tri_module_submodule(here, "near"));
    x = input(4);
    rx = input(4);
    for (int step = 0; step < 3; step++) {
        tri_tensor *y = tri_keep(tri_forward(here, x)), *ry = tri_keep(tri_forward(remote, rx));

        CHECK_OK(tri_tensor_status(ry));
        tri_backward(remote_loss(y));
        tri_backward(remote_loss(ry));
        CHECK_OK(tri_run());
        remote_expect_equal(y, ry);
        remote_expect_equal(tri_grad(x), tri_grad(rx));
        remote_expect_equal(tri_grad(tri_module_find(here, "near.weight")),
                            tri_grad(tri_module_find(remote, "near.weight")));
        tri_step_end();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(rx);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[2], "middle"));
    tri_module_destroy(middle);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[3], "last"));
    tri_module_destroy(last);
    tri_module_destroy(here);
    remote_end(&r);
}

static void a_module_that_calls_itself_through_another_worker_is_refused(void **state)
{
    tri_module *one, *two, *remote;
    tri_tensor *x;
    remote_workers r;

    (void)state;
    remote_begin(&r, 3, NULL);
    one = both(tri_remote_module(r.w.rpc[1], "w2/two", NULL), linear_with(1));
    two = both(tri_remote_module(r.w.rpc[2], "w1/one", NULL), linear_with(2));
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "one", one, NULL, NULL));
    CHECK_OK(tri_remote_serve(r.w.rpc[2], "two", two, NULL, NULL));
    remote = tri_remote_module(r.w.rpc[0], "w1/one", NULL);
    x = input(4);
    CHECK_FAILS(tri_tensor_status(tri_forward(remote, x)), TRI_ERR_STATE,
                "one calls itself through another worker");
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(remote);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "one"));
    CHECK_OK(tri_remote_withdraw(r.w.rpc[2], "two"));
    tri_module_destroy(one);
    tri_module_destroy(two);
    remote_end(&r);
}

/* A module that ends its own service. */
static tri_rpc *own_rpc;
static tri_status own_status; /* of its thread, as the line */
static char own_line[512];

static tri_tensor *withdraw_forward(tri_module *self, tri_tensor *x)
{
    (void)self;
    own_status = tri_remote_withdraw(own_rpc, "net");
    snprintf(own_line, sizeof(own_line), "%s", tri_last_error());
    return tri_tanh(x);
}

static tri_module *withdraw_with(int unused)
{
    (void)unused;
    return tri_module_simple("Withdraw", 0, withdraw_forward);
}

static void a_module_does_not_withdraw_itself(void **state)
{
    far_net f;

    (void)state;
    far_begin(&f, withdraw_with, NULL);
    own_rpc = f.r.w.rpc[1];
    CHECK_OK(tri_tensor_status(tri_forward(f.remote, f.x)));
    CHECK_OK(tri_run());
    assert_int_equal(own_status, TRI_ERR_STATE);
    assert_non_null(strstr(own_line, "net waits for this call"));
    tri_step_end();
    far_end(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(modules_on_three_workers_have_the_bits_of_one_process),
    cmocka_unit_test(a_module_that_calls_itself_through_another_worker_is_refused),
    cmocka_unit_test(a_module_does_not_withdraw_itself),
};

TEST_MAIN(tests)
