/*
 * device_queue_test.c - a thread's current queues of devices.
 */
#include "testing/check.h"

#include <trireme/comm.h>

#include "os/thread.h"

static int places[40]; /* stand for queues */

static void a_queue_is_current_until_another_one_is_named(void **state)
{
    (void)state;
    assert_null(tri_device_queue(TRI_CUDA(2)));
    CHECK_OK(tri_device_set_queue(TRI_CUDA(2), &places[0]));
    CHECK_OK(tri_device_set_queue(TRI_CUDA(5), &places[1]));
    assert_ptr_equal(tri_device_queue(TRI_CUDA(2)), &places[0]);
    assert_ptr_equal(tri_device_queue(TRI_CUDA(5)), &places[1]);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(2), &places[2]));
    assert_ptr_equal(tri_device_queue(TRI_CUDA(2)), &places[2]);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(2), NULL));
    CHECK_OK(tri_device_set_queue(TRI_CUDA(2), NULL));
    assert_null(tri_device_queue(TRI_CUDA(2)));
    assert_ptr_equal(tri_device_queue(TRI_CUDA(5)), &places[1]);
}

static void look(void *arg)
{
    void **seen_out = arg;

    *seen_out = tri_device_queue(TRI_CUDA(0));
}

static void queues_are_the_threads_own(void **state)
{
    trii_thread thread;
    void *seen = &places[9];

    (void)state;
    CHECK_OK(tri_device_set_queue(TRI_CUDA(0), &places[0]));
    CHECK_OK(trii_thread_start(&thread, "looks", look, &seen));
    trii_thread_join(&thread);
    assert_null(seen);
    assert_ptr_equal(tri_device_queue(TRI_CUDA(0)), &places[0]);
}

static void cpu_devices_have_none(void **state)
{
    (void)state;
    CHECK_FAILS(tri_device_set_queue(TRI_CPU(1), &places[0]), TRI_ERR_INVALID_ARG,
                "device_set_queue: cpu:1 has no queue: give NULL");
    CHECK_OK(tri_device_set_queue(TRI_CPU(1), NULL)); /* as it is */
    assert_null(tri_device_queue(TRI_CPU(1)));
}

static void what_is_no_device_is_refused(void **state)
{
    static const tri_device wrong[] = {-1, TRI_CUDA(TRI_MAX_DEVICES), TRI_CPU(TRI_MAX_DEVICES),
                                       2 << 16};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_FAILS(tri_device_set_queue(wrong[i], NULL), TRI_ERR_INVALID_ARG,
                    "is not a device: TRI_CUDA(0) to TRI_CUDA(999) are");
        assert_null(tri_device_queue(wrong[i]));
    }
}

static void a_thread_has_queues_of_32_devices_at_a_time(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++)
        CHECK_OK(tri_device_set_queue(TRI_CUDA(i), &places[i]));
    CHECK_FAILS(tri_device_set_queue(TRI_CUDA(32), &places[32]), TRI_ERR_UNSUPPORTED,
                "queues of 32 devices, the most that it can: set one of them to NULL");
    CHECK_OK(tri_device_set_queue(TRI_CUDA(7), NULL));
    CHECK_OK(tri_device_set_queue(TRI_CUDA(32), &places[32]));
    assert_null(tri_device_queue(TRI_CUDA(7)));
    for (int i = 0; i <= 32; i++)
        assert_ptr_equal(tri_device_queue(TRI_CUDA(i)), i != 7 ? &places[i] : NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_queue_is_current_until_another_one_is_named),
    cmocka_unit_test(queues_are_the_threads_own),
    cmocka_unit_test(cpu_devices_have_none),
    cmocka_unit_test(what_is_no_device_is_refused),
    cmocka_unit_test(a_thread_has_queues_of_32_devices_at_a_time),
};

TEST_MAIN(tests)
