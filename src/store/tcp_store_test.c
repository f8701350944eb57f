/*
 * tcp_store_test.c - the TCP store on the wire: exact bytes of both sides, clients that
 * misbehave, servers that do, and joining.
 */
#include <time.h>

#include <trireme/store.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "store/exchange.h"
#include "store/tcp_server.h"
#include "store/wire.h"
#include "testing/check.h"

#define SOON trii_deadline_ms(20000)
#define U64(n) n, 0, 0, 0, 0, 0, 0, 0

/* --- raw clients against our server --------------------------------------- */

static trii_tcp_server *start_server(void)
{
    trii_tcp_server *server = NULL;

    setenv("TRI_LOG", "error", 0); /* closing bad clients is warned about */
    CHECK_OK(trii_tcp_server_create(&(trii_tcp_server_options){.host = "127.0.0.1"}, &server));
    return server;
}

static int raw_client(const trii_tcp_server *server, bool validate)
{
    static const unsigned char magic[] = {0, 0xCE, 0xF7, 0x85, 0x3C};
    int fd;

    CHECK_OK(trii_socket_connect("127.0.0.1", trii_tcp_server_port(server), SOON, false, &fd));
    if (validate)
        CHECK_OK(trii_socket_send_all(fd, magic, sizeof(magic), SOON));
    return fd;
}

static void check_bytes(int fd, const void *want, size_t bytes)
{
    unsigned char got[256];

    CHECK_OK(trii_socket_recv_all(fd, got, bytes, SOON));
    assert_memory_equal(got, want, bytes);
}

static void check_closed(int fd)
{
    char byte;
    tri_status status = trii_socket_recv_all(fd, &byte, 1, SOON);

    if (status != TRI_END && status != TRI_ERR_PEER_LOST)
        fail_msg("not closed: %s: %s", tri_status_name(status), tri_last_error());
    trii_socket_close(fd);
}

static void replies_are_pytorchs_bytes(void **state)
{
    static const struct {
        unsigned char request[64];
        size_t n_request;
        unsigned char reply[64];
        size_t n_reply;
    } rows[] = {
        {{13, 7, 0, 0, 1}, 5, {7, 0, 0, 1}, 4},                               /* PING */
        {{1, U64(2), '/', 'k', U64(5), 'h', 'e', 'l', 'l', 'o'}, 24, {0}, 0}, /* SET */
        {{3, U64(2), '/', 'k'}, 11, {U64(5), 'h', 'e', 'l', 'l', 'o'}, 13},   /* GET */
        {{3, U64(2), '/', 'x'}, 11, {U64(0)}, 8},                             /* missing */
        {{4, U64(2), '/', 'n', 0xFD, 255, 255, 255, 255, 255, 255, 255},
         19, /* ADD -3 */
         {0xFD, 255, 255, 255, 255, 255, 255, 255},
         8},
        {{5, U64(1), U64(2), '/', 'k'}, 19, {0}, 1}, /* CHECK: there */
        {{5, U64(1), U64(2), '/', 'x'}, 19, {1}, 1}, /* not there */
        {{6, U64(0)}, 9, {0}, 1},                    /* WAIT for nothing */
        {{2, U64(2), '/', 'x', U64(1), 'a', U64(1), 'b'}, 29, {U64(1), 'a'}, 9},
        {{7}, 1, {U64(2)}, 8},                            /* GETNUMKEYS */
        {{8, U64(2), '/', 'n'}, 11, {U64(1)}, 8},         /* DELETE_KEY */
        {{9, U64(2), '/', 'k', U64(1), '!'}, 20, {0}, 0}, /* APPEND */
        {{10, U64(1), U64(2), '/', 'k'}, 19, {U64(6), 'h', 'e', 'l', 'l', 'o', '!'}, 14},
        {{11, U64(1), U64(1), 'm', U64(0)}, 26, {0}, 0}, /* MULTI_SET */
        {{12}, 1, {1}, 1},                               /* CANCEL_WAIT */
        {{14, U64(1), 'q', U64(1), 'Q'}, 19, {0}, 0},    /* QUEUE_PUSH */
        /* a queue is no value: the name is free for one, and keeps its queue */
        {{2, U64(1), 'q', U64(0), U64(1), 'z'}, 27, {U64(1), 'z'}, 9},
        {{8, U64(1), 'q'}, 10, {U64(1)}, 8},
        {{16, U64(1), 'q'}, 10, {U64(1)}, 8},               /* QUEUE_LEN */
        {{15, U64(1), 'q'}, 10, {U64(1), U64(1), 'Q'}, 17}, /* QUEUE_POP */
        {{15, U64(1), 'q'}, 10, {U64(0)}, 8},               /* empty */
        {{8, U64(1), 'm'}, 10, {U64(1)}, 8},
        {{17}, 1, {U64(1), U64(2), '/', 'k'}, 18}, /* LIST_KEYS */
        {{18, U64(1), 'b', U64(1)}, 18, {0}, 1},   /* BARRIER of one */
    };
    trii_tcp_server *server = start_server();
    int fd = raw_client(server, true);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK_OK(trii_socket_send_all(fd, rows[i].request, rows[i].n_request, SOON));
        check_bytes(fd, rows[i].reply, rows[i].n_reply);
    }
    trii_socket_close(fd);
    trii_tcp_server_destroy(server);
}

static void one_byte_at_a_time_is_served(void **state)
{
    static const unsigned char all[] = {0,   0xCE, 0xF7,   0x85, 0x3C, 1, U64(1), 'k', U64(1),
                                        'v', 3,    U64(1), 'k',  13,   1, 2,      3,   4};
    static const unsigned char want[] = {U64(1), 'v', 1, 2, 3, 4};
    trii_tcp_server *server = start_server();
    int fd = raw_client(server, false);

    (void)state;
    for (size_t i = 0; i < sizeof(all); i++)
        CHECK_OK(trii_socket_send_all(fd, all + i, 1, SOON));
    check_bytes(fd, want, sizeof(want));
    trii_socket_close(fd);
    trii_tcp_server_destroy(server);
}

static void malformed_input_closes_that_connection_only(void **state)
{
    static const struct {
        bool validate;
        unsigned char bytes[32];
        size_t n;
    } rows[] = {
        {false, {1, U64(1), 'k', U64(0)}, 18},  /* no handshake */
        {false, {0, 1, 2, 3, 4}, 5},            /* wrong magic */
        {true, {0, 0xCE, 0xF7, 0x85, 0x3C}, 5}, /* a second handshake */
        {true, {19}, 1},                        /* unknown op */
        {true, {3, 255, 255, 255, 255, 255, 255, 255, 255}, 9},
        {true, {4, U64(1), 't', U64(1)}, 18},  /* add to text */
        {true, {18, U64(1), 't', U64(2)}, 18}, /* barrier on text */
    };
    trii_tcp_server *server = start_server();
    int good = raw_client(server, true);
    int gone = raw_client(server, true);

    (void)state;
    CHECK_OK(trii_socket_send_all(good, "\1\1\0\0\0\0\0\0\0t\4\0\0\0\0\0\0\0text", 22, SOON));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int bad = raw_client(server, rows[i].validate);

        CHECK_OK(trii_socket_send_all(bad, rows[i].bytes, rows[i].n, SOON));
        check_closed(bad);
    }
    /* half a request, half a wait: leaving in the middle harms nobody */
    CHECK_OK(trii_socket_send_all(gone, "\6\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0w\1\0\0", 21, SOON));
    trii_socket_close(gone);
    CHECK_OK(trii_socket_send_all(good, "\15\1\2\3\4", 5, SOON));
    check_bytes(good, "\1\2\3\4", 4);
    trii_socket_close(good);
    trii_tcp_server_destroy(server);
}

static void random_bytes_do_no_harm(void **state)
{
    long live = trii_alloc_live();
    trii_tcp_server *server = start_server();
    uint64_t random = 99;
    int good;

    (void)state;
    for (int round = 0; round < 300; round++) {
        unsigned char bytes[200];
        int fd = raw_client(server, true);

        for (size_t i = 0; i < sizeof(bytes); i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            /* mostly small numbers, so that lengths are plausible */
            bytes[i] = (unsigned char)((random >> 40) % ((random >> 60) < 12 ? 3 : 20));
        }
        /* it may be closed before all is written */
        if (trii_socket_send_all(fd, bytes, sizeof(bytes), SOON) != TRI_OK)
            assert_true(strlen(tri_last_error()) > 0);
        trii_socket_close(fd);
    }
    good = raw_client(server, true);
    CHECK_OK(trii_socket_send_all(good, "\15\1\2\3\4", 5, SOON));
    check_bytes(good, "\1\2\3\4", 4);
    trii_socket_close(good);
    trii_tcp_server_destroy(server);
    assert_int_equal(trii_alloc_live(), live);
}

static void waits_end_queues_wake_one_and_barriers_count(void **state)
{
    static const unsigned char wait_q[] = {6, U64(1), U64(1), 'q'};
    static const unsigned char push_q[] = {14, U64(1), 'q', U64(1), 'x'};
    static const unsigned char barrier[] = {18, U64(1), 'b', U64(2)};
    static const unsigned char ping[] = {13, 9, 9, 9, 9};
    static const unsigned char cancel[] = {12};
    static const unsigned char pinged[] = {9, 9, 9, 9};
    trii_tcp_server *server = start_server();
    int a = raw_client(server, true), b = raw_client(server, true);
    unsigned events[] = {TRII_READABLE, TRII_READABLE}, ready[2];
    int fds[] = {a, b};
    int woken;

    (void)state;
    /* a wait does not keep its own connection from other answers */
    CHECK_OK(trii_socket_send_all(a, wait_q, sizeof(wait_q), SOON));
    CHECK_OK(trii_socket_send_all(a, ping, sizeof(ping), SOON));
    check_bytes(a, pinged, 4);
    CHECK_OK(trii_socket_send_all(b, wait_q, sizeof(wait_q), SOON));
    CHECK_OK(trii_socket_send_all(b, ping, sizeof(ping), SOON));
    check_bytes(b, pinged, 4);
    /* one push, one waiter: the oldest */
    CHECK_OK(trii_socket_send_all(b, push_q, sizeof(push_q), SOON));
    woken = trii_socket_poll(fds, events, ready, 2, SOON);
    assert_int_equal(woken, 1);
    assert_int_equal(ready[0], TRII_READABLE);
    check_bytes(a, "\0", 1);
    /* a cancelled wait is answered 1 and never 0 again */
    CHECK_OK(trii_socket_send_all(b, cancel, 1, SOON));
    check_bytes(b, "\1", 1);
    /* barrier of two */
    CHECK_OK(trii_socket_send_all(a, barrier, sizeof(barrier), SOON));
    CHECK_OK(trii_socket_send_all(a, ping, sizeof(ping), SOON));
    check_bytes(a, pinged, 4);
    CHECK_OK(trii_socket_send_all(b, barrier, sizeof(barrier), SOON));
    check_bytes(b, "\0", 1);
    check_bytes(a, "\0", 1);
    trii_socket_close(a);
    trii_socket_close(b);
    trii_tcp_server_destroy(server);
}

static void ping(int fd)
{
    CHECK_OK(trii_socket_send_all(fd, "\15\1\2\3\4", 5, SOON));
    check_bytes(fd, "\1\2\3\4", 4);
}

/* A client that asks for much and reads nothing is not served further until it reads; then
 * it gets everything, in order. Others are served meanwhile. */
static void a_client_that_does_not_read_is_held_back(void **state)
{
    enum { VALUE = 100, BATCH = 1000, GET = 10, MOST = 40 << 20 };
    static const unsigned char get[GET] = {3, U64(1), 'v'};
    trii_tcp_server *server = start_server();
    int slow = raw_client(server, true), other = raw_client(server, true);
    unsigned char *requests = malloc(BATCH * GET), reply[VALUE + 8];
    const uint64_t length = VALUE;
    size_t sent = 0, got = 0;
    int held = 0;

    (void)state;
    for (int i = 0; i < BATCH; i++)
        memcpy(requests + i * GET, get, GET);
    memset(reply, 'v', sizeof(reply));
    memcpy(reply, &length, sizeof(length));
    CHECK_OK(trii_socket_send_all(slow, "\1\1\0\0\0\0\0\0\0v", 10, SOON));
    CHECK_OK(trii_socket_send_all(slow, reply, sizeof(reply), SOON));
    while (held < 3 && sent < MOST) {
        size_t at = sent % GET;
        tri_status status =
            trii_socket_send(slow, &(trii_span){requests + at, BATCH * GET - at}, 1, &got);

        held = status == TRI_INPROGRESS ? held + 1 : 0;
        sent += status == TRI_OK ? got : 0;
        if (status == TRI_INPROGRESS)
            ping(other); /* and the server had its turn */
        else
            CHECK_OK(status);
    }
    assert_true(sent < MOST);
    for (size_t i = 0; i < sent / GET; i++) {
        unsigned char back[VALUE + 8];

        CHECK_OK(trii_socket_recv_all(slow, back, sizeof(back), SOON));
        if (memcmp(back, reply, sizeof(reply)) != 0)
            fail_msg("reply %zu is damaged", i);
    }
    CHECK_OK(trii_socket_send_all(slow, requests + sent % GET, GET - sent % GET, SOON));
    CHECK_OK(trii_socket_recv_all(slow, reply, sizeof(reply), SOON));
    ping(slow);
    free(requests);
    trii_socket_close(slow);
    trii_socket_close(other);
    trii_tcp_server_destroy(server);
}

/* A few requests that ask for very much: replies are made as they are read, never all at once, and
 * the server sleeps while it waits for that. */
static void many_replies_are_not_made_at_once(void **state)
{
    enum { VALUE = 16 << 10, N = 6000, GET = 10 };
    trii_tcp_server *server = start_server();
    int slow = raw_client(server, true), other = raw_client(server, true);
    unsigned char *requests = calloc(N, GET), *reply = calloc(VALUE + 8, 1);
    const uint64_t length = VALUE;

    (void)state;
    for (int i = 0; i < N; i++) {
        requests[i * GET] = 3; /* GET v */
        requests[i * GET + 1] = 1;
        requests[i * GET + 9] = 'v';
    }
    memcpy(reply, &length, sizeof(length));
    CHECK_OK(trii_socket_send_all(slow, "\1\1\0\0\0\0\0\0\0v", 10, SOON));
    CHECK_OK(trii_socket_send_all(slow, reply, VALUE + 8, SOON));
    (void)trii_alloc_largest();
    for (int more = 0; more < 2; more++) {
        clock_t busy;

        CHECK_OK(trii_socket_send_all(slow, requests, more ? GET : N * GET, SOON));
        for (int i = 0; i < 100; i++)
            ping(other); /* the server has had its turns */
        busy = clock();
        assert_int_equal(trii_socket_wait(other, TRII_READABLE, trii_deadline_ms(200)),
                         TRI_ERR_TIMEOUT);
        assert_in_range(clock() - busy, 0, CLOCKS_PER_SEC / 100); /* it sleeps: 10 of 200 ms */
    }
    for (int i = 0; i < N + 1; i++)
        CHECK_OK(trii_socket_recv_all(slow, reply, VALUE + 8, SOON));
    assert_in_range(trii_alloc_largest(), 1 << 20, 8 << 20); /* of replies of 94 MiB */
    ping(slow);
    free(requests);
    free(reply);
    trii_socket_close(slow);
    trii_socket_close(other);
    trii_tcp_server_destroy(server);
}

/* --- our client against raw servers --------------------------------------- */

/* Accepts one client, compares what it sends with a script and answers with one. */
typedef struct fake_server {
    int listener, port;
    const unsigned char *script; /* pairs of (n_expected, bytes, n_reply, bytes); 255 ends */
    bool wrong_ping;
    const char *failure; /* NULL = all as scripted */
    trii_thread thread;
} fake_server;

static const char *play(const fake_server *f, int fd)
{
    const unsigned char *p = f->script;
    unsigned char hello[10], got[256];

    if (trii_socket_recv_all(fd, hello, sizeof(hello), SOON) != TRI_OK)
        return "no handshake";
    if (memcmp(hello, "\0\xCE\xF7\x85\x3C\15", 6) != 0)
        return "wrong handshake";
    hello[6] ^= f->wrong_ping;
    if (trii_socket_send_all(fd, hello + 6, 4, SOON) != TRI_OK)
        return "ping";
    while (*p != 255) {
        size_t n = *p++;

        if (trii_socket_recv_all(fd, got, n, SOON) != TRI_OK || memcmp(got, p, n) != 0)
            return "the client sent other bytes";
        p += n;
        n = *p++;
        if (n > 0 && trii_socket_send_all(fd, p, n, SOON) != TRI_OK)
            return "reply";
        p += n;
    }
    return NULL;
}

static void fake_main(void *arg)
{
    fake_server *f = arg;
    int fd;

    f->failure = "nobody came";
    if (trii_socket_wait(f->listener, TRII_READABLE, SOON) != TRI_OK ||
        trii_socket_accept(f->listener, &fd) != TRI_OK)
        return;
    f->failure = play(f, fd);
    trii_socket_close(fd);
}

static void start_fake(fake_server *f)
{
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &f->listener, &f->port));
    CHECK_OK(trii_thread_start(&f->thread, "fake store", fake_main, f));
}

static void end_fake(fake_server *f)
{
    trii_thread_join(&f->thread);
    trii_socket_close(f->listener);
    if (f->failure != NULL)
        fail_msg("%s", f->failure);
}

static void requests_are_pytorchs_bytes(void **state)
{
    static const unsigned char script[] = {
        18,  4,      U64(5), 'i',     'n', 'i',  't',    '/',    1,   0,      0,
        0, /* ADD init/ 1, in two parts */
        0,   4,      0,      0,       0,   0,    8,      U64(1), 20,  1,      U64(2),
        '/', 'k',    U64(1), 'v',     0, /* SET, no reply */
        19,  4,      U64(2), '/',     'n', 0xFE, 255,    255,    255, 255,    255,
        255, 255,    8,      U64(40), 28,  2,    U64(2), '/',    'c', U64(0), U64(1),
        'd', 9,      U64(1), 'e',     20,  9,    U64(2), '/',    'k', U64(1), 'w',
        0,                                                                       /* APPEND */
        29,  6,      U64(2), U64(2),  '/', 'a',  U64(2), '/',    'b', 1,      0, /* WAIT */
        29,  5,      U64(2), U64(2),  '/', 'a',  U64(2), '/',    'b', 1,      1, /* CHECK */
        11,  8,      U64(2), '/',     'k', 8,    U64(1),                         /* DELETE_KEY */
        1,   7,      8,      U64(9),                                             /* GETNUMKEYS */
        19,  6,      U64(1), U64(2),  '/', 'g',  1,      0, /* get: WAIT, then MULTI_GET of one */
        19,  10,     U64(1), U64(2),  '/', 'g',  10,     U64(2), 'h', 'i',    19,
        6,   U64(1), U64(2), '/',     't', 0, /* a wait that is called off */
        1,   12,     1,      1,       19,  5,    U64(1), U64(2), '/', 't',    1,
        1, /* and asks what is missing */
        255,
    };
    const char *ab[] = {"a", "b"}, *t = "t";
    fake_server f = {.script = script};
    tri_store *store = NULL;
    int64_t n = 0;
    bool flag = true;
    void *value = NULL;

    (void)state;
    start_fake(&f);
    CHECK_OK(tri_store_tcp("127.0.0.1", f.port, &(tri_store_tcp_options){.world_size = 2}, &store));
    CHECK_OK(tri_store_set(store, "k", "v", 1));
    CHECK_OK(tri_store_add(store, "n", -2, &n));
    assert_int_equal(n, 40);
    CHECK_OK(tri_store_compare_set(store, "c", "", 0, "d", 1, &value, NULL));
    assert_string_equal(value, "e");
    tri_store_free(value);
    CHECK_OK(tri_store_append(store, "k", "w", 1));
    CHECK_OK(tri_store_wait(store, ab, 2, 0));
    CHECK_OK(tri_store_check(store, ab, 2, &flag));
    assert_false(flag);
    CHECK_OK(tri_store_delete(store, "k", &flag));
    assert_true(flag);
    CHECK_OK(tri_store_num_keys(store, &n));
    assert_int_equal(n, 9);
    CHECK_OK(tri_store_get(store, "g", 0, &value, NULL));
    assert_string_equal(value, "hi");
    tri_store_free(value);
    CHECK_FAILS(tri_store_wait(store, &t, 1, 5), TRI_ERR_TIMEOUT, "t");
    tri_store_unref(store);
    end_fake(&f);
}

static void a_server_that_answers_nonsense_or_leaves_is_named(void **state)
{
    static const unsigned char nothing[] = {255};
    static const unsigned char huge[] = {11, 8, U64(2), '/', 'k', 0, 255}; /* then it leaves */
    fake_server f = {.script = nothing, .wrong_ping = true}, g = {.script = huge};
    trii_store_call call = {.kind = TRII_STORE_DELETE, .key = "k"};
    tri_store *store = NULL;
    char want[64];

    (void)state;
    start_fake(&f);
    CHECK_FAILS(tri_store_tcp("127.0.0.1", f.port, NULL, &store), TRI_ERR_FORMAT, "ping");
    end_fake(&f);

    for (int together = 0; together < 2; together++) {
        start_fake(&g);
        snprintf(want, sizeof(want), "127.0.0.1 port %d: delete", g.port);
        CHECK_OK(tri_store_tcp("127.0.0.1", g.port, NULL, &store));
        CHECK_FAILS(together ? trii_store_calls(store, &call, 1)
                             : tri_store_delete(store, "k", NULL),
                    TRI_ERR_IO, want);
        CHECK_FAILS(tri_store_set(store, "k", "v", 1), TRI_ERR_IO, want); /* and stays failed */
        end_fake(&g);
        tri_store_unref(store);
    }
}

/* Accepts and never answers: PyTorch's client hangs here for ever. */
static void a_silent_server_is_a_timeout(void **state)
{
    static const unsigned char quiet[] = {11, 8, U64(2), '/', 'k', 0, 1, 7, 0, 255};
    fake_server f = {.script = quiet};
    tri_store *store = NULL;
    int listener, port;

    (void)state;
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &listener, &port));
    CHECK_FAILS(
        tri_store_tcp("127.0.0.1", port, &(tri_store_tcp_options){.timeout_ms = 20}, &store),
        TRI_ERR_TIMEOUT, "no answer from 127.0.0.1");
    trii_socket_close(listener);

    start_fake(&f);
    CHECK_OK(
        tri_store_tcp("127.0.0.1", f.port, &(tri_store_tcp_options){.timeout_ms = 1000}, &store));
    CHECK_FAILS(tri_store_delete(store, "k", NULL), TRI_ERR_TIMEOUT, "delete: no answer");
    tri_store_unref(store);
    trii_thread_join(&f.thread);
    trii_socket_close(f.listener);
}

#define READ_OF(key) 2, U64(2), '/', key, U64(7), ABSENT, U64(7), ABSENT
#define ABSENT '?', 'a', 'b', 's', 'e', 'n', 't'

/* The first reply came, the second does not: no value leaks. */
static void an_exchange_without_all_replies_has_no_values(void **state)
{
    static const unsigned char quiet[] = {82, READ_OF('a'), READ_OF('b'), 9, U64(1), 'v', 1, 7,
                                          0,  255};
    trii_store_call calls[] = {{.kind = TRII_STORE_READ, .key = "a"},
                               {.kind = TRII_STORE_READ, .key = "b"}};
    fake_server f = {.script = quiet};
    long live = trii_alloc_live();
    tri_store *store = NULL;

    (void)state;
    start_fake(&f);
    CHECK_OK(
        tri_store_tcp("127.0.0.1", f.port, &(tri_store_tcp_options){.timeout_ms = 1000}, &store));
    CHECK_FAILS(trii_store_calls(store, calls, 2), TRI_ERR_TIMEOUT, "no answer");
    assert_null(calls[0].value);
    assert_null(calls[1].value);
    tri_store_unref(store);
    trii_thread_join(&f.thread);
    trii_socket_close(f.listener);
    assert_int_equal(trii_alloc_live(), live);
}

/* --- both ours ------------------------------------------------------------ */

static void the_server_waits_for_its_world(void **state)
{
    tri_store_tcp_options host = {.serve = true, .world_size = 2};
    tri_store *store = NULL;

    (void)state;
    CHECK_FAILS_WITHIN(host.timeout_ms, tri_store_tcp("127.0.0.1", 0, &host, &store),
                       TRI_ERR_TIMEOUT, "1 of 2 clients joined");
    host = (tri_store_tcp_options){.serve = true, .world_size = 1};
    CHECK_OK(tri_store_tcp("localhost", 0, &host, &store));
    tri_store_unref(store);
}

static void a_taken_port_is_an_error_or_a_client(void **state)
{
    tri_store *first = NULL, *second = NULL;
    tri_store_tcp_options opt = {.serve = true};
    void *value = NULL;
    int port;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &opt, &first));
    port = tri_store_port(first);
    CHECK_FAILS(tri_store_tcp("127.0.0.1", port, &opt, &second), TRI_ERR_IO, "in use");
    opt.serve_if_free = true;
    CHECK_OK(tri_store_tcp("127.0.0.1", port, &opt, &second));
    CHECK_OK(tri_store_set(first, "k", "v", 1));
    CHECK_OK(tri_store_get(second, "k", 0, &value, NULL));
    tri_store_free(value);
    tri_store_unref(first);
    CHECK_FAILS(tri_store_delete(second, "k", NULL), TRI_ERR_IO, "port");
    tri_store_unref(second);
}

static void an_inherited_listener_is_served(void **state)
{
    tri_store *store = NULL;
    int fd, port;

    (void)state;
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &fd, &port));
    CHECK_OK(tri_store_tcp("127.0.0.1", port, &(tri_store_tcp_options){.listen_fd = fd}, &store));
    assert_int_equal(tri_store_port(store), port);
    CHECK_OK(tri_store_set(store, "k", "v", 1));
    tri_store_unref(store);
    CHECK_FAILS(trii_socket_connect("127.0.0.1", port, SOON, false, &fd), TRI_ERR_PEER_LOST,
                "refused");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(replies_are_pytorchs_bytes),
    cmocka_unit_test(one_byte_at_a_time_is_served),
    cmocka_unit_test(malformed_input_closes_that_connection_only),
    cmocka_unit_test(random_bytes_do_no_harm),
    cmocka_unit_test(waits_end_queues_wake_one_and_barriers_count),
    cmocka_unit_test(a_client_that_does_not_read_is_held_back),
    cmocka_unit_test(many_replies_are_not_made_at_once),
    cmocka_unit_test(requests_are_pytorchs_bytes),
    cmocka_unit_test(a_server_that_answers_nonsense_or_leaves_is_named),
    cmocka_unit_test(a_silent_server_is_a_timeout),
    cmocka_unit_test(an_exchange_without_all_replies_has_no_values),
    cmocka_unit_test(the_server_waits_for_its_world),
    cmocka_unit_test(a_taken_port_is_an_error_or_a_client),
    cmocka_unit_test(an_inherited_listener_is_served),
};

TEST_MAIN(tests)
