/*
 * devices_test.c - which devices there are, what lies on which, and operands that do not fit.
 */
#include <trireme/group.h>
#include <trireme/nn.h>
#include <trireme/ops.h>

#include "testing/check.h"

static tri_tensor *two(void)
{
    return tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_F32);
}

static void there_is_one_cpu_unless_more_are_asked_for(void **state)
{
    (void)state;
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 1);
    assert_int_equal(tri_device_count(TRI_DEVICE_CUDA), 0);
    assert_int_equal(tri_device_count((tri_device_kind)2), 0);
    CHECK_FAILS(tri_set_device(TRI_CPU(1)), TRI_ERR_INVALID_ARG,
                "tri_set_device: cpu:1 does not exist: there are 1 cpu devices");
    CHECK_FAILS(tri_set_device(TRI_CUDA(0)), TRI_ERR_INVALID_ARG,
                "cuda:0 does not exist: this build has no cuda devices, only cpu devices");
    CHECK_FAILS(tri_set_device(-1), TRI_ERR_INVALID_ARG, "device -1 does not exist");
    CHECK_FAILS(tri_set_device(TRI_CPU(TRI_MAX_DEVICES)), TRI_ERR_INVALID_ARG, "device 1000");
    assert_int_equal(tri_current_device(), TRI_CPU(0));
    CHECK_FAILS(tri_cpu_devices_set(2), TRI_ERR_STATE, "there are 1: call it before anything else");
    CHECK_OK(tri_cpu_devices_set(1));
}

static void devices_have_names(void **state)
{
    (void)state;
    assert_string_equal(tri_device_text(TRI_CPU(0)), "cpu:0");
    assert_string_equal(tri_device_text(TRI_CPU(10)), "cpu:10");
    assert_string_equal(tri_device_text(TRI_CPU(999)), "cpu:999");
    assert_string_equal(tri_device_text(TRI_CPU(307)), "cpu:307");
    assert_string_equal(tri_device_text(TRI_CUDA(5)), "cuda:5");
    assert_string_equal(tri_device_text(TRI_CPU(1000)), "no device");
    assert_string_equal(tri_device_text(-1), "no device");
    assert_string_equal(tri_device_text(INT32_MAX), "no device");
}

static void the_number_of_cpus_can_be_asked_for(void **state)
{
    (void)state;
    CHECK_FAILS(tri_cpu_devices_set(0), TRI_ERR_INVALID_ARG, "n is 0, 1 to 1000 are allowed");
    CHECK_FAILS(tri_cpu_devices_set(1001), TRI_ERR_INVALID_ARG, "n is 1001");
    CHECK_OK(tri_cpu_devices_set(3));
    CHECK_OK(tri_cpu_devices_set(3));
    CHECK_FAILS(tri_cpu_devices_set(2), TRI_ERR_STATE, "there are 3");
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 3);
}

static void the_environment_says_how_many_cpus(void **state)
{
    (void)state;
    setenv("TRI_CPU_DEVICES", "4", 1);
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 4);
    setenv("LOCAL_WORLD_SIZE", "6", 1); /* of a launcher: one for each local rank */
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 6);
    CHECK_OK(tri_set_device(TRI_CPU(5)));
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 4);
}

static void a_list_chooses_and_renumbers(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(4));
    setenv("TRI_VISIBLE_DEVICES", "cpu:3,cpu:1", 1);
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 2);
    CHECK_OK(tri_set_device(TRI_CPU(1)));
    CHECK_FAILS(tri_set_device(TRI_CPU(2)), TRI_ERR_INVALID_ARG,
                "there are 2 cpu devices (those of TRI_VISIBLE_DEVICES)");
    setenv("TRI_VISIBLE_DEVICES", "cpu:1,cpu:4", 1); /* a warning, and it does not count */
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 4);
    setenv("TRI_VISIBLE_DEVICES", "1,2", 1); /* as in CUDA_VISIBLE_DEVICES */
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 2);
    setenv("TRI_VISIBLE_DEVICES", "1,2x", 1);
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 4);
    setenv("TRI_VISIBLE_DEVICES", "cuda:0", 1);
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 4);
    setenv("TRI_VISIBLE_DEVICES", "cpu:1,cpu:1", 1);
    assert_int_equal(tri_device_count(TRI_DEVICE_CPU), 4);
}

/* Before tri_init and after it: a program from GPUs has this line in front of either. */
static void each_local_rank_has_a_cpu_device(void **state)
{
    static const char *const launchers[][4][2] = {
        {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}},
        {{"RANK", "1"}, {"WORLD_SIZE", "4"}}, /* by hand */
        {{"OMPI_COMM_WORLD_RANK", "5"},
         {"OMPI_COMM_WORLD_SIZE", "8"},
         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
        {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        clearenv();
        assert_int_equal(tri_local_rank(), 0);
        assert_int_equal(tri_local_world_size(), 1);
        for (int j = 0; j < 4 && launchers[i][j][0] != NULL; j++)
            setenv(launchers[i][j][0], launchers[i][j][1], 1);
        assert_int_equal(tri_local_rank(), 1);
        assert_int_equal(tri_local_world_size(), 4);
        CHECK_OK(tri_set_device(TRI_CPU(tri_local_rank())));
        CHECK_OK(tri_set_device(TRI_CPU(3)));
        CHECK_FAILS(tri_set_device(TRI_CPU(4)), TRI_ERR_INVALID_ARG, "there are 4 cpu devices");
    }
    CHECK_OK(tri_set_device(TRI_CPU(0)));
    clearenv();
    setenv("LOCAL_RANK", "two", 1); /* tri_init says what is wrong */
    assert_int_equal(tri_local_rank(), 0);
}

static void what_is_made_from_nothing_lies_on_the_current_device(void **state)
{
    const float data[2] = {1, 2};
    tri_tensor *a, *b, *c = NULL, *clone;
    tri_module *linear = NULL;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(3));
    a = two();
    CHECK_OK(tri_set_device(TRI_CPU(1)));
    b = two();
    TRI_ON(TRI_CPU(2))
    {
        c = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F32, data);
        linear = tri_nn_linear(2, 2, NULL);
        TRI_ON(TRI_CPU(0))
        {
            assert_int_equal(tri_tensor_device(tri_zeros(TRI_SHAPE(2), TRI_DTYPE_F32)), TRI_CPU(0));
        }
        assert_int_equal(tri_tensor_device(tri_randn(TRI_SHAPE(2), TRI_DTYPE_F32)), TRI_CPU(2));
        assert_int_equal(tri_current_device(), TRI_CPU(2));
    }
    assert_int_equal(tri_current_device(), TRI_CPU(1));
    assert_int_equal(tri_tensor_device(a), TRI_CPU(0));
    assert_int_equal(tri_tensor_device(b), TRI_CPU(1));
    assert_int_equal(tri_tensor_device(c), TRI_CPU(2));
    assert_int_equal(tri_tensor_device(tri_module_state(linear, 0).tensor), TRI_CPU(2));
    /* an operation runs where its operands lie, and its results lie there */
    assert_int_equal(tri_tensor_device(tri_forward(linear, tri_reshape(c, TRI_SHAPE(1, 2)))),
                     TRI_CPU(2));
    clone = tri_tensor_clone(c);
    assert_int_equal(tri_tensor_device(clone), TRI_CPU(2));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(clone);
    tri_tensor_unref(a);
    tri_tensor_unref(b);
    tri_tensor_unref(c);
    tri_module_destroy(linear);
}

static void a_step_is_not_taken_for_one_on_another_device(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (int i = 0; i < 4; i++) {
        tri_device device = TRI_CPU(i % 2);

        TRI_ON(device)
        {
            tri_tensor *x = tri_add_scalar(tri_zeros(TRI_SHAPE(3), TRI_DTYPE_F32), 1);

            assert_int_equal(tri_tensor_device(x), device);
            CHECK_NEAR(tri_item(tri_sum(x, NULL, 0, false)), 3, 0.0);
        }
        CHECK_OK(tri_step_end_status());
    }
}

static void operands_on_two_devices_are_named(void **state)
{
    tri_tensor *a, *b = NULL, *sum;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    a = two();
    TRI_ON(TRI_CPU(1))
    {
        b = two();
    }
    sum = tri_add(a, b);
    CHECK_FAILS(tri_tensor_status(sum), TRI_ERR_INVALID_ARG,
                "argument 0 lies on cpu:0, argument 1 on cpu:1: tri_to copies");
    assert_int_equal(tri_tensor_device(sum), -1);
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(a);
    tri_tensor_unref(b);
}

static void mistakes_with_scopes_fail_the_step(void **state)
{
    (void)state;
    tri_device_end();
    CHECK_FAILS(tri_run(), TRI_ERR_STATE, "tri_device_end without tri_device_begin");
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "tri_device_end");
    TRI_ON(TRI_CPU(7))
    {
        assert_int_equal(tri_current_device(), TRI_CPU(0));
    }
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_INVALID_ARG,
                "tri_device_begin: cpu:7 does not exist");
    for (int i = 0; i < 65; i++)
        tri_device_begin(TRI_CPU(0));
    CHECK_FAILS(tri_step_end_status(), TRI_ERR_STATE, "nested more than 64 deep");
    for (int i = 0; i < 65; i++)
        tri_device_end();
    CHECK_OK(tri_step_end_status());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(there_is_one_cpu_unless_more_are_asked_for),
    cmocka_unit_test(devices_have_names),
    cmocka_unit_test(the_number_of_cpus_can_be_asked_for),
    cmocka_unit_test(the_environment_says_how_many_cpus),
    cmocka_unit_test(a_list_chooses_and_renumbers),
    cmocka_unit_test(each_local_rank_has_a_cpu_device),
    cmocka_unit_test(what_is_made_from_nothing_lies_on_the_current_device),
    cmocka_unit_test(a_step_is_not_taken_for_one_on_another_device),
    cmocka_unit_test(operands_on_two_devices_are_named),
    cmocka_unit_test(mistakes_with_scopes_fail_the_step),
};

TEST_MAIN(tests)
