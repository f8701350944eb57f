/*
 * handshake_test.c - the job key: files, proofs in any pieces, peers with another key or none,
 * and servers that are flooded with strangers.
 */
#include <trireme/store.h>

#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "store/handshake.h"
#include "store/tcp_server.h"
#include "testing/check.h"
#include "testing/scratch.h"

#define SOON trii_deadline_ms(20000)

static const char secret[] = "a secret of more than thirty-two characters\n";

/* A key file of mode 600, and the variable that names it. */
static const char *use_key(scratch *s, const char *name, const char *text)
{
    const char *path = scratch_file(s, name, text, strlen(text));

    assert_int_equal(chmod(path, 0600), 0);
    setenv("TRI_JOB_KEY_FILE", path, 1);
    return path;
}

static trii_job_key load(scratch *s, const char *name, const char *text)
{
    trii_job_key key;

    use_key(s, name, text);
    CHECK_OK(trii_job_key_load(&key));
    assert_true(key.set);
    return key;
}

static void a_key_file_is_private_and_long(void **state)
{
    trii_job_key key, same, other;
    const char *path;
    scratch s;

    (void)state;
    scratch_begin(&s);
    unsetenv("TRI_JOB_KEY_FILE");
    CHECK_OK(trii_job_key_load(&key));
    assert_false(key.set);
    key = load(&s, "one", secret);
    same = load(&s, "two", "a secret of more than thirty-two characters");
    other = load(&s, "three", "A secret of more than thirty-two characters");
    assert_memory_equal(key.bytes, same.bytes, sizeof(key.bytes)); /* the newline is no part */
    assert_memory_not_equal(key.bytes, other.bytes, sizeof(key.bytes));
    path = use_key(&s, "open", secret);
    assert_int_equal(chmod(path, 0640), 0);
    CHECK_FAILS(trii_job_key_load(&other), TRI_ERR_IO, "has mode 640, others may use it");
    use_key(&s, "short", "31 characters are not enough...\n");
    CHECK_FAILS(trii_job_key_load(&other), TRI_ERR_IO, "has 31 bytes, at least 32");
    setenv("TRI_JOB_KEY_FILE", "/nowhere/key", 1);
    CHECK_FAILS(trii_job_key_load(&other), TRI_ERR_NOT_FOUND, "/nowhere/key");
    setenv("TRI_JOB_KEY_FILE", s.dir, 1);
    CHECK_FAILS(trii_job_key_load(&other), TRI_ERR_IO, "is not a plain file");
    scratch_end(&s);
}

/* A pair of connected sockets. */
static void connect_pair(int *client, int *server)
{
    int listener, port;

    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &listener, &port));
    CHECK_OK(trii_socket_connect("127.0.0.1", port, SOON, false, client));
    CHECK_OK(trii_socket_wait(listener, TRII_READABLE, SOON));
    CHECK_OK(trii_socket_accept(listener, server));
    trii_socket_close(listener);
}

static void proofs_may_come_in_any_pieces(void **state)
{
    scratch s;
    trii_job_key key;

    (void)state;
    scratch_begin(&s);
    key = load(&s, "key", secret);
    for (size_t piece = 1; piece <= TRII_HELLO_BYTES + 9; piece += 4) {
        unsigned char hello[TRII_HELLO_BYTES] = "TRIKEY1\n", answer[TRII_ANSWER_BYTES];
        unsigned char proof[32];
        trii_handshake shake = {0};
        size_t done = 0, used, bytes = 0;
        tri_status status = TRI_INPROGRESS;

        while (bytes == 0) {
            size_t n = sizeof(hello) - done < piece ? sizeof(hello) - done : piece;

            status =
                trii_handshake_feed(&shake, &key, "store", hello + done, n, &used, answer, &bytes);
            assert_int_equal(status, TRI_INPROGRESS);
            assert_int_equal(used, n);
            done += n;
        }
        assert_int_equal(done, sizeof(hello));
        assert_int_equal(bytes, sizeof(answer));
        memcpy(proof, answer + 40, sizeof(proof)); /* the server's own, sent back */
        status =
            trii_handshake_feed(&shake, &key, "store", proof, sizeof(proof), &used, answer, &bytes);
        assert_int_equal(status, TRI_ERR_FORMAT);
        assert_non_null(strstr(tri_last_error(), "another job key"));
    }
    scratch_end(&s);
}

typedef struct serving {
    int fd;
    trii_job_key key;
    const char *purpose;
    tri_status status;
    trii_thread thread;
} serving;

static void serve(void *arg)
{
    serving *v = arg;
    trii_handshake shake = {0};

    v->status = TRI_INPROGRESS;
    while (v->status == TRI_INPROGRESS) {
        unsigned char data[256], answer[TRII_ANSWER_BYTES];
        size_t got = 0, used = 0, bytes = 0;

        v->status = trii_socket_wait(v->fd, TRII_READABLE, SOON);
        if (v->status == TRI_OK)
            v->status = trii_socket_recv(v->fd, data, sizeof(data), &got);
        if (v->status != TRI_OK)
            break;
        v->status =
            trii_handshake_feed(&shake, &v->key, v->purpose, data, got, &used, answer, &bytes);
        if (bytes > 0 && trii_socket_send_all(v->fd, answer, bytes, SOON) != TRI_OK)
            break;
    }
    trii_socket_close(v->fd);
}

static void both_sides_must_know_the_key_and_the_purpose(void **state)
{
    static const struct {
        const char *server_key, *server_purpose;
        tri_status client;
    } rows[] = {
        {secret, "store", TRI_OK},
        {secret, "tcp", TRI_ERR_FORMAT},
        {"some other secret, also thirty-two long", "store", TRI_ERR_FORMAT},
    };
    scratch s;
    trii_job_key key;

    (void)state;
    scratch_begin(&s);
    key = load(&s, "key", secret);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        serving v = {.purpose = rows[i].server_purpose};
        tri_status status;
        int fd;

        v.key = load(&s, "other", rows[i].server_key);
        connect_pair(&fd, &v.fd);
        CHECK_OK(trii_thread_start(&v.thread, "server", serve, &v));
        status = trii_handshake_connect(fd, &key, "store", SOON);
        assert_int_equal(status, rows[i].client);
        if (status != TRI_OK)
            assert_non_null(strstr(tri_last_error(), "another job key"));
        trii_socket_shutdown(fd);
        trii_thread_join(&v.thread);
        trii_socket_close(fd);
        assert_int_equal(v.status, status == TRI_OK ? TRI_OK : TRI_END);
    }
    scratch_end(&s);
}

static void a_server_with_a_key_serves_nobody_without(void **state)
{
    const tri_store_tcp_options serve_it = {.serve = true};
    tri_store_tcp_options soon = {0};
    tri_store *server = NULL, *client = NULL;
    void *value = NULL;
    scratch s;
    int port;

    (void)state;
    setenv("TRI_LOG", "error", 1);
    scratch_begin(&s);
    use_key(&s, "key", secret);
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &serve_it, &server));
    port = tri_store_port(server);
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &client));
    CHECK_OK(tri_store_set(client, "k", "v", 1));
    CHECK_OK(tri_store_get(server, "k", 0, &value, NULL));
    tri_store_free(value);
    tri_store_unref(client);
    unsetenv("TRI_JOB_KEY_FILE");
    CHECK_FAILS_WITHIN(soon.timeout_ms, tri_store_tcp("127.0.0.1", port, &soon, &client),
                       TRI_ERR_TIMEOUT, "give all processes of the job the same TRI_JOB_KEY_FILE");
    use_key(&s, "wrong", "another secret that is long enough, too");
    CHECK_FAILS(tri_store_tcp("127.0.0.1", port, NULL, &client), TRI_ERR_FORMAT,
                "the other end has another job key; give all processes");
    CHECK_OK(tri_store_set(server, "k", "w", 1)); /* nothing of this mattered to the others */
    tri_store_unref(server);
    /* a client with a key does not talk to a server without */
    unsetenv("TRI_JOB_KEY_FILE");
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &serve_it, &server));
    use_key(&s, "key", secret);
    CHECK_FAILS_WITHIN(soon.timeout_ms,
                       tri_store_tcp("127.0.0.1", tri_store_port(server), &soon, &client),
                       TRI_ERR_TIMEOUT, "job key");
    tri_store_unref(server);
    scratch_end(&s);
}

static void an_optional_key_serves_both(void **state)
{
    trii_tcp_server *server = NULL;
    tri_store *client = NULL;
    trii_tcp_server_options options = {.host = "127.0.0.1", .key_optional = true};
    trii_job_key key;
    scratch s;

    (void)state;
    scratch_begin(&s);
    key = load(&s, "key", secret);
    options.key = &key;
    CHECK_OK(trii_tcp_server_create(&options, &server));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tri_store_tcp("127.0.0.1", trii_tcp_server_port(server), NULL, &client));
        CHECK_OK(tri_store_set(client, "k", "v", 1));
        CHECK_OK(tri_store_add(client, "n", 1, NULL));
        tri_store_unref(client);
        unsetenv("TRI_JOB_KEY_FILE");
    }
    trii_tcp_server_destroy(server);
    scratch_end(&s);
}

/* --- strangers ------------------------------------------------------------ */

/* Asks the server until it has closed at least `min` of the connections, and closes the rest. */
static void wait_for_closed(tri_store *client, const int *fds, int n, int min, int max)
{
    int closed = 0;

    while (closed < min) {
        CHECK_OK(tri_store_add(client, "n", 1, NULL));
        closed = 0;
        for (int i = 0; i < n; i++) {
            char byte;
            size_t got;

            closed += trii_socket_recv(fds[i], &byte, 1, &got) != TRI_INPROGRESS;
        }
    }
    assert_true(closed <= max);
    for (int i = 0; i < n; i++)
        trii_socket_close(fds[i]);
}

/* Connections that say nothing, or half a handshake: the oldest go, and clients get in. */
static void half_open_connections_keep_nobody_out(void **state)
{
    enum { LIMIT = 8, FLOOD = 40 };
    trii_tcp_server_options options = {.host = "127.0.0.1", .max_strangers = LIMIT};
    trii_tcp_server *server = NULL;
    trii_job_key key;
    tri_store *client = NULL;
    int fds[FLOOD], port;
    scratch s;

    (void)state;
    setenv("TRI_LOG", "error", 1);
    scratch_begin(&s);
    key = load(&s, "key", secret);
    options.key = &key;
    CHECK_OK(trii_tcp_server_create(&options, &server));
    port = trii_tcp_server_port(server);
    for (int i = 0; i < FLOOD; i++) {
        CHECK_OK(trii_socket_connect("127.0.0.1", port, SOON, false, &fds[i]));
        CHECK_OK(trii_socket_send_all(fds[i], "TRIKEY1\n", (size_t)(i % 8) + 1, SOON));
    }
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &client));
    CHECK_OK(tri_store_add(client, "n", 1, NULL));
    wait_for_closed(client, fds, FLOOD, FLOOD - LIMIT, FLOOD - LIMIT + 1);
    CHECK_OK(tri_store_add(client, "n", 1, NULL));
    tri_store_unref(client);
    trii_tcp_server_destroy(server);
    scratch_end(&s);
}

/* Sends one byte every 20 ms; how many until it is closed, or all 40 because the server was not
 * even looking. */
static size_t send_slowly(int port)
{
    const char hello[41] = "TRIKEY1\n";
    int64_t start = trii_now_ns();
    tri_status status = TRI_OK;
    size_t sent = 0;
    int fd;

    CHECK_OK(trii_socket_connect("127.0.0.1", port, SOON, false, &fd));
    while (status == TRI_OK || status == TRI_ERR_TIMEOUT) {
        char byte;
        size_t got;

        if (sent < 40 && trii_socket_send_all(fd, &hello[sent++], 1, SOON) != TRI_OK)
            break;
        status = trii_socket_wait(fd, TRII_READABLE, trii_deadline_ms(20));
        if (status == TRI_OK)
            status = trii_socket_recv(fd, &byte, 1, &got);
    }
    assert_true((trii_now_ns() - start) / TRII_NS_PER_MS >= 50);
    trii_socket_close(fd);
    return sent;
}

/* One byte now and then is no handshake; a client may be silent as long as it likes. */
static void slow_strangers_are_closed(void **state)
{
    trii_tcp_server_options options = {.host = "127.0.0.1", .patience_ms = 50};
    trii_tcp_server *server = NULL;
    trii_job_key key;
    tri_store *client = NULL;
    size_t sent = 40;
    scratch s;

    (void)state;
    setenv("TRI_LOG", "error", 1);
    scratch_begin(&s);
    key = load(&s, "key", secret);
    options.key = &key;
    CHECK_OK(trii_tcp_server_create(&options, &server));
    CHECK_OK(tri_store_tcp("127.0.0.1", trii_tcp_server_port(server), NULL, &client));
    for (int i = 0; i < 5 && sent == 40; i++)
        sent = send_slowly(trii_tcp_server_port(server));
    assert_true(sent < 40);
    CHECK_OK(tri_store_add(client, "n", 1, NULL));
    tri_store_unref(client);
    trii_tcp_server_destroy(server);
    scratch_end(&s);
}

/* Requests that are announced large and come slowly hold no more than the limit, all together. */
static void unfinished_requests_are_bounded(void **state)
{
    static const unsigned char head[] = {0, 0xCE, 0xF7, 0x85, 0x3C, 1, 2, 0, 0, 0, 0, 0,
                                         0, 0,    '/',  'k',  0,    0, 0, 2, 0, 0, 0, 0};
    enum { CLIENTS = 12, CHUNK = 256 << 10 }; /* of a SET of 32 MiB */
    const trii_tcp_server_options options = {.host = "127.0.0.1", .max_held = 1 << 20};
    trii_tcp_server *server = NULL;
    tri_store *client = NULL;
    char *chunk = calloc(1, CHUNK);
    int fds[CLIENTS], port;

    (void)state;
    setenv("TRI_LOG", "error", 1);
    unsetenv("TRI_JOB_KEY_FILE");
    assert_non_null(chunk);
    CHECK_OK(trii_tcp_server_create(&options, &server));
    port = trii_tcp_server_port(server);
    for (int i = 0; i < CLIENTS; i++) {
        tri_status status;

        CHECK_OK(trii_socket_connect("127.0.0.1", port, SOON, false, &fds[i]));
        CHECK_OK(trii_socket_send_all(fds[i], head, sizeof(head), SOON));
        status = trii_socket_send_all(fds[i], chunk, CHUNK, SOON);
        assert_true(status == TRI_OK || status == TRI_ERR_PEER_LOST);
    }
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &client));
    CHECK_OK(tri_store_set(client, "small", "v", 1));
    CHECK_OK(tri_store_add(client, "n", 1, NULL));
    wait_for_closed(client, fds, CLIENTS, CLIENTS - 4, CLIENTS - 1);
    tri_store_unref(client);
    trii_tcp_server_destroy(server);
    free(chunk);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_key_file_is_private_and_long),
    cmocka_unit_test(proofs_may_come_in_any_pieces),
    cmocka_unit_test(both_sides_must_know_the_key_and_the_purpose),
    cmocka_unit_test(a_server_with_a_key_serves_nobody_without),
    cmocka_unit_test(an_optional_key_serves_both),
    cmocka_unit_test(half_open_connections_keep_nobody_out),
    cmocka_unit_test(slow_strangers_are_closed),
    cmocka_unit_test(unfinished_requests_are_bounded),
};

TEST_MAIN(tests)
