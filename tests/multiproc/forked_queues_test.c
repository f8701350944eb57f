/*
 * forked_queues_test.c - a child of fork has none of its parent's threads, neither those that
 * compute on devices nor those that load data: its calls fail with a line that says what to use
 * instead, and its parent continues unharmed.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <trireme/data.h>
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
    CHECK_OK(tri_cpu_devices_set(2));
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

static double on_one_device(void)
{
    tri_tensor *x = tri_full(TRI_SHAPE(1 << 16), 2, TRI_DTYPE_F32);
    double sum = tri_item(tri_sum(tri_square(x), NULL, 0, false));

    tri_step_end();
    return sum;
}

/* With one thread, which has nothing to lose, and with several, of which the child has none. */
static void a_child_is_told_with_one_device_too(void **state)
{
    static const char *const threads[] = {"1", "3"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        int ended = -1;
        pid_t parent = fork(), child;

        assert_true(parent >= 0);
        if (parent == 0) {
            setenv("TRI_NUM_THREADS", threads[i], 1);
            if (on_one_device() != 4 << 16)
                _exit(2);
            child = fork();
            if (child == 0) {
                double sum;

                alarm(20);
                sum = on_one_device();
                _exit(sum == sum || strstr(tri_last_error(), "tri_spawn") == NULL);
            }
            if (waitpid(child, &ended, 0) != child || ended != 0)
                _exit(3);
            _exit(on_one_device() != 4 << 16);
        }
        assert_int_equal(waitpid(parent, &ended, 0), parent);
        assert_int_equal(ended, 0);
    }
}

/* A child that computes first, whose parent has not. */
static void a_child_of_a_parent_that_never_computed_may(void **state)
{
    int ended = -1;
    pid_t child = fork();

    (void)state;
    assert_true(child >= 0);
    if (child == 0)
        _exit(on_one_device() != 4 << 16);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

/* 0: it went as it should. */
static int use_of_a_child(tri_dataset *set, tri_loader *inherited)
{
    tri_loader *own;
    tri_batch batch;

    alarm(20);
    if (tri_loader_next(inherited, &batch) != TRI_ERR_STATE ||
        strstr(tri_last_error(), "tri_loader_next: this is a child of fork()") == NULL)
        return 1;
    if (tri_loader_begin(inherited, 1, 0) != TRI_ERR_STATE ||
        strstr(tri_last_error(), "tri_loader_begin: this is a child of fork()") == NULL)
        return 2;
    tri_loader_destroy(inherited);
    if (tri_loader_create(set, NULL, 8, NULL, &own) != TRI_OK ||
        tri_loader_begin(own, 0, 0) != TRI_OK || tri_loader_next(own, &batch) != TRI_OK)
        return 3;
    tri_loader_destroy(own);
    return 0;
}

static void a_child_makes_loaders_of_its_own(void **state)
{
    static const float samples[64];
    const void *const contents[1] = {samples};
    const tri_field number = {.dtype = TRI_DTYPE_F32};
    const tri_loader_options options = {.n_threads = 2};
    int ended = -1;
    tri_dataset *set;
    tri_loader *loader;
    tri_batch batch;
    pid_t child;

    (void)state;
    CHECK_OK(tri_dataset_arrays(64, &number, contents, 1, &set));
    CHECK_OK(tri_loader_create(set, NULL, 8, &options, &loader));
    CHECK_OK(tri_loader_begin(loader, 0, 0));
    CHECK_OK(tri_loader_next(loader, &batch));
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(use_of_a_child(set, loader));
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    CHECK_OK(tri_loader_next(loader, &batch));
    tri_loader_destroy(loader);
    tri_dataset_destroy(set);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_child_makes_loaders_of_its_own),
    cmocka_unit_test(a_forked_child_is_told_of_tri_spawn),
    cmocka_unit_test(a_child_is_told_with_one_device_too),
    cmocka_unit_test(a_child_of_a_parent_that_never_computed_may),
};

TEST_MAIN(tests)
