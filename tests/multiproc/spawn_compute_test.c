/*
 * spawn_compute_test.c - workers of a process that has computed itself: they do, too.
 */
#include <trireme/device.h>
#include <trireme/function.h>
#include <trireme/launch.h>
#include <trireme/ops.h>

#include "testing/check.h"

static tri_status compute(int rank, void *arg)
{
    tri_tensor *twos = tri_full(TRI_SHAPE(8), 2, TRI_DTYPE_F32);
    double sum;
    tri_status status = tri_item_status(tri_sum(tri_square(twos), NULL, 0, false), &sum);

    (void)rank;
    (void)arg;
    tri_step_end();
    if (status == TRI_OK && sum != 32)
        return tri_status_fail(TRI_ERR_STATE, "the sum is %g, not 32", sum);
    return status;
}

/* One thread, so that nothing but the computing tells of itself. */
static void workers_compute_where_their_parent_has(void **state)
{
    (void)state;
    setenv("TRI_NUM_THREADS", "1", 1);
    CHECK_OK(compute(0, NULL));
    CHECK_OK(tri_spawn(compute, NULL, 2, NULL));
    CHECK_OK(compute(0, NULL));
}

static void copies_that_cannot_are_told_how(void **state)
{
    (void)state;
    CHECK_OK(compute(0, NULL));
    CHECK_FAILS(tri_spawn(compute, NULL, 1, &(tri_spawn_options){.how = TRI_SPAWN_COPY}),
                TRI_ERR_STATE, "with tri_spawn, without TRI_SPAWN_COPY");
}

/* A function that uses its rank's device and the next one; there are as many as ranks at least. */
static tri_status use_devices(int rank, void *arg)
{
    const tri_device next = TRI_CPU((rank + 1) % 3);
    tri_status status = tri_set_device(TRI_CPU(rank));
    tri_tensor *twos;
    double sum;

    (void)arg;
    if (status != TRI_OK)
        return status;
    twos = tri_full(TRI_SHAPE(8), 2, TRI_DTYPE_F32);
    if (tri_tensor_device(twos) != TRI_CPU(rank))
        return tri_status_fail(TRI_ERR_STATE, "it lies on %s",
                               tri_device_text(tri_tensor_device(twos)));
    twos = tri_add_scalar(tri_to(tri_square(twos), next), 1);
    status = tri_item_status(tri_sum(tri_to(twos, TRI_CPU(rank)), NULL, 0, false), &sum);
    tri_step_end();
    if (status == TRI_OK && sum != 40)
        return tri_status_fail(TRI_ERR_STATE, "the sum is %g, not 40", sum);
    return status;
}

/* Copies of a process that has not used a device, and new processes of one that has. */
static void workers_use_devices_whether_their_parent_has_or_not(void **state)
{
    (void)state;
    CHECK_OK(tri_spawn(use_devices, NULL, 3, NULL));
    CHECK_OK(tri_cpu_devices_set(3));
    CHECK_OK(use_devices(1, NULL));
    CHECK_OK(tri_spawn(use_devices, NULL, 3, NULL));
    CHECK_OK(use_devices(0, NULL));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(workers_use_devices_whether_their_parent_has_or_not),
    cmocka_unit_test(workers_compute_where_their_parent_has),
    cmocka_unit_test(copies_that_cannot_are_told_how),
};

TEST_MAIN(tests)
