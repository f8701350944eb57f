/* socket_test.c - connections over loopback, their failures, and the event loop. */
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/socket.h"
#include "os/thread.h"
#include "testing/check.h"

static void pair(const char *host, int *a_out, int *b_out)
{
    int listener, port;

    CHECK_OK(trii_socket_listen(host, 0, &listener, &port));
    CHECK_OK(trii_socket_connect(host != NULL ? host : "localhost", port, trii_deadline_ms(5000),
                                 false, a_out));
    CHECK_OK(trii_socket_wait(listener, TRII_READABLE, trii_deadline_ms(5000)));
    CHECK_OK(trii_socket_accept(listener, b_out));
    trii_socket_close(listener);
}

static void bytes_travel_over_both_families(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "localhost", NULL};
    char text[6], peer[TRII_ADDR_TEXT];
    int a, b;

    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        pair(hosts[i], &a, &b);
        CHECK_OK(trii_socket_send_all(a, "hello", 6, trii_deadline_ms(5000)));
        CHECK_OK(trii_socket_recv_all(b, text, 6, trii_deadline_ms(5000)));
        assert_string_equal(text, "hello");
        trii_socket_peer_text(b, peer);
        assert_non_null(strstr(peer, hosts[i] != NULL && i == 1 ? "::1 port" : "1 port"));
        trii_socket_close(a);
        assert_int_equal(trii_socket_recv_all(b, text, 6, trii_deadline_ms(5000)), TRI_END);
        trii_socket_close(b);
    }
}

static void failures_name_host_port_and_cause(void **state)
{
    int listener, port, fd = -1, taken;
    char want[64];

    (void)state;
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &listener, &port));
    snprintf(want, sizeof(want), "127.0.0.1 port %d", port);
    CHECK_FAILS(trii_socket_listen("127.0.0.1", port, &fd, &taken), TRI_ERR_STATE, want);
    CHECK_FAILS(trii_socket_listen("127.0.0.1", 70000, &fd, &taken), TRI_ERR_INVALID_ARG, "70000");
    trii_socket_close(listener);
    CHECK_FAILS(trii_socket_connect("127.0.0.1", port, trii_deadline_ms(5000), false, &fd),
                TRI_ERR_PEER_LOST, "Connection refused");
    CHECK_FAILS(trii_socket_connect("127.0.0.1", port, trii_deadline_ms(30), true, &fd),
                TRI_ERR_TIMEOUT, "Connection refused");
    CHECK_FAILS(trii_socket_connect("no.such.host.invalid", 1, trii_deadline_ms(5000), false, &fd),
                TRI_ERR_NOT_FOUND, "no.such.host.invalid port 1");
    CHECK_FAILS(trii_socket_adopt(0, &port), TRI_ERR_INVALID_ARG, "descriptor 0");
    assert_int_equal(fd, -1);
    assert_true(trii_socket_is_loopback("127.0.0.2"));
    assert_true(trii_socket_is_loopback("127.1"));
    assert_true(trii_socket_is_loopback("::1"));
    assert_true(trii_socket_is_loopback("::ffff:127.0.0.1"));
    assert_true(trii_socket_is_loopback("LocalHost"));
    assert_false(trii_socket_is_loopback("192.0.2.1"));
}

static void waits_end_at_the_deadline_and_when_the_peer_dies(void **state)
{
    int64_t start = trii_now_ns();
    unsigned ready, events = TRII_HANGUP;
    char byte;
    int a, b;

    (void)state;
    pair("127.0.0.1", &a, &b);
    CHECK_FAILS(trii_socket_recv_all(a, &byte, 1, trii_deadline_ms(10)), TRI_ERR_TIMEOUT,
                "no answer from 127.0.0.1");
    assert_true(trii_now_ns() - start >= 10 * TRII_NS_PER_MS);
    CHECK_OK(trii_socket_send_all(a, "x", 1, trii_deadline_ms(5000)));
    CHECK_OK(trii_socket_wait(b, TRII_READABLE, trii_deadline_ms(5000)));
    trii_socket_close(b); /* with an unread byte: a reset */
    assert_int_equal(trii_socket_poll(&a, &events, &ready, 1, trii_deadline_ms(5000)), 1);
    assert_int_equal(ready, TRII_HANGUP);
    CHECK_FAILS(trii_socket_recv_all(a, &byte, 1, trii_deadline_ms(5000)), TRI_ERR_PEER_LOST,
                "reset");
    trii_socket_close(a);
}

/* --- loop ----------------------------------------------------------------- */

typedef struct counter {
    trii_watch watch;
    trii_timer timer;
    atomic_int calls;
    struct counter *victim;
} counter;

static void count_ready(trii_watch *watch, unsigned events)
{
    counter *c = (counter *)watch;

    if (!(events & TRII_WRITABLE))
        return;
    atomic_fetch_add(&c->calls, 1);
    if (c->victim != NULL)
        trii_loop_unwatch(&c->victim->watch);
}

static void count_fire(trii_timer *timer)
{
    counter *c = (counter *)((char *)timer - offsetof(counter, timer));

    atomic_fetch_add(&c->calls, 1);
}

static void a_watch_removed_by_another_is_not_called(void **state)
{
    trii_loop *loop = NULL;
    counter one = {.victim = NULL}, two = {.victim = &one};
    int a, b;

    (void)state;
    one.victim = &two;
    pair("127.0.0.1", &a, &b);
    CHECK_OK(trii_loop_create(&loop));
    CHECK_OK(trii_loop_watch(loop, &one.watch, a, TRII_WRITABLE, count_ready));
    CHECK_OK(trii_loop_watch(loop, &two.watch, b, TRII_WRITABLE, count_ready));
    trii_loop_run_once(loop, trii_deadline_ms(5000));
    assert_int_equal(one.calls + two.calls, 1);
    trii_loop_unwatch(&one.watch);
    trii_loop_unwatch(&two.watch);
    trii_loop_run_once(loop, trii_deadline_ms(1));
    assert_int_equal(one.calls + two.calls, 1);
    trii_loop_timer(loop, &one.timer, trii_deadline_ms(2), count_fire);
    while (one.calls + two.calls == 1)
        trii_loop_run_once(loop, trii_deadline_ms(5000));
    trii_loop_timer(loop, &one.timer, trii_deadline_ms(2), count_fire);
    trii_loop_timer_stop(loop, &one.timer);
    trii_loop_run_once(loop, trii_deadline_ms(4));
    assert_int_equal(one.calls + two.calls, 2);
    trii_loop_destroy(loop);
    trii_socket_close(a);
    trii_socket_close(b);
}

static void fire_again(trii_timer *timer)
{
    counter *c = (counter *)((char *)timer - offsetof(counter, timer));

    count_fire(timer);
    if (c->calls < 1000)
        trii_loop_timer(c->watch.loop, timer, 0, fire_again);
}

/* One that is always due fires once in each pass. */
static void a_timer_that_starts_itself_ends_no_pass_late(void **state)
{
    trii_loop *loop = NULL;
    counter c = {.victim = NULL};
    int a, b;

    (void)state;
    pair("127.0.0.1", &a, &b);
    CHECK_OK(trii_loop_create(&loop));
    CHECK_OK(trii_loop_watch(loop, &c.watch, a, 0, count_ready));
    trii_loop_timer(loop, &c.timer, 0, fire_again);
    for (int i = 1; i <= 3; i++) {
        trii_loop_run_once(loop, TRII_NO_DEADLINE);
        assert_int_equal(c.calls, i);
    }
    trii_loop_timer_stop(loop, &c.timer);
    trii_loop_unwatch(&c.watch);
    trii_loop_destroy(loop);
    trii_socket_close(a);
    trii_socket_close(b);
}

static void the_control_thread_serves_all_users(void **state)
{
    long live = trii_alloc_live();
    trii_loop *loop = NULL, *same = NULL;
    counter c = {.victim = NULL};
    int a, b;

    (void)state;
    c.victim = &c; /* removes itself at the first call */
    pair("127.0.0.1", &a, &b);
    CHECK_OK(trii_control_take(&loop));
    CHECK_OK(trii_control_take(&same));
    assert_ptr_equal(loop, same);
    CHECK_OK(trii_loop_watch(loop, &c.watch, a, TRII_WRITABLE, count_ready));
    trii_control_release(loop);
    while (atomic_load(&c.calls) == 0)
        trii_thread_yield();
    trii_loop_timer(loop, &c.timer, trii_deadline_ms(1), count_fire);
    while (atomic_load(&c.calls) == 1)
        trii_thread_yield();
    trii_control_release(loop);
    assert_int_equal(trii_alloc_live(), live);
    CHECK_OK(trii_control_take(&loop)); /* and can start again */
    trii_control_release(loop);
    trii_socket_close(a);
    trii_socket_close(b);
}

/* What the failed start freed belongs to others when the process forks. */
static void one_that_cannot_start_leaves_nothing_to_a_child(void **state)
{
    enum { STEP = 16, SIZES = 32 };
    trii_loop *loop = NULL;
    char *others[SIZES];
    int status = -1;
    long calls = trii_alloc_calls();
    pid_t child;

    (void)state;
    CHECK_OK(trii_control_take(&loop));
    trii_control_release(loop);
    calls = trii_alloc_calls() - calls; /* the thread's is the last one */
    trii_alloc_fail_at(calls);
    CHECK_FAILS(trii_control_take(&loop), TRI_ERR_NO_MEMORY, "thread");
    trii_alloc_fail_at(0);
    for (int i = 0; i < SIZES; i++)
        others[i] = memset(malloc((size_t)(i + 1) * STEP), 0, (size_t)(i + 1) * STEP);
    child = fork();
    if (child == 0) {
        for (int i = 0; i < SIZES; i++)
            for (int k = 0; k < (i + 1) * STEP; k++)
                if (others[i][k] != 0)
                    _exit(1);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < SIZES; i++)
        free(others[i]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_travel_over_both_families),
    cmocka_unit_test(failures_name_host_port_and_cause),
    cmocka_unit_test(waits_end_at_the_deadline_and_when_the_peer_dies),
    cmocka_unit_test(a_watch_removed_by_another_is_not_called),
    cmocka_unit_test(a_timer_that_starts_itself_ends_no_pass_late),
    cmocka_unit_test(the_control_thread_serves_all_users),
    cmocka_unit_test(one_that_cannot_start_leaves_nothing_to_a_child),
};

TEST_MAIN(tests)
