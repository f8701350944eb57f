/*
 * stopped_client_test.c - a client that is stopped (SIGSTOP, a frozen virtual machine) while it
 * connects: the time in which it did not run is no sign of a server that does not answer.
 */
/* ctest: labels=quick timeout=60 */
#include <signal.h>

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
    spawn_signal(&client, SIGCONT);
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &serve, &server));
    assert_int_equal(spawn_wait(&client), 0);
    assert_string_equal(SPAWN_ERR(&client), "");
    spawn_free(&client);
    trii_socket_close(connection);
    tri_store_unref(server);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_time_in_which_it_was_stopped_does_not_count),
};

TEST_MAIN(tests)
