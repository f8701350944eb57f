/*
 * forked_lanes_test.c - a child of fork has none of the threads that compute for devices, and is
 * told what to use; its parent goes on.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <trireme/ops.h>

#include "testing/check.h"

static double over_two_devices(void)
{
    tri_tensor *x = tri_full(TRI_SHAPE(4), 2, TRI_DTYPE_F32);
    double sum = tri_item(tri_sum(
        tri_to(tri_add_scalar(tri_to(tri_square(x), TRI_CPU(1)), 1), TRI_CPU(0)), NULL, 0, false));

    tri_step_end();
    return sum;
}

static void a_forked_child_is_told_of_tri_spawn(void **state)
{
    int ended = -1;
    pid_t child;

    (void)state;
    CHECK_OK(tri_cpu_devices(2));
    CHECK_NEAR(over_two_devices(), 20, 0.0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        double sum = over_two_devices();

        _exit(sum == sum || strstr(tri_last_error(), "tri_spawn") == NULL);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    CHECK_NEAR(over_two_devices(), 20, 0.0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_forked_child_is_told_of_tri_spawn),
};

TEST_MAIN(tests)
