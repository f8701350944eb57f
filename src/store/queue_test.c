/*
 * queue_test.c - a pop that waits beside others: a push wakes one of them, and whatever that one
 * does, no value lies in the queue while somebody waits for it.
 */
#include <trireme/store.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "testing/check.h"

#define SOON trii_deadline_ms(20000)
#define U64(n) n, 0, 0, 0, 0, 0, 0, 0

/* A connection that says what it must before it may ask. */
static int connect_raw(const tri_store *server)
{
    static const unsigned char magic[] = {0, 0xCE, 0xF7, 0x85, 0x3C};
    int fd;

    CHECK_OK(trii_socket_connect("127.0.0.1", tri_store_port(server), SOON, false, &fd));
    CHECK_OK(trii_socket_send_all(fd, magic, sizeof(magic), SOON));
    return fd;
}

/* Sends a wait, and returns when the server has it. */
static void wait_raw(int fd, const unsigned char *wait, size_t bytes)
{
    char pong[4];

    CHECK_OK(trii_socket_send_all(fd, wait, bytes, SOON));
    CHECK_OK(trii_socket_send_all(fd, "\15\1\2\3\4", 5, SOON));
    CHECK_OK(trii_socket_recv_all(fd, pong, 4, SOON));
    assert_memory_equal(pong, "\1\2\3\4", 4);
}

typedef struct popper {
    tri_store *store;
    int64_t timeout_ms;
    tri_status status;
    char *value;
    trii_thread thread;
} popper;

static void pop(void *arg)
{
    popper *p = arg;

    p->status = tri_store_queue_pop(p->store, "q", p->timeout_ms, (void **)&p->value, NULL);
}

static void pop_begin(popper *p, tri_store *server, int64_t timeout_ms)
{
    *p = (popper){.timeout_ms = timeout_ms};
    CHECK_OK(tri_store_clone(server, &p->store));
    CHECK_OK(trii_thread_start(&p->thread, "pop", pop, p));
    trii_sleep_until(trii_deadline_ms(50)); /* most likely it waits then */
}

static void pop_end(popper *p, const char *want)
{
    trii_thread_join(&p->thread);
    CHECK_OK(p->status);
    assert_string_equal(p->value, want);
    tri_store_free(p->value);
    tri_store_unref(p->store);
}

static tri_store *serve(void)
{
    tri_store *server = NULL;

    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &(tri_store_tcp_options){.serve = true}, &server));
    return server;
}

/* It goes on waiting, for its other key. */
static void a_push_does_not_wake_a_wait_that_misses_another_key(void **state)
{
    static const unsigned char both[] = {6, U64(2), U64(2), '/', 'q', U64(2), '/', 'x'};
    tri_store *server = serve();
    int fd = connect_raw(server);
    int64_t start;
    popper p;

    (void)state;
    wait_raw(fd, both, sizeof(both));
    pop_begin(&p, server, 20000);
    start = trii_now_ns();
    CHECK_OK(tri_store_queue_push(server, "q", "v", 1));
    pop_end(&p, "v");
    assert_true(trii_now_ns() - start < 20 * TRII_NS_PER_S); /* it was no matter of the deadline */
    trii_socket_close(fd);
    tri_store_unref(server);
}

/* It was stopped, or waits only: tri_store_wait takes nothing. */
static void a_pop_finds_the_value_that_a_woken_client_left(void **state)
{
    static const unsigned char one[] = {6, U64(1), U64(2), '/', 'q'};
    tri_store *server = serve();
    popper p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        int fd = connect_raw(server);

        wait_raw(fd, one, sizeof(one));
        /* at its deadline, before which the push must have come, and long before it */
        pop_begin(&p, server, i > 0 ? 20000 : TEST_SANITIZED ? 3000 : 1000);
        CHECK_OK(tri_store_queue_push(server, "q", "v", 1));
        pop_end(&p, "v");
        trii_socket_close(fd);
    }
    tri_store_unref(server);
}

/* Without memory for a value it stays in the queue, wherever it can. */
static void a_pop_without_memory_loses_nothing(void **state)
{
    tri_store *store = NULL;
    void *value = NULL;
    int64_t n = 1;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_store_queue_push(store, "q", "v", 1));
    for (long i = 1; n > 0; i++) {
        trii_alloc_fail_at(i);
        if (tri_store_queue_try_pop(store, "q", &value, NULL) == TRI_OK) {
            trii_alloc_fail_at(0);
            assert_string_equal(value, "v");
            tri_store_free(value);
            break;
        }
        trii_alloc_fail_at(0);
        CHECK_OK(tri_store_queue_length(store, "q", &n));
        assert_int_equal(n, 1);
    }
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_push_does_not_wake_a_wait_that_misses_another_key),
    cmocka_unit_test(a_pop_finds_the_value_that_a_woken_client_left),
    cmocka_unit_test(a_pop_without_memory_loses_nothing),
};

TEST_MAIN(tests)
