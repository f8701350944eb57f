/*
 * module_to_test.c - tensors and modules on other devices: tri_to and its gradient, modules that
 * move with their optimizer's state.
 */
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "testing/check.h"

#define ELEMENTS 7

static tri_tensor *ramp(tri_device device)
{
    float data[ELEMENTS];
    tri_tensor *x = NULL;

    for (int i = 0; i < ELEMENTS; i++)
        data[i] = (float)i;
    TRI_ON(device)
    {
        x = tri_tensor_from(TRI_SHAPE(1, ELEMENTS), TRI_DTYPE_F32, data);
    }
    return x;
}

static void a_copy_has_the_values_and_carries_gradients(void **state)
{
    tri_tensor *x, *y;
    float out[ELEMENTS];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    x = ramp(TRI_CPU(0));
    tri_requires_grad(x, true);
    for (int step = 0; step < 3; step++) {
        y = tri_to(tri_mul_scalar(x, 2), TRI_CPU(1));
        assert_int_equal(tri_tensor_device(y), TRI_CPU(1));
        assert_ptr_equal(tri_to(y, TRI_CPU(1)), y);
        y = tri_keep(tri_square(y));
        tri_backward(tri_sum(y, NULL, 0, false));
        assert_int_equal(tri_tensor_device(tri_grad(x)), TRI_CPU(0));
        CHECK_OK(tri_tensor_copy_out(y, out, sizeof(out)));
        CHECK_NEAR(out[3], 36, 0.0);
        CHECK_OK(tri_tensor_copy_out(tri_grad(x), out, sizeof(out)));
        CHECK_NEAR(out[3], 24.0 * (step + 1), 0.0); /* d (2x)^2 = 8x */
        CHECK_OK(tri_step_end_status());
    }
    tri_tensor_unref(x);
}

static void nothing_and_misuse(void **state)
{
    tri_tensor *empty = tri_tensor_create(TRI_SHAPE(0, 3), TRI_DTYPE_I64), *y;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    y = tri_to(empty, TRI_CPU(1));
    assert_int_equal(tri_tensor_device(y), TRI_CPU(1));
    CHECK_OK(tri_tensor_copy_out(y, NULL, 0));
    CHECK_FAILS(tri_tensor_status(tri_to(empty, TRI_CPU(2))), TRI_ERR_INVALID_ARG,
                "cpu:2 does not exist: there are 2 cpu devices");
    CHECK_FAILS(tri_tensor_status(tri_to(NULL, TRI_CPU(1))), TRI_ERR_INVALID_ARG, "NULL");
    CHECK_FAILS(tri_module_to(NULL, TRI_CPU(1)), TRI_ERR_INVALID_ARG,
                "tri_module_to: the module is NULL");
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(empty);
}

/* A step of training; the loss. */
static double train(tri_module *net, tri_optimizer *optimizer, tri_device device)
{
    tri_tensor *x = ramp(TRI_CPU(0));
    double loss;
    tri_tensor *l = tri_mean(tri_square(tri_forward(net, tri_to(x, device))), NULL, 0, false);

    tri_backward(l);
    loss = tri_item(tri_keep(l));
    CHECK_OK(tri_optimizer_step(optimizer));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    return loss;
}

static tri_module *network(void)
{
    tri_manual_seed(3);
    return tri_nn_sequential(tri_nn_linear(ELEMENTS, 5, NULL), tri_nn_relu(),
                             tri_nn_linear(5, 2, NULL));
}

static void a_module_trains_on_wherever_it_is(void **state)
{
    tri_module *still, *moved;
    tri_optimizer *still_adam, *moved_adam;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    still = network();
    moved = network();
    still_adam = tri_adam(still, 0.01, NULL);
    moved_adam = tri_adam(moved, 0.01, NULL);
    for (int step = 0; step < 9; step++) {
        tri_device device = TRI_CPU(step / 3);

        CHECK_OK(tri_module_to(moved, device));
        assert_int_equal(tri_tensor_device(tri_module_state(moved, 0).tensor), device);
        CHECK_NEAR(train(moved, moved_adam, device), train(still, still_adam, TRI_CPU(0)), 0.0);
        assert_int_equal(tri_tensor_device(tri_optimizer_state(moved_adam, 0).tensor), device);
    }
    tri_optimizer_destroy(still_adam);
    tri_optimizer_destroy(moved_adam);
    tri_module_destroy(still);
    tri_module_destroy(moved);
}

static void what_was_recorded_before_keeps_the_old_device(void **state)
{
    tri_module *net;
    tri_tensor *x, *y;
    float before[2], after[2];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    net = network();
    x = ramp(TRI_CPU(0));
    y = tri_keep(tri_forward(net, x));
    CHECK_OK(tri_module_to(net, TRI_CPU(1)));
    CHECK_OK(tri_tensor_copy_out(y, before, sizeof(before)));
    CHECK_OK(tri_tensor_copy_out(tri_forward(net, tri_to(x, TRI_CPU(1))), after, sizeof(after)));
    assert_memory_equal(before, after, sizeof(before));
    CHECK_FAILS(tri_tensor_status(tri_forward(net, x)), TRI_ERR_INVALID_ARG, "cpu:1");
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(net);
}

static void batch_norm_counts_where_it_is(void **state)
{
    tri_module *norm;
    int64_t count = 0;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    norm = tri_nn_batch_norm2d(2, NULL);
    for (int step = 0; step < 2; step++) {
        CHECK_OK(tri_module_to(norm, TRI_CPU(step)));
        TRI_ON(TRI_CPU(step))
        {
            CHECK_OK(tri_tensor_status(
                tri_forward(norm, tri_randn(TRI_SHAPE(2, 2, 3, 3), TRI_DTYPE_F32))));
        }
        CHECK_OK(tri_step_end_status());
    }
    CHECK_OK(
        tri_tensor_copy_out(tri_module_find(norm, "num_batches_tracked"), &count, sizeof(count)));
    assert_int_equal(count, 2);
    tri_module_destroy(norm);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_copy_has_the_values_and_carries_gradients),
    cmocka_unit_test(nothing_and_misuse),
    cmocka_unit_test(a_module_trains_on_wherever_it_is),
    cmocka_unit_test(what_was_recorded_before_keeps_the_old_device),
    cmocka_unit_test(batch_norm_counts_where_it_is),
};

TEST_MAIN(tests)
