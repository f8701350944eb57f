/* thread_test.c - clocks, threads and condition variables. */
#include "base/alloc.h"
#include "os/clock.h"
#include "os/thread.h"
#include "testing/check.h"

typedef struct turn {
    trii_mutex mutex;
    trii_cond changed;
    int value; /* guarded by mutex */
} turn;

static void take_turns(void *arg)
{
    turn *t = arg;

    trii_mutex_lock(&t->mutex);
    for (int i = 0; i < 100; i++) {
        while (t->value % 2 == 0)
            trii_cond_wait(&t->changed, &t->mutex);
        t->value++;
        trii_cond_signal(&t->changed);
    }
    trii_mutex_unlock(&t->mutex);
}

static void two_threads_take_turns(void **state)
{
    long live = trii_alloc_live();
    trii_thread thread;
    turn t = {.value = 0};

    (void)state;
    trii_mutex_init(&t.mutex);
    trii_cond_init(&t.changed);
    CHECK_OK(trii_thread_start(&thread, "a name that is too long", take_turns, &t));
    assert_false(trii_thread_is_self(&thread));
    trii_mutex_lock(&t.mutex);
    for (int i = 0; i < 100; i++) {
        t.value++;
        trii_cond_signal(&t.changed);
        while (t.value % 2 == 1)
            assert_true(trii_cond_wait_until(&t.changed, &t.mutex, TRII_NO_DEADLINE));
    }
    trii_mutex_unlock(&t.mutex);
    trii_thread_join(&thread);
    assert_int_equal(t.value, 200);
    trii_cond_fini(&t.changed);
    trii_mutex_fini(&t.mutex);
    assert_int_equal(trii_alloc_live(), live);
}

static void a_timed_wait_ends_at_its_deadline(void **state)
{
    turn t = {.value = 0};
    int64_t deadline = trii_deadline_ms(5);

    (void)state;
    trii_mutex_init(&t.mutex);
    trii_cond_init(&t.changed);
    trii_mutex_lock(&t.mutex);
    while (trii_cond_wait_until(&t.changed, &t.mutex, deadline))
        ;
    trii_mutex_unlock(&t.mutex);
    assert_true(trii_now_ns() >= deadline);
    trii_cond_fini(&t.changed);
    trii_mutex_fini(&t.mutex);
}

static void deadlines_saturate_and_round_up(void **state)
{
    (void)state;
    assert_true(trii_deadline_ms(-1) == TRII_NO_DEADLINE);
    assert_true(trii_deadline_ms(INT64_MAX / 2) == TRII_NO_DEADLINE);
    assert_int_equal(trii_deadline_left_ms(TRII_NO_DEADLINE), -1);
    assert_int_equal(trii_deadline_left_ms(trii_now_ns() - 1), 0);
    assert_in_range(trii_deadline_left_ms(trii_deadline_ms(60000)), 50000, 60000);
    assert_true(trii_wall_ns() > INT64_C(1600000000) * TRII_NS_PER_S);
}

static void a_thread_that_cannot_start_says_so(void **state)
{
    trii_thread thread;
    long live = trii_alloc_live();

    (void)state;
    trii_alloc_fail_at(1);
    CHECK_FAILS(trii_thread_start(&thread, "t", take_turns, NULL), TRI_ERR_NO_MEMORY, "thread");
    assert_int_equal(trii_alloc_live(), live);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_threads_take_turns),
    cmocka_unit_test(a_timed_wait_ends_at_its_deadline),
    cmocka_unit_test(deadlines_saturate_and_round_up),
    cmocka_unit_test(a_thread_that_cannot_start_says_so),
};

TEST_MAIN(tests)
