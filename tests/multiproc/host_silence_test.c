/*
 * host_silence_test.c - agents that say nothing for a while, and agents that are gone: what the
 * others make of it, with given ranks. With c10d, in virtual time: tests/sim/sim_rounds_test.c.
 */
/* ctest: labels=quick timeout=60 */
#include <signal.h>

#include <trireme/store.h>

#include "testing/trirun_job.h"

/* A worker that says so when it runs, and then rests. */
static const char rests[] = "echo rank $RANK runs; exec sleep 1000";

/* Agent `rank` of n, on loopback. */
static void start_of(trirun_job *j, int n, int port, int rank, const char *flag, const char *script)
{
    char endpoint[40], text[2][40];
    const char *const args[] = {"--rdzv-backend=static",
                                text[0],
                                text[1],
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
    snprintf(text[0], sizeof(text[0]), "--node-rank=%d", rank);
    snprintf(text[1], sizeof(text[1]), "--nnodes=%d", n);
    trirun_start(j, args);
}

static void start(trirun_job *j, int port, int rank, const char *flag, const char *script)
{
    start_of(j, 2, port, rank, flag, script);
}

static void stop_both(trirun_job *agents)
{
    for (int i = 1; i >= 0; i--) {
        spawn_signal(&agents[i].run, SIGTERM);
        assert_int_equal(spawn_wait(&agents[i].run), 1);
        trirun_end(&agents[i], 0);
    }
}

/* --- silence that is no death --------------------------------------------- */

/* Whether a line of the log is one that was not asked for. */
static bool complains(const char *log)
{
    for (; *log != '\0'; log += strcspn(log, "\n"), log += *log == '\n')
        if (strncmp(log, "trireme debug ", 14) != 0 && strncmp(log, "trireme info ", 13) != 0)
            return true;
    return false;
}

/* Workers run once their agent has joined and has all its connections to the store: an agent would
 * report a store that does not accept a new one, and be right. */
static void check_pause(int stopped)
{
    int port = spawn_free_port();
    trirun_job agents[2];

    assert_int_equal(setenv("TRI_LOG", "debug", 1), 0);
    for (int i = 0; i < 2; i++)
        start(&agents[i], port, i, "--nproc-per-node=1", rests);
    assert_int_equal(unsetenv("TRI_LOG"), 0);
    for (int i = 0; i < 2; i++) {
        spawn_expect(&agents[i].run, " runs\n");
        agents[i].run.used[1] = 0; /* what it said while the other one was late */
        SPAWN_ERR(&agents[i].run)[0] = '\0';
    }
    spawn_signal(&agents[stopped].run, SIGSTOP);
    spawn_read(&agents[1 - stopped].run, 2200);
    spawn_signal(&agents[stopped].run, SIGCONT);
    spawn_read(&agents[1 - stopped].run, 500);
    for (int i = 0; i < 2; i++) {
        spawn_read(&agents[i].run, 1);
        if (complains(SPAWN_ERR(&agents[i].run)))
            fail_msg("agent %d stopped, agent %d says: %s", stopped, i, SPAWN_ERR(&agents[i].run));
    }
    stop_both(agents);
}

static void an_agent_that_stands_still_for_two_seconds_loses_nothing(void **state)
{
    (void)state;
    check_pause(1);
}

static void an_agent_with_the_store_that_stands_still_for_two_seconds_loses_nothing(void **state)
{
    (void)state;
    check_pause(0);
}

/* --- a host is lost ------------------------------------------------------- */

/* Rests at first; after a restart it says so and ends well. */
static const char ends_the_second_time[] =
    "echo rank $RANK of $WORLD_SIZE runs; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 1000; "
    "echo restarted";

/* As with torchrun, whose host is replaced under the same rank; here by one with two workers. */
static void a_lost_host_with_a_given_rank_may_come_back(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b, c;

    (void)state;
    start(&a, port, 0, "--nproc-per-node=1", ends_the_second_time);
    start(&b, port, 1, "--nproc-per-node=1", ends_the_second_time);
    spawn_expect(&a.run, "rank 0 of 2 runs\n");
    spawn_expect(&b.run, "rank 1 of 2 runs\n");
    spawn_signal(&b.run, SIGKILL);
    assert_int_equal(spawn_wait(&b.run), -SIGKILL);
    spawn_expect(&a.run, "; restarting once all 2 hosts have joined");
    /* it has ended, or, where there was no connection between the two yet, does not answer */
    trirun_has(SPAWN_ERR(&a.run), "is gone: its agent ");
    start(&c, port, 1, "--nproc-per-node=2", ends_the_second_time);
    assert_int_equal(spawn_wait(&a.run), 0);
    assert_int_equal(spawn_wait(&c.run), 0);
    trirun_has(SPAWN_OUT(&a.run), "rank 0 of 3 runs\nrestarted\n");
    trirun_has(SPAWN_OUT(&c.run), "rank 2 of 3 runs\n");
    trirun_end(&b, 1);
    trirun_end(&a, 0);
    trirun_end(&c, 0);
}

/* Of the agents' store, which serves at that port. */
static void wait_for_key(int port, const char *key)
{
    tri_store *store;

    CHECK_OK(tri_store_tcp("127.0.0.1", port, NULL, &store));
    CHECK_OK(tri_store_wait(store, &key, 1, 0));
    tri_store_unref(store);
}

static void start_of_three(trirun_job *j, int port, int rank)
{
    start_of(j, 3, port, rank, "--host-timeout=3", ends_the_second_time);
}

/* Of three agents the last two are killed, one after the other: the second once the loss of the
 * first is told, or once it has joined the next round. */
static void lose_two(trirun_job *agents, int port, bool once_joined)
{
    for (int i = 0; i < 3; i++)
        start_of_three(&agents[i], port, i);
    for (int i = 0; i < 3; i++)
        spawn_expect(&agents[i].run, " of 3 runs\n");
    for (int i = 1; i < 3; i++) {
        spawn_signal(&agents[i].run, SIGKILL);
        assert_int_equal(spawn_wait(&agents[i].run), -SIGKILL);
        trirun_end(&agents[i], 1);
        if (i == 1 && once_joined)
            wait_for_key(port, "s/trireme/1/stopped/2");
        else if (i == 1)
            spawn_expect(&agents[0].run, "restarting once all 3 hosts have joined");
    }
}

/* The first one, and two in the place of the others. */
static void expect_restarted(trirun_job *agents)
{
    for (int i = 0; i < 3; i++) {
        if (spawn_wait(&agents[i].run) != 0)
            fail_msg("%d: %s", i, SPAWN_ERR(&agents[i].run));
        trirun_has(SPAWN_OUT(&agents[i].run), "restarted\n");
    }
}

/* Twice, and the second one while the first is still away. */
static void two_lost_hosts_with_given_ranks_may_come_back(void **state)
{
    int port = spawn_free_port();
    trirun_job agents[3];

    (void)state;
    lose_two(agents, port, false);
    for (int i = 1; i < 3; i++)
        start_of_three(&agents[i], port, i);
    expect_restarted(agents);
    for (int i = 0; i < 3; i++)
        trirun_end(&agents[i], 0);
}

/* The second one had joined the next round already, in which the others only find that it is lost:
 * the agent that takes its place has no part in that, and starts its workers once. */
static void no_host_enters_a_round_that_a_lost_one_had_joined(void **state)
{
    int port = spawn_free_port();
    trirun_job agents[3];

    (void)state;
    lose_two(agents, port, true);
    start_of_three(&agents[1], port, 1);
    spawn_expect(&agents[0].run, "restarting once all 3 hosts have joined (restart 2 of 3)");
    start_of_three(&agents[2], port, 2);
    expect_restarted(agents);
    assert_null(strstr(SPAWN_ERR(&agents[2].run), "is gone"));
    for (int i = 0; i < 3; i++)
        trirun_end(&agents[i], 0);
}

static void without_restarts_the_loss_of_a_given_rank_is_the_end(void **state)
{
    int port = spawn_free_port();
    trirun_job agents[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        start(&agents[i], port, i, "--max-restarts=0", rests);
    for (int i = 0; i < 2; i++)
        spawn_expect(&agents[i].run, " runs\n");
    spawn_signal(&agents[1].run, SIGKILL);
    assert_int_equal(spawn_wait(&agents[0].run), 1);
    assert_int_equal(spawn_wait(&agents[1].run), -SIGKILL);
    trirun_has(SPAWN_ERR(&agents[0].run), "the job is over: host ");
    trirun_end(&agents[1], 1);
    trirun_end(&agents[0], 0);
}

/* It is lost after the silence that was allowed, and taken in again when it goes on. */
static void the_silence_that_is_allowed_can_be_chosen(void **state)
{
    int port = spawn_free_port();
    trirun_job agents[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        start(&agents[i], port, i, "--host-timeout=1", ends_the_second_time);
    for (int i = 0; i < 2; i++)
        spawn_expect(&agents[i].run, " runs\n");
    spawn_signal(&agents[1].run, SIGSTOP);
    spawn_expect(&agents[0].run, "was silent for 1 s: its host answers, so its agent is stopped or "
                                 "frozen");
    spawn_signal(&agents[1].run, SIGCONT);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spawn_wait(&agents[i].run), 0);
        trirun_has(SPAWN_OUT(&agents[i].run), "restarted\n");
        trirun_end(&agents[i], 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_agent_that_stands_still_for_two_seconds_loses_nothing),
    cmocka_unit_test(an_agent_with_the_store_that_stands_still_for_two_seconds_loses_nothing),
    cmocka_unit_test(a_lost_host_with_a_given_rank_may_come_back),
    cmocka_unit_test(two_lost_hosts_with_given_ranks_may_come_back),
    cmocka_unit_test(no_host_enters_a_round_that_a_lost_one_had_joined),
    cmocka_unit_test(without_restarts_the_loss_of_a_given_rank_is_the_end),
    cmocka_unit_test(the_silence_that_is_allowed_can_be_chosen),
};

TEST_MAIN(tests)
