/*
 * tcp_limits_test.c - what clients can make the TCP store's server hold: replies that nobody
 * reads, connections, and silent ones. The test runs the server's loop, so no clock decides.
 */
/* ctest: threads=none */
#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/socket.h"
#include "store/tcp_server_internal.h"
#include "testing/check.h"

#define SOON trii_deadline_ms(20000)
#define U64(n) n, 0, 0, 0, 0, 0, 0, 0
#define MIB ((size_t)1 << 20)

static const unsigned char magic[] = {0, 0xCE, 0xF7, 0x85, 0x3C};
static const unsigned char ping[] = {13, 1, 2, 3, 4};

typedef struct scene {
    trii_loop *loop;
    trii_tcp_server *server;
} scene;

static void begin(scene *s, trii_tcp_server_options options)
{
    setenv("TRI_LOG", "error", 1);
    CHECK_OK(trii_loop_create(&s->loop));
    options.host = "127.0.0.1";
    options.loop = s->loop;
    CHECK_OK(trii_tcp_server_create(&options, &s->server));
}

static void end(scene *s)
{
    trii_tcp_server_destroy(s->server);
    trii_loop_destroy(s->loop);
}

static void serve(const scene *s)
{
    for (int i = 0; i < 20; i++)
        trii_loop_run_once(s->loop, 0);
}

static int stranger(const scene *s)
{
    int fd;

    CHECK_OK(trii_socket_connect("127.0.0.1", trii_tcp_server_port(s->server), SOON, false, &fd));
    serve(s);
    return fd;
}

static void send_all(const scene *s, int fd, const void *data, size_t bytes)
{
    size_t done = 0;
    int64_t deadline = SOON;

    while (done < bytes) {
        size_t sent = 0;
        tri_status status =
            trii_socket_send(fd, &(trii_span){(const char *)data + done, bytes - done}, 1, &sent);

        assert_true(status == TRI_OK || status == TRI_INPROGRESS);
        assert_true(trii_now_ns() < deadline);
        done += sent;
        serve(s);
    }
}

static int client(const scene *s)
{
    int fd = stranger(s);

    send_all(s, fd, magic, sizeof(magic));
    return fd;
}

/* Whether the server still answers there; what it sent before does not count. */
static bool is_closed(const scene *s, int fd)
{
    static char buf[MIB];
    size_t got;
    tri_status status;

    serve(s);
    do {
        status = trii_socket_recv(fd, buf, sizeof(buf), &got);
        serve(s);
    } while (status == TRI_OK);
    return status != TRI_INPROGRESS;
}

static bool is_served(const scene *s, int fd)
{
    unsigned char got[4];
    int64_t deadline = SOON;

    send_all(s, fd, ping, sizeof(ping));
    while (trii_socket_wait(fd, TRII_READABLE, 0) == TRI_ERR_TIMEOUT) {
        assert_true(trii_now_ns() < deadline);
        serve(s);
    }
    return trii_socket_recv_all(fd, got, sizeof(got), SOON) == TRI_OK &&
           memcmp(got, ping + 1, sizeof(got)) == 0;
}

/* SET v to `bytes` zeros. */
static void set_value(const scene *s, int fd, size_t bytes)
{
    unsigned char head[18] = {1, U64(1), 'v'};
    char *value = calloc(1, bytes);
    uint64_t length = bytes;

    assert_non_null(value);
    memcpy(head + 10, &length, sizeof(length));
    send_all(s, fd, head, sizeof(head));
    send_all(s, fd, value, bytes);
    free(value);
}

/* Its clients have closed, which a busy kernel may tell it a little later. */
static void serve_until_empty(const scene *s)
{
    int64_t deadline = SOON;

    do
        serve(s);
    while (s->server->held > 0 && trii_now_ns() < deadline);
}

/* A few bytes ask for a large value three times, and nobody reads the replies. */
static void unread_replies_are_bounded(void **state)
{
    static const unsigned char get[] = {10, U64(3), U64(1), 'v', U64(1), 'v', U64(1), 'v'};
    enum { CLIENTS = 20 };
    const size_t max = 24 * MIB;
    scene s;
    int writer, fds[CLIENTS], closed = 0;

    (void)state;
    begin(&s, (trii_tcp_server_options){.max_held = max});
    writer = client(&s);
    set_value(&s, writer, 2 * MIB);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client(&s);
        send_all(&s, fds[i], get, sizeof(get));
        serve(&s);
        assert_in_range(s.server->held, 0, max);
    }
    assert_true(is_served(&s, writer));
    for (int i = 0; i < CLIENTS; i++) {
        closed += is_closed(&s, fds[i]);
        trii_socket_close(fds[i]);
    }
    assert_in_range(closed, 1, CLIENTS - 2); /* most do not fit, some do */
    trii_socket_close(writer);
    serve_until_empty(&s);
    assert_int_equal(s.server->held, 0);
    end(&s);
}

/* Clients that say who they are and stay take no more than their part; the first ones go on. */
static void connections_are_capped(void **state)
{
    enum { MOST = 8 };
    scene s;
    int fds[MOST], silent, late;

    (void)state;
    begin(&s, (trii_tcp_server_options){.max_connections = MOST});
    for (int i = 0; i < MOST - 1; i++)
        fds[i] = client(&s);
    silent = stranger(&s);
    assert_false(is_closed(&s, silent));
    fds[MOST - 1] = client(&s); /* in the place of who has not said a word */
    assert_true(is_closed(&s, silent));
    late = stranger(&s);
    assert_true(is_closed(&s, late));
    for (int i = 0; i < MOST; i++)
        assert_true(is_served(&s, fds[i]));
    trii_socket_close(fds[0]);
    serve(&s);
    fds[0] = client(&s);
    for (int i = 0; i < MOST; i++) {
        assert_true(is_served(&s, fds[i]));
        trii_socket_close(fds[i]);
    }
    trii_socket_close(silent);
    trii_socket_close(late);
    end(&s);
}

/* However many call at once, a connected client has its turn between them. */
static void a_flood_of_calls_keeps_nobody_waiting(void **state)
{
    enum { MANY = 200, AT_ONCE = 64 };
    scene s;
    int fds[MANY], first;

    (void)state;
    begin(&s, (trii_tcp_server_options){0});
    first = client(&s);
    for (int i = 0; i < MANY; i++)
        CHECK_OK(
            trii_socket_connect("127.0.0.1", trii_tcp_server_port(s.server), SOON, false, &fds[i]));
    CHECK_OK(trii_socket_send_all(first, ping, sizeof(ping), SOON));
    trii_loop_run_once(s.loop, 0);
    assert_in_range(s.server->n_connections, 2, 1 + AT_ONCE);
    CHECK_OK(trii_socket_wait(first, TRII_READABLE, 0));
    serve(&s);
    assert_int_equal(s.server->n_connections, 1 + MANY);
    for (int i = 0; i < MANY; i++)
        trii_socket_close(fds[i]);
    trii_socket_close(first);
    end(&s);
}

/* Each silent connection has its own patience, whenever it came. */
static void a_stranger_is_closed_when_its_own_time_is_over(void **state)
{
    const int64_t patience = 60000;
    scene s;
    int first, second;
    int64_t accepted;

    (void)state;
    begin(&s, (trii_tcp_server_options){.patience_ms = patience});
    first = stranger(&s);
    second = stranger(&s);
    accepted = s.server->connections->accepted_ns;
    s.server->connections->next->accepted_ns -= patience * TRII_NS_PER_MS;
    s.server->sweep.fire(&s.server->sweep);
    assert_true(is_closed(&s, first));
    assert_false(is_closed(&s, second));
    assert_true(s.server->sweep.deadline_ns == accepted + patience * TRII_NS_PER_MS);
    trii_socket_close(first);
    trii_socket_close(second);
    end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(unread_replies_are_bounded),
    cmocka_unit_test(connections_are_capped),
    cmocka_unit_test(a_flood_of_calls_keeps_nobody_waiting),
    cmocka_unit_test(a_stranger_is_closed_when_its_own_time_is_over),
};

TEST_MAIN(tests)
