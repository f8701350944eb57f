/*
 * host_silence_test.c - agents that say nothing for a while, and agents that are gone: what the
 * others make of it, with given ranks and with c10d.
 */
/* ctest: labels=quick timeout=60 */
#include <signal.h>

#include "testing/trirun_job.h"

/* A worker that says so when it runs, and then rests. */
static const char rests[] = "echo rank $RANK runs; exec sleep 1000";

/* Agent `rank` of two, on loopback. */
static void start(trirun_job *j, const char *backend, int port, int rank, const char *flag,
                  const char *script)
{
    char endpoint[40], text[2][40];
    const char *const args[] = {text[0],
                                text[1],
                                "--nnodes=2",
                                "--rdzv-id=s",
                                "--rdzv-conf",
                                "timeout=20,join_timeout=20",
                                "--rdzv-endpoint",
                                endpoint,
                                "--max-restarts=3",
                                flag,
                                "sh",
                                "-c",
                                script,
                                NULL};

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    snprintf(text[0], sizeof(text[0]), "--rdzv-backend=%s", backend);
    snprintf(text[1], sizeof(text[1]), "--node-rank=%d", rank);
    trirun_start(j, args);
}

static void stop_both(trirun_job *agents)
{
    for (int i = 1; i >= 0; i--) {
        spawn_signal(&agents[i].run, SIGTERM);
        assert_int_equal(spawn_wait(&agents[i].run), 1);
        trirun_end(&agents[i], 0);
    }
}

/* --- silence that is no death ----------------------------------------------------------------- */

static void check_pause(const char *backend, int stopped)
{
    int port = spawn_free_port();
    trirun_job agents[2];

    for (int i = 0; i < 2; i++)
        start(&agents[i], backend, port, i, "--nproc-per-node=1", rests);
    for (int i = 0; i < 2; i++)
        spawn_expect(&agents[i].run, " runs\n");
    spawn_signal(&agents[stopped].run, SIGSTOP);
    spawn_read(&agents[1 - stopped].run, 2200);
    spawn_signal(&agents[stopped].run, SIGCONT);
    spawn_read(&agents[1 - stopped].run, 500);
    for (int i = 0; i < 2; i++) {
        spawn_read(&agents[i].run, 1);
        if (SPAWN_ERR(&agents[i].run)[0] != '\0')
            fail_msg("%s, agent %d stopped, agent %d says: %s", backend, stopped, i,
                     SPAWN_ERR(&agents[i].run));
    }
    stop_both(agents);
}

static void an_agent_that_stands_still_for_two_seconds_loses_nothing(void **state)
{
    (void)state;
    check_pause("static", 1);
    check_pause("c10d", 1);
}

static void neither_does_the_one_with_the_store(void **state)
{
    (void)state;
    check_pause("static", 0);
    check_pause("c10d", 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_agent_that_stands_still_for_two_seconds_loses_nothing),
    cmocka_unit_test(neither_does_the_one_with_the_store),
};

TEST_MAIN(tests)
