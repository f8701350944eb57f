/*
 * tcp_random_test.c - clients that ask for anything in any order, wait, read or not, and leave in
 * the middle, beside a server that may hold little: it counts right, and nothing of them is left.
 */
/* ctest: threads=none */
#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/socket.h"
#include "store/tcp_server_internal.h"
#include "testing/check.h"

enum { CLIENTS = 12, STEPS = TEST_SANITIZED ? 5000 : 20000 };

#define MIB ((size_t)1 << 20)

static uint64_t state_of_draw = 1;

static unsigned draw(unsigned n)
{
    state_of_draw = state_of_draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(state_of_draw >> 33) % n;
}

static void put_key(trii_wire_buffer *b)
{
    char key[2] = {'k', (char)('0' + draw(5))};

    trii_wire_put_slice(b, (trii_slice){key, sizeof(key)});
}

static void put_value(trii_wire_buffer *b)
{
    static char zeros[300000];
    static const size_t sizes[] = {0, 1, 100, 3000, sizeof(zeros)};

    trii_wire_put_slice(b, (trii_slice){zeros, sizes[draw(TRII_COUNT_OF(sizes))]});
}

static void put_request(trii_wire_buffer *b)
{
    static const unsigned ops[] = {
        TRII_WIRE_SET,        TRII_WIRE_SET,     TRII_WIRE_MULTI_GET,   TRII_WIRE_WAIT,
        TRII_WIRE_DELETE_KEY, TRII_WIRE_APPEND,  TRII_WIRE_CANCEL_WAIT, TRII_WIRE_QUEUE_PUSH,
        TRII_WIRE_QUEUE_POP,  TRII_WIRE_BARRIER, TRII_WIRE_LIST_KEYS,   TRII_WIRE_COMPARE_SET};
    unsigned op = ops[draw(TRII_COUNT_OF(ops))], n = 1 + draw(4);

    trii_wire_put_u8(b, op);
    if (op == TRII_WIRE_MULTI_GET || op == TRII_WIRE_WAIT) {
        trii_wire_put_u64(b, n);
        while (n-- > 0)
            put_key(b);
    } else if (op != TRII_WIRE_CANCEL_WAIT && op != TRII_WIRE_LIST_KEYS) {
        put_key(b);
    }
    if (op == TRII_WIRE_SET || op == TRII_WIRE_APPEND || op == TRII_WIRE_QUEUE_PUSH)
        put_value(b);
    if (op == TRII_WIRE_COMPARE_SET) {
        put_value(b);
        put_value(b);
    }
    if (op == TRII_WIRE_BARRIER)
        trii_wire_put_u64(b, 1 + draw(3));
}

/* A few requests, perhaps cut off; what does not fit into the socket is left out. */
static void step(trii_tcp_server *server, int *fd)
{
    static char sink[MIB];
    trii_wire_buffer b = {0};
    size_t moved = 0;

    if (*fd < 0) {
        CHECK_OK(trii_socket_connect("127.0.0.1", trii_tcp_server_port(server),
                                     trii_deadline_ms(20000), false, fd));
        trii_wire_put_u8(&b, TRII_WIRE_VALIDATE);
        trii_wire_put_u32(&b, TRII_WIRE_MAGIC);
    }
    for (unsigned n = draw(3); n > 0; n--)
        put_request(&b);
    if (b.used > 0 && draw(100) == 0)
        b.used -= draw((unsigned)b.used);
    (void)!trii_socket_send(*fd, &(trii_span){b.data, b.used}, b.used > 0, &moved);
    if (draw(3) == 0)
        (void)!trii_socket_recv(*fd, sink, sizeof(sink), &moved);
    if (moved < b.used || draw(25) == 0) {
        trii_socket_close(*fd);
        *fd = -1;
    }
    trii_wire_buffer_fini(&b);
}

static size_t held_by_all(const trii_tcp_server *server)
{
    size_t sum = 0;

    for (const trii_connection *c = server->connections; c != NULL; c = c->next)
        sum += c->held;
    return sum;
}

static void anything_in_any_order_is_survived(void **state)
{
    trii_tcp_server_options options = {
        .host = "127.0.0.1", .max_held = 4 * MIB, .max_connections = CLIENTS - 2};
    trii_tcp_server *server;
    int fds[CLIENTS];

    (void)state;
    setenv("TRI_LOG", "error", 1);
    memset(fds, -1, sizeof(fds));
    CHECK_OK(trii_loop_create(&options.loop));
    CHECK_OK(trii_tcp_server_create(&options, &server));
    for (int i = 0; i < STEPS; i++) {
        step(server, &fds[draw(CLIENTS)]);
        if (draw(4) == 0)
            trii_loop_run_once(options.loop, 0);
        assert_true(server->held == held_by_all(server));
        /* what is checked before it is made is the bytes, not the room that they are put into */
        assert_in_range(server->held, 0, options.max_held + CLIENTS * MIB);
        assert_in_range(server->n_connections, 0, options.max_connections);
    }
    for (int i = 0; i < CLIENTS; i++)
        trii_socket_close(fds[i]);
    for (int i = 0; i < 50 && server->connections != NULL; i++)
        trii_loop_run_once(options.loop, trii_deadline_ms(100));
    assert_null(server->connections);
    assert_true(server->held == 0 && server->n_strangers == 0 && server->n_connections == 0);
    trii_tcp_server_destroy(server);
    trii_loop_destroy(options.loop);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(anything_in_any_order_is_survived),
};

TEST_MAIN(tests)
