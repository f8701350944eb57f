/*
 * tcp_connect_test.c - finding a TCP store: names, addresses, several interfaces; and what is said
 * when it is not found.
 */
#include <signal.h>

#include <trireme/store.h>

#include "os/clock.h"
#include "os/process.h"
#include "os/socket.h"
#include "store/store_ops.h"
#include "testing/check.h"
#include "testing/ranks.h"

static void check_reaches(tri_store *server, const char *host, int port)
{
    const tri_store_tcp_options options = {.timeout_ms = 10000};
    tri_store *client = NULL;
    void *value = NULL;

    CHECK_OK(tri_store_tcp(host, port, &options, &client));
    CHECK_OK(tri_store_set(server, "k", host, strlen(host)));
    CHECK_OK(tri_store_get(client, "k", 0, &value, NULL));
    assert_string_equal(value, host);
    tri_store_free(value);
    tri_store_unref(client);
}

static void a_host_has_names_and_addresses(void **state)
{
    static const char *const servers[] = {"127.0.0.1", "localhost", "::1"};
    const tri_store_tcp_options serve = {.serve = true};

    (void)state;
    for (int i = 0; i < 3; i++) {
        tri_store *server = NULL;

        CHECK_OK(tri_store_tcp(servers[i], 0, &serve, &server));
        check_reaches(server, servers[i], tri_store_port(server));
        tri_store_unref(server);
    }
}

/* Of several addresses those that do not answer are passed by: they belong to interfaces that
 * other hosts do not reach. */
static void one_of_several_addresses_is_enough(void **state)
{
    const tri_store_tcp_options serve = {.serve = true};
    tri_store *server = NULL;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &serve, &server));
    check_reaches(server, "::1,127.0.0.1", tri_store_port(server));
    check_reaches(server, "no.such.host.invalid,240.0.0.1,127.0.0.1", tri_store_port(server));
    check_reaches(server, "127.0.0.1,240.0.0.1", tri_store_port(server));
    tri_store_unref(server);
}

static void a_name_of_this_host_needs_no_port(void **state)
{
    const tri_store_tcp_options serve = {.serve = true};
    tri_store_tcp_options soon = {0};
    char name[64];
    tri_store *server = NULL, *other = NULL;

    (void)state;
    snprintf(name, sizeof(name), "@trireme-test-%d", trii_process_id());
    CHECK_FAILS_WITHIN(soon.timeout_ms, tri_store_tcp(name, 0, &soon, &other), TRI_ERR_TIMEOUT,
                       "refused");
    CHECK_OK(tri_store_tcp(name, 0, &serve, &server));
    assert_int_equal(tri_store_port(server), 0);
    check_reaches(server, name, 0);
    CHECK_FAILS(tri_store_tcp(name, 0, &serve, &other), TRI_ERR_IO, "already in use");
    CHECK_OK(tri_store_clone(server, &other));
    tri_store_unref(other);
    tri_store_unref(server);
    /* the name is free again */
    CHECK_OK(tri_store_tcp(name, 0, &serve, &server));
    tri_store_unref(server);
}

static void whatever_is_wrong_is_said_with_what_to_do(void **state)
{
    const tri_store_tcp_options serve = {.serve = true};
    tri_store_tcp_options soon = {0};
    tri_store *store = NULL;
    int fd, port;

    (void)state;
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &fd, &port));
    /* somebody else has the port */
    CHECK_FAILS(tri_store_tcp("127.0.0.1", port, &serve, &store), TRI_ERR_IO,
                "Address already in use; another program or another job serves there: choose a "
                "free port");
    CHECK_FAILS_WITHIN(soon.timeout_ms, tri_store_tcp("127.0.0.1", port, &soon, &store),
                       TRI_ERR_TIMEOUT,
                       "does not answer as a store: another program (choose a free port)");
    trii_socket_close(fd);
    CHECK_FAILS_WITHIN(
        soon.timeout_ms, tri_store_tcp("127.0.0.1", port, &soon, &store), TRI_ERR_TIMEOUT,
        "nothing serves there: has the process that serves (rank 0, or its launcher) started");
    CHECK_FAILS_WITHIN(soon.timeout_ms, tri_store_tcp("no.such.host.invalid", port, &soon, &store),
                       TRI_ERR_TIMEOUT, "is the name spelt right");
    assert_null(store);
}

/* Its parent may leave, and its calls do not get between its parent's. */
static void a_forked_child_does_not_keep_a_client_connected(void **state)
{
    static const char *const nothing[] = {"nothing"};
    const tri_store_tcp_options serve = {.serve = true};
    int64_t deadline_ns = trii_deadline_ms(20000);
    tri_store *server = NULL, *client = NULL;
    int pipes[2], status = -1;
    char byte = 0;
    pid_t child;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &serve, &server));
    CHECK_OK(tri_store_tcp("127.0.0.1", tri_store_port(server), NULL, &client));
    assert_int_equal(trii_store_others(server), 1);
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        bool failed = tri_store_set(client, "k", "child", 5) != TRI_OK;

        close(pipes[1]);
        _exit(read(pipes[0], &byte, 1) == 0 && failed ? 0 : 1);
    }
    assert_true(child > 0);
    CHECK_OK(tri_store_set(client, "k", "parent", 6));
    tri_store_unref(client);
    while (trii_store_others(server) > 0 && trii_now_ns() < deadline_ns)
        assert_int_equal(tri_store_wait(server, nothing, 1, 10), TRI_ERR_TIMEOUT);
    assert_int_equal(trii_store_others(server), 0);
    close(pipes[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(pipes[0]);
    tri_store_unref(server);
}

/* The process that serves: forks, says so and its port, and ends when it is killed; its child lives
 * until nobody holds `life` any more. */
static void serve_and_fork(int said, int life)
{
    const tri_store_tcp_options serve = {.serve = true};
    tri_store *server = NULL, *client = NULL;
    int port;
    char byte;

    if (tri_store_tcp("127.0.0.1", 0, &serve, &server) != TRI_OK ||
        tri_store_clone(server, &client) != TRI_OK)
        _exit(1);
    port = tri_store_port(server);
    if (write(said, &port, sizeof(port)) != (ssize_t)sizeof(port))
        _exit(1);
    if (tri_store_wait(client, &(const char *){"fork"}, 1, 20000) != TRI_OK)
        _exit(1);
    if (fork() == 0)
        _exit(read(life, &byte, 1) == 0 ? 0 : 1);
    if (tri_store_set(client, "forked", "", 0) != TRI_OK)
        _exit(1);
    _exit(read(life, &byte, 1) == 0 ? 0 : 1);
}

/* Its clients hear at once that it ended, and nobody can connect to what is left. */
static void a_forked_child_does_not_hide_the_end_of_a_server(void **state)
{
    int said[2], life[2], port = 0, status = -1;
    tri_store_tcp_options soon = {0};
    tri_store *client = NULL, *other = NULL;
    pid_t server;

    (void)state;
    assert_int_equal(pipe(said), 0);
    assert_int_equal(pipe(life), 0);
    server = fork();
    if (server == 0) {
        close(life[1]);
        serve_and_fork(said[1], life[0]);
    }
    assert_true(server > 0);
    close(life[0]);
    assert_int_equal(read(said[0], &port, sizeof(port)), sizeof(port));
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &client));
    CHECK_OK(tri_store_set(client, "fork", "", 0));
    CHECK_OK(tri_store_wait(client, &(const char *){"forked"}, 1, 20000));
    assert_int_equal(kill(server, SIGKILL), 0);
    assert_int_equal(waitpid(server, &status, 0), server);
    CHECK_FAILS(tri_store_wait(client, &(const char *){"nothing"}, 1, 5000), TRI_ERR_IO, "port");
    CHECK_FAILS_WITHIN(soon.timeout_ms, tri_store_tcp("127.0.0.1", port, &soon, &other),
                       TRI_ERR_TIMEOUT, "refused");
    tri_store_unref(client);
    close(life[1]);
    close(said[0]);
    close(said[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_forked_child_does_not_hide_the_end_of_a_server),
    cmocka_unit_test(a_forked_child_does_not_keep_a_client_connected),
    cmocka_unit_test(a_host_has_names_and_addresses),
    cmocka_unit_test(one_of_several_addresses_is_enough),
    cmocka_unit_test(a_name_of_this_host_needs_no_port),
    cmocka_unit_test(whatever_is_wrong_is_said_with_what_to_do),
};

TEST_MAIN(tests)
