/*
 * stopped_client_test.c - a client that is stopped (SIGSTOP, a frozen virtual machine) while it
 * connects: the time in which it did not run is no sign of a server that does not answer. And a
 * server that is stopped while a group forms: its ranks do not wait for it beyond their timeout.
 */
/* ctest: labels=quick timeout=60 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <trireme/group.h>
#include <trireme/store.h>

#include "os/clock.h"
#include "os/socket.h"
#include "testing/check.h"
#include "testing/spawn.h"

static void accept_one(int listen_fd, int *fd_out)
{
    CHECK_OK(trii_socket_wait(listen_fd, TRII_READABLE, trii_deadline_ms(SPAWN_DEADLINE_MS)));
    CHECK_OK(trii_socket_accept(listen_fd, fd_out));
}

/* It may not run for longer than all the time that it gives the server. */
static void the_time_in_which_it_was_stopped_does_not_count(void **state)
{
    tri_store_tcp_options serve = {.serve = true};
    char where[32];
    const char *const argv[] = {spawn_bin("trireme"),
                                "store",
                                "--endpoint",
                                where,
                                "--timeout",
                                "2",
                                "set",
                                "k",
                                "v",
                                NULL};
    int port, connection;
    tri_store *server = NULL;
    spawn client;

    (void)state;
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &serve.listen_fd, &port));
    snprintf(where, sizeof(where), "127.0.0.1:%d", port);
    spawn_start(&client, argv, NULL);
    accept_one(serve.listen_fd, &connection);
    spawn_signal(&client, SIGSTOP);
    spawn_read(&client, 2500);
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &serve, &server));
    spawn_signal(&client, SIGCONT);
    assert_int_equal(spawn_wait(&client), 0);
    assert_string_equal(SPAWN_ERR(&client), "");
    spawn_free(&client);
    trii_socket_close(connection);
    tri_store_unref(server);
}

/* Serves a store until a rank waits for another one to make a group there, and is stopped then. */
static void serve_and_stop(int port_fd)
{
    static const char *const waits[] = {"tri_group/1/1/engine/0"};
    tri_store *store;
    int port;

    if (tri_store_tcp("127.0.0.1", 0, &(tri_store_tcp_options){.serve = true}, &store) != TRI_OK)
        _exit(1);
    port = tri_store_port(store);
    if (write(port_fd, &port, sizeof(port)) == sizeof(port) &&
        tri_store_wait(store, waits, 1, SPAWN_DEADLINE_MS) == TRI_OK)
        (void)raise(SIGSTOP);
    _exit(2);
}

static void a_store_that_is_stopped_while_a_group_forms_is_not_waited_for(void **state)
{
    const tri_group_options options = {.timeout_ms = 300};
    int fds[2], port, ending;
    int64_t start_ns;
    tri_group *group;
    tri_store *store;
    pid_t server;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    server = fork();
    assert_true(server >= 0);
    if (server == 0)
        serve_and_stop(fds[1]);
    assert_int_equal(read(fds[0], &port, sizeof(port)), sizeof(port));
    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &store));
    start_ns = trii_now_ns();
    CHECK_FAILS(tri_group_create(store, 0, 2, &options, &group), TRI_ERR_TIMEOUT, "to join");
    assert_true(trii_now_ns() - start_ns < 30 * TRII_NS_PER_S);
    assert_int_equal(kill(server, SIGKILL), 0);
    assert_int_equal(waitpid(server, &ending, 0), server);
    tri_store_unref(store);
    close(fds[0]);
    close(fds[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_store_that_is_stopped_while_a_group_forms_is_not_waited_for),
    cmocka_unit_test(the_time_in_which_it_was_stopped_does_not_count),
};

TEST_MAIN(tests)
