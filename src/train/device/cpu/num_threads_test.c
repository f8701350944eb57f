/*
 * num_threads_test.c - tri_num_threads: where the number comes from, and that steps compute with
 * the one that was set last.
 */
#include <stdatomic.h>

#include <trireme/trireme.h>

#include "train/device/cpu/cpu_parallel.h"
#include "os/thread.h"
#include "train/plan/plan.h"
#include "testing/check.h"

enum { N = 160 };

static void numbers_that_cannot_be_are_refused(void **state)
{
    static const int numbers[] = {0, -1, 1025};

    (void)state;
    CHECK_OK(tri_num_threads_set(3));
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(tri_num_threads_set(numbers[i]), TRI_ERR_INVALID_ARG,
                    "1 to 1024 are allowed; without this call it is TRI_NUM_THREADS");
    assert_int_equal(tri_num_threads(), 3);
}

/* The environment says the default; tri_init changes nothing of what was set. */
static void what_is_set_is_stronger_than_the_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_NUM_THREADS", "5", 1), 0);
    assert_int_equal(setenv("OMP_NUM_THREADS", "6", 1), 0);
    assert_int_equal(tri_num_threads(), 5);
    assert_int_equal(unsetenv("TRI_NUM_THREADS"), 0);
    assert_int_equal(tri_num_threads(), 6); /* nobody has computed */
    CHECK_OK(tri_num_threads_set(2));
    assert_int_equal(tri_num_threads(), 2);
    CHECK_OK(tri_init(NULL));
    assert_int_equal(tri_num_threads(), 2);
    CHECK_OK(tri_num_threads_set(7));
    assert_int_equal(tri_num_threads(), 7);
    tri_finalize();
    assert_int_equal(tri_num_threads(), 7);
}

static void count_part(void *ctx, int64_t begin, int64_t end)
{
    (void)begin;
    (void)end;
    atomic_fetch_add((atomic_int *)ctx, 1);
}

/* The threads that share a loop of this thread. */
static int threads_of_a_loop(void)
{
    atomic_int parts = 0;

    trii_parallel_for(64, 1, count_part, &parts);
    return parts;
}

static void loops_have_as_many_threads_as_were_set_last(void **state)
{
    static const int numbers[] = {4, 2, 1, 5};

    (void)state;
    for (int i = 0; i < 4; i++) {
        CHECK_OK(tri_num_threads_set(numbers[i]));
        assert_int_equal(threads_of_a_loop(), numbers[i]);
    }
}

static void devices_share_the_threads_that_were_set(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    CHECK_OK(tri_num_threads_set(5));
    assert_int_equal(tri_num_threads(), 5);
    trii_parallel_enter(1);
    assert_int_equal(threads_of_a_loop(), 2);
    trii_parallel_enter(0);
    assert_int_equal(threads_of_a_loop(), 3);
    CHECK_OK(tri_num_threads_set(1)); /* at least one each */
    assert_int_equal(threads_of_a_loop(), 1);
    trii_parallel_enter(1);
    assert_int_equal(threads_of_a_loop(), 1);
}

static tri_status check_threads(int rank, void *arg)
{
    (void)rank;
    return tri_num_threads() == *(const int *)arg
               ? TRI_OK
               : tri_status_fail(TRI_ERR_STATE, "%d threads", tri_num_threads());
}

/* What a parent has merely asked for is not the workers' number, which share the cores. */
static void copies_of_a_process_inherit_what_was_set_and_no_default(void **state)
{
    const tri_spawn_options copy = {.how = TRI_SPAWN_COPY};
    int n;

    (void)state;
    assert_int_equal(unsetenv("TRI_NUM_THREADS"), 0);
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    n = tri_num_threads() > 1 ? tri_num_threads() / 2 : 1;
    CHECK_OK(tri_spawn(check_threads, &n, 2, &copy));
    n += 3;
    CHECK_OK(tri_num_threads_set(n));
    CHECK_OK(tri_spawn(check_threads, &n, 2, &copy));
}

/* x is [N, N]; a product, a softmax and a sum: kernels of three kinds. */
static double compute(tri_tensor *x)
{
    double sum = tri_item(tri_mean(tri_mul(tri_softmax(tri_matmul(x, x), 1), x), NULL, 0, false));

    tri_step_end();
    return sum;
}

static tri_tensor *make_input(void)
{
    tri_tensor *x;

    tri_manual_seed(1);
    x = tri_tensor_clone(tri_randn(TRI_SHAPE(N, N), TRI_DTYPE_F32));
    CHECK_OK(tri_tensor_status(x));
    return x;
}

/* Kernels are made for a number of threads: a plan for another one is not taken. */
static void each_number_has_plans_of_its_own(void **state)
{
    tri_tensor *x = make_input();
    uint64_t misses;
    double one;

    (void)state;
    CHECK_OK(tri_num_threads_set(1));
    one = compute(x);
    misses = trii_plan_stats_get().misses;
    CHECK_NEAR(compute(x), one, 0);
    assert_int_equal(trii_plan_stats_get().misses, misses);
    CHECK_OK(tri_num_threads_set(3));
    CHECK_NEAR(compute(x), one, 1e-6);
    assert_int_equal(trii_plan_stats_get().misses, misses + 1);
    CHECK_OK(tri_num_threads_set(1));
    CHECK_NEAR(compute(x), one, 0);
    assert_int_equal(trii_plan_stats_get().misses, misses + 1);
    tri_tensor_unref(x);
}

static tri_status setter_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    return TRI_OK;
}

/* Sets another number in the middle of a run. */
static tri_status setter_forward(const tri_function_call *call)
{
    float *counts = call->out[0].data;
    tri_status status;

    counts[0] = (float)threads_of_a_loop();
    status = tri_num_threads_set(2);
    counts[1] = (float)threads_of_a_loop();
    return status;
}

static const tri_function_class setter = {
    .name = "setter", .shape = setter_shape, .forward = setter_forward};

static void a_run_keeps_the_number_with_which_it_began(void **state)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_F32), *counts;
    float seen[2];

    (void)state;
    CHECK_OK(tri_num_threads_set(3));
    tri_function_apply(&setter, NULL, &x, 1, &counts, 1);
    CHECK_OK(tri_tensor_copy_out(tri_keep(counts), seen, sizeof(seen)));
    CHECK_NEAR(seen[0], 3, 0);
    CHECK_NEAR(seen[1], 3, 0);
    assert_int_equal(threads_of_a_loop(), 2);
    tri_step_end();
    tri_tensor_unref(x);
}

static atomic_bool over;

static void change_all_the_time(void *arg)
{
    (void)arg;
    for (int i = 0; !atomic_load(&over); i++) {
        tri_status status = tri_num_threads_set(1 + i % 3);

        (void)status;
    }
}

static void another_thread_may_set_it_at_any_time(void **state)
{
    tri_tensor *x = make_input();
    trii_thread changer;
    double one;

    (void)state;
    CHECK_OK(tri_num_threads_set(1));
    one = compute(x);
    CHECK_OK(trii_thread_start(&changer, "changer", change_all_the_time, NULL));
    for (int i = 0; i < 200; i++)
        CHECK_NEAR(compute(x), one, 1e-6);
    atomic_store(&over, true);
    trii_thread_join(&changer);
    tri_tensor_unref(x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(numbers_that_cannot_be_are_refused),
    cmocka_unit_test(what_is_set_is_stronger_than_the_environment),
    cmocka_unit_test(loops_have_as_many_threads_as_were_set_last),
    cmocka_unit_test(devices_share_the_threads_that_were_set),
    cmocka_unit_test(copies_of_a_process_inherit_what_was_set_and_no_default),
    cmocka_unit_test(each_number_has_plans_of_its_own),
    cmocka_unit_test(a_run_keeps_the_number_with_which_it_began),
    cmocka_unit_test(another_thread_may_set_it_at_any_time),
};

TEST_MAIN(tests)
