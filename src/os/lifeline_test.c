/*
 * lifeline_test.c - a process that ends marks its line and wakes who waits for it; one that drops
 * its line does not.
 */
#include "testing/check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/futex.h"
#include "os/lifeline.h"
#include "os/loop.h"

typedef struct shared {
    trii_lifeline line;
    atomic_int held;
} shared;

static shared *page;

static void hold(trii_timer *timer)
{
    (void)timer;
    trii_lifeline_hold(&page->line);
    atomic_store(&page->held, 1);
    trii_futex_wake_all(&page->held);
}

/* A child whose control thread holds the line; it drops it again, or is there until killed. */
static pid_t start_child(bool drops)
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
        while (!drops)
            pause();
        trii_loop_lock(loop);
        trii_lifeline_drop(&page->line);
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
    atomic_int *words[2] = {&never, &page->line.word};
    pid_t pid = start_child(false);
    int expected[2] = {0, atomic_load(&page->line.word)};

    (void)state;
    assert_int_not_equal(expected[1], 0);
    assert_false(trii_lifeline_is_cut(expected[1]));
    assert_int_equal(kill(pid, SIGKILL), 0);
    /* The test's deadline ends it if nobody wakes us; a wake for nothing is allowed. */
    while (!trii_lifeline_is_cut(atomic_load(&page->line.word)))
        trii_futex_wait_many(words, expected, 2, TRII_NO_DEADLINE);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void who_drops_it_leaves_no_mark(void **state)
{
    pid_t pid = start_child(true);

    (void)state;
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(atomic_load(&page->line.word), 0);
}

static void lines_are_dropped_in_any_order(void **state)
{
    trii_lifeline lines[3] = {{0}};

    (void)state;
    for (int i = 0; i < 3; i++)
        trii_lifeline_hold(&lines[i]);
    trii_lifeline_drop(&lines[1]);
    trii_lifeline_drop(&lines[1]);
    trii_lifeline_drop(&lines[0]);
    assert_int_not_equal(atomic_load(&lines[2].word), 0);
    trii_lifeline_drop(&lines[2]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&lines[i].word), 0);
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
    cmocka_unit_test_setup_teardown(who_drops_it_leaves_no_mark, make_page, free_page),
    cmocka_unit_test_setup_teardown(lines_are_dropped_in_any_order, make_page, free_page),
};

TEST_MAIN(tests)
