/*
 * crowded_store_test.c - clients that connect to the stores of a job and stay, as many as may: the
 * agent still has the descriptors that its workers take when they are started again.
 */
#include <stdio.h>

#include "os/clock.h"
#include "os/socket.h"
#include "testing/trirun_job.h"

enum { DESCRIPTORS = 256, WORKERS = 24, GUESTS = DESCRIPTORS, FREE = 8 };

static const unsigned char hello[] = {0, 0xCE, 0xF7, 0x85, 0x3C, 13, 1, 2, 3, 4}; /* and a ping */

/* Connects GUESTS times, and leaves again with FREE of those that were let in: the agent is a
 * client of its own store. */
static void crowd(int port, int *fds)
{
    int n = 0;

    for (int i = 0; i < GUESTS; i++) {
        char pong[4];
        bool in;

        CHECK_OK(trii_socket_connect("127.0.0.1", port, trii_deadline_ms(20000), false, &fds[i]));
        in =
            trii_socket_send_all(fds[i], hello, sizeof(hello), trii_deadline_ms(20000)) == TRI_OK &&
            trii_socket_recv_all(fds[i], pong, sizeof(pong), trii_deadline_ms(20000)) == TRI_OK;
        n += in;
        if (!in || n <= FREE) {
            trii_socket_close(fds[i]);
            fds[i] = -1;
        }
    }
    assert_in_range(n, FREE + 1, GUESTS - 1);
}

static void workers_start_again_beside_a_crowd(void **state)
{
    static const char limit[] = "ulimit -n 256 && exec \"$@\"";
    static const char *const head[] = {"sh", "-c", limit, "sh", NULL};
    static int fds[2][GUESTS];
    char folder[256], go[300], endpoint[64], script[1024];
    int agents_port = spawn_free_port(), port = 0;
    trirun_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(go, sizeof(go), "%s/go", folder);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", agents_port);
    snprintf(script, sizeof(script),
             "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec %s store add mine/$RANK 0\n"
             "[ $RANK = 0 ] || exec sleep 1000\n"
             "echo port $MASTER_PORT; until [ -e %s ]; do sleep 0.05; done; exit 7",
             spawn_bin("trireme"), go);
    trirun_start_behind(&j, head,
                        (const char *const[]){"--nnodes=1:2", "--rdzv-backend=c10d",
                                              "--rdzv-conf=last_call_timeout=0.1",
                                              "--rdzv-endpoint", endpoint, "--local-addr",
                                              "127.0.0.1", "--max-restarts=1", "--nproc-per-node",
                                              "24", "sh", "-c", script, NULL},
                        NULL);
    spawn_expect(&j.run, "port ");
    spawn_expect(&j.run, "\n");
    assert_int_equal(sscanf(strstr(SPAWN_OUT(&j.run), "port "), "port %d", &port), 1);
    crowd(agents_port, fds[0]);
    crowd(port, fds[1]);
    fclose(fopen(go, "w"));
    if (spawn_wait(&j.run) != 0)
        fail_msg("%s", SPAWN_ERR(&j.run));
    assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "0\n"), WORKERS);
    assert_in_range(trirun_count(SPAWN_ERR(&j.run), "refused a client"), 1, GUESTS / 4);
    trirun_has(SPAWN_ERR(&j.run), "restarting (restart 1 of 1)");
    for (int i = 0; i < GUESTS; i++) {
        trii_socket_close(fds[0][i]);
        trii_socket_close(fds[1][i]);
    }
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(workers_start_again_beside_a_crowd),
};

TEST_MAIN(tests)
