/*
 * robust_futex_test.c - a process that ends marks its robust futex and wakes who waits for it; one
 * that has released it does not.
 */
#include "testing/check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/futex.h"
#include "os/loop.h"
#include "os/robust_futex.h"

typedef struct shared {
    trii_robust_futex futex;
    atomic_int held;
} shared;

static shared *page;

static void hold(trii_timer *timer)
{
    (void)timer;
    trii_robust_futex_hold(&page->futex);
    atomic_store(&page->held, 1);
    trii_futex_wake_all(&page->held);
}

/* A child whose control thread holds the futex; it releases it, or lives until it is killed. */
static pid_t start_child(bool releases)
{
    pid_t pid;

    memset(page, 0, sizeof(*page));
    pid = fork();
    if (pid == 0) {
        trii_timer timer = {0};
        trii_loop *loop;

        if (trii_control_take(&loop) != TRI_OK)
            _exit(1);
        trii_loop_timer(loop, &timer, 0, hold);
        while (atomic_load(&page->held) == 0)
            trii_futex_wait(&page->held, 0, TRII_NO_DEADLINE);
        while (!releases)
            pause();
        trii_loop_lock(loop);
        trii_robust_futex_release(&page->futex);
        trii_loop_unlock(loop);
        _exit(0);
    }
    while (atomic_load(&page->held) == 0)
        trii_futex_wait(&page->held, 0, trii_deadline_ms(10000));
    return pid;
}

static void the_end_is_marked_and_wakes(void **state)
{
    atomic_int never = 0;
    atomic_int *words[2] = {&never, &page->futex.word};
    pid_t pid = start_child(false);
    int expected[2] = {0, atomic_load(&page->futex.word)};

    (void)state;
    assert_int_not_equal(expected[1], 0);
    assert_false(trii_robust_futex_owner_died(expected[1]));
    assert_int_equal(kill(pid, SIGKILL), 0);
    /* The test's deadline ends it if nobody wakes us; a wake for nothing is allowed. */
    while (!trii_robust_futex_owner_died(atomic_load(&page->futex.word)))
        trii_futex_wait_many(words, expected, 2, TRII_NO_DEADLINE);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_thread_that_releases_the_futex_leaves_no_mark(void **state)
{
    pid_t pid = start_child(true);

    (void)state;
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(atomic_load(&page->futex.word), 0);
}

static void futexes_are_released_in_any_order(void **state)
{
    trii_robust_futex futexes[3] = {{0}};

    (void)state;
    for (int i = 0; i < 3; i++)
        trii_robust_futex_hold(&futexes[i]);
    trii_robust_futex_release(&futexes[1]);
    trii_robust_futex_release(&futexes[1]);
    trii_robust_futex_release(&futexes[0]);
    assert_int_not_equal(atomic_load(&futexes[2].word), 0);
    trii_robust_futex_release(&futexes[2]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&futexes[i].word), 0);
}

static int make_page(void **state)
{
    (void)state;
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? -1 : 0;
}

static int free_page(void **state)
{
    (void)state;
    return munmap(page, 4096);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(the_end_is_marked_and_wakes, make_page, free_page),
    cmocka_unit_test_setup_teardown(a_thread_that_releases_the_futex_leaves_no_mark, make_page,
                                    free_page),
    cmocka_unit_test_setup_teardown(futexes_are_released_in_any_order, make_page, free_page),
};

TEST_MAIN(tests)
