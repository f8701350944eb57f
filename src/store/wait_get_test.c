/*
 * wait_get_test.c - the request that waits for keys and reads them, on a server whose loop the test
 * runs: so the order in which sockets become ready is the test's, and no clock decides anything.
 */
/* ctest: threads=none */
#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/socket.h"
#include "store/tcp_server_inside.h"
#include "testing/check.h"

#define SOON trii_deadline_ms(20000)
#define U64(n) n, 0, 0, 0, 0, 0, 0, 0
#define MOST 200

typedef struct scene {
    trii_loop *loop;
    trii_tcp_server *server;
    int reader, writer, others[MOST];
    int n_others;
} scene;

static const unsigned char ping[] = {13, 1, 2, 3, 4};
static const unsigned char want_k[] = {200, U64(1), U64(1), 'k'};
static const unsigned char set_old[] = {1, U64(1), 'k', U64(3), 'o', 'l', 'd'};
static const unsigned char set_new[] = {1, U64(1), 'k', U64(3), 'n', 'e', 'w'};

static void tell(int fd, const void *bytes, size_t n)
{
    CHECK_OK(trii_socket_send_all(fd, bytes, n, SOON));
}

/* Runs the server until it has answered, or closed the connection. */
static void serve_until_readable(const scene *s, int fd)
{
    int64_t deadline = SOON;

    while (trii_socket_wait(fd, TRII_READABLE, 0) == TRI_ERR_TIMEOUT) {
        assert_true(trii_now_ns() < deadline);
        trii_loop_run_once(s->loop, 0);
    }
}

static void expect(const scene *s, int fd, const void *want, size_t n)
{
    unsigned char got[64];

    serve_until_readable(s, fd);
    CHECK_OK(trii_socket_recv_all(fd, got, n, SOON));
    assert_memory_equal(got, want, n);
}

static void served_ping(const scene *s, int fd)
{
    tell(fd, ping, sizeof(ping));
    expect(s, fd, ping + 1, 4);
}

static int client(const scene *s)
{
    static const unsigned char magic[] = {0, 0xCE, 0xF7, 0x85, 0x3C};
    int fd;

    CHECK_OK(trii_socket_connect("127.0.0.1", trii_tcp_server_port(s->server), SOON, false, &fd));
    tell(fd, magic, sizeof(magic));
    served_ping(s, fd);
    return fd;
}

static void begin(scene *s, int n_others)
{
    setenv("TRI_LOG", "error", 0);
    *s = (scene){.n_others = n_others};
    CHECK_OK(trii_loop_create(&s->loop));
    CHECK_OK(trii_tcp_server_create(
        &(trii_tcp_server_options){.host = "127.0.0.1", .loop = s->loop}, &s->server));
    s->reader = client(s);
    s->writer = client(s);
    for (int i = 0; i < n_others; i++)
        s->others[i] = client(s);
    tell(s->writer, set_old, sizeof(set_old));
    served_ping(s, s->writer);
    trii_loop_run_once(s->loop, 0); /* nobody is ready any more: the system sees that here */
}

static void end(scene *s)
{
    for (int i = 0; i < s->n_others; i++)
        trii_socket_close(s->others[i]);
    trii_socket_close(s->reader);
    trii_socket_close(s->writer);
    trii_tcp_server_destroy(s->server);
    trii_loop_destroy(s->loop);
    assert_int_equal(trii_alloc_live(), 0);
}

/* The reader asks last, but its socket was ready first, and the writer's is the last of all. */
static void check_new(scene *s, void (*others_act)(scene *s))
{
    static const unsigned char is_new[] = {0, U64(3), 'n', 'e', 'w'};

    tell(s->reader, want_k, 1);
    others_act(s);
    tell(s->writer, set_new, sizeof(set_new));
    tell(s->reader, want_k + 1, sizeof(want_k) - 1);
    expect(s, s->reader, is_new, sizeof(is_new));
}

static void do_nothing(scene *s)
{
    (void)s;
}

static void all_leave(scene *s)
{
    for (int i = 0; i < s->n_others; i++)
        trii_socket_close(s->others[i]);
    s->n_others = 0;
}

static void all_ask(scene *s)
{
    for (int i = 0; i < s->n_others; i++)
        tell(s->others[i], ping, sizeof(ping));
}

static void what_was_written_before_is_read(void **state)
{
    scene s;

    (void)state;
    begin(&s, 0);
    check_new(&s, do_nothing);
    end(&s);
}

static void closing_clients_make_no_value_older(void **state)
{
    scene s;

    (void)state;
    begin(&s, 2);
    check_new(&s, all_leave);
    end(&s);
    begin(&s, MOST);
    check_new(&s, all_leave);
    end(&s);
}

static void many_clients_make_no_value_older(void **state)
{
    scene s;

    (void)state;
    begin(&s, MOST);
    check_new(&s, all_ask);
    for (int i = 0; i < s.n_others; i++)
        expect(&s, s.others[i], ping + 1, 4);
    end(&s);
}

/* One in which it is asked for, and one that sees all other sockets. */
static void a_value_that_is_there_is_read_in_the_next_pass(void **state)
{
    static const unsigned char is_old[] = {0, U64(3), 'o', 'l', 'd'};
    unsigned char got[sizeof(is_old)];
    scene s;

    (void)state;
    begin(&s, 0);
    tell(s.reader, want_k, sizeof(want_k));
    for (int i = 0; i < 2; i++) /* would sleep for ever if nothing was due */
        trii_loop_run_once(s.loop, TRII_NO_DEADLINE);
    CHECK_OK(trii_socket_recv_all(s.reader, got, sizeof(got), 0));
    assert_memory_equal(got, is_old, sizeof(got));
    end(&s);
}

static void expect_closed(const scene *s, int fd)
{
    char byte;
    tri_status status;

    serve_until_readable(s, fd);
    status = trii_socket_recv_all(fd, &byte, 1, SOON);
    if (status != TRI_END && status != TRI_ERR_PEER_LOST)
        fail_msg("not closed: %s: %s", tri_status_name(status), tri_last_error());
}

/* One at a time of a connection, whether its keys are there or not; others may wait as well. */
static void a_second_one_before_the_answer_closes_the_connection(void **state)
{
    static const unsigned char want_x[] = {200, U64(1), U64(1), 'x'};
    static const unsigned char wait_x[] = {6, U64(1), U64(1), 'x'};
    static const unsigned char cancel[] = {12}, cancelled[] = {1};
    static const unsigned char is_old[] = {0, U64(3), 'o', 'l', 'd'};
    scene s;

    (void)state;
    begin(&s, 2);
    for (int i = 0; i < 2; i++) { /* one after the other is well */
        tell(s.reader, want_k, sizeof(want_k));
        expect(&s, s.reader, is_old, sizeof(is_old));
    }
    for (int i = 0; i < 2; i++) {
        tell(s.reader, wait_x, sizeof(wait_x));
        tell(s.reader, want_x, sizeof(want_x));
        tell(s.reader, cancel, sizeof(cancel));
        expect(&s, s.reader, cancelled, sizeof(cancelled));
    }
    for (int i = 0; i < 2; i++) {
        tell(s.others[i], want_x, sizeof(want_x));
        tell(s.others[i], i == 0 ? want_x : want_k, sizeof(want_x));
        expect_closed(&s, s.others[i]);
    }
    served_ping(&s, s.reader);
    end(&s);
}

/* The keys that are waited for count as memory that clients hold, until the wait is over. */
static void keys_that_are_kept_are_counted(void **state)
{
    enum { KEY = 8000, N = 8 };
    static const unsigned char head[] = {200, U64(N)}, set[] = {1}, cancel[] = {12};
    static const unsigned char nothing[] = {U64(0)};
    static unsigned char key[8 + KEY], reply[1 + 8 * N];
    const uint64_t length = KEY;
    const trii_connection *reader; /* the list begins with the newest */
    size_t waiting;
    scene s;

    (void)state;
    memcpy(key, &length, sizeof(length));
    for (int end_by = 0; end_by < 2; end_by++) {
        begin(&s, 0);
        tell(s.reader, head, sizeof(head));
        for (int i = 0; i < N; i++)
            tell(s.reader, key, sizeof(key));
        served_ping(&s, s.reader);
        reader = s.server->connections->next;
        waiting = reader->held;
        assert_int_equal(s.server->held, waiting + s.server->connections->held);
        if (end_by == 0) {
            tell(s.reader, cancel, sizeof(cancel));
            expect(&s, s.reader, "\1", 1);
        } else {
            tell(s.writer, set, sizeof(set));
            tell(s.writer, key, sizeof(key));
            tell(s.writer, nothing, sizeof(nothing));
            serve_until_readable(&s, s.reader);
            CHECK_OK(trii_socket_recv_all(s.reader, reply, sizeof(reply), SOON));
        }
        assert_int_equal(s.server->held, reader->held + s.server->connections->held);
        assert_in_range(waiting - reader->held, N * KEY, 2 * N * KEY);
        end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_was_written_before_is_read),
    cmocka_unit_test(closing_clients_make_no_value_older),
    cmocka_unit_test(many_clients_make_no_value_older),
    cmocka_unit_test(a_second_one_before_the_answer_closes_the_connection),
    cmocka_unit_test(keys_that_are_kept_are_counted),
    cmocka_unit_test(a_value_that_is_there_is_read_in_the_next_pass),
};

TEST_MAIN(tests)
