/*
 * rank_replaced_test.c - an agent with a given rank freezes until the others have given it up, and
 * another one may take its rank: only one of the two runs workers.
 */
#include <signal.h>

#include "testing/trirun_job.h"

/* Short, but longer than an agent of a busy machine may be off its core: under a sanitizer more. */
#define HOST_TIMEOUT (TEST_SANITIZED ? "--host-timeout=3" : "--host-timeout=1")

static void start_replaceable(trirun_job *j, int port, int rank)
{
    char text[2][40];

    snprintf(text[0], sizeof(text[0]), "--node-rank=%d", rank);
    snprintf(text[1], sizeof(text[1]), "--master-port=%d", port);
    TRIRUN_START(j, "--nnodes=2", text[0], text[1], "--master-addr=127.0.0.1", "--max-restarts=9",
                 HOST_TIMEOUT, "sh", "-c",
                 "echo rank $RANK attempt $TORCHELASTIC_RESTART_COUNT; exec sleep 1000");
}

/* Agents of two ranks, of which the second freezes until the first has given it up. */
static void freeze_second(trirun_job *a, trirun_job *b, int port)
{
    start_replaceable(a, port, 0);
    start_replaceable(b, port, 1);
    spawn_expect(&b->run, "rank 1 attempt 0");
    spawn_signal(&b->run, SIGSTOP);
    spawn_expect(&a->run, "restarting once all 2 hosts have joined");
}

/* Of two agents with one rank, which one is refused. On a machine that is so busy that the other
 * one, too, is silent for --host-timeout, it may be either. */
static trirun_job *refused_of(trirun_job *b, trirun_job *c)
{
    while (!b->run.ended && !c->run.ended) { /* the deadline of the case ends it */
        spawn_poll(&b->run, 10);
        spawn_poll(&c->run, 10);
    }
    return b->run.ended ? b : c;
}

/* The first agent, which serves the store, is told to stop, and the others end with it. */
static void end_all(trirun_job *a, trirun_job *b, trirun_job *c)
{
    spawn_signal(&a->run, SIGTERM);
    assert_int_equal(spawn_wait(&a->run), 1);
    assert_int_equal(spawn_wait(&b->run), 1);
    assert_int_equal(spawn_wait(&c->run), 1);
    trirun_end(c, 0);
    trirun_end(b, 0);
    trirun_end(a, 0);
}

/* What two agents would run, both run. */
static void a_frozen_agent_whose_rank_was_taken_does_not_start_again(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b, c, *refused;

    (void)state;
    freeze_second(&a, &b, port);
    start_replaceable(&c, port, 1);
    spawn_expect(&c.run, "rank 1 attempt ");
    spawn_signal(&b.run, SIGCONT);
    refused = refused_of(&b, &c);
    assert_int_equal(spawn_wait(&refused->run), 1);
    trirun_has(SPAWN_ERR(&refused->run),
               "was silent for longer than --host-timeout, and the one on host");
    for (int attempt = 1; attempt <= 9; attempt++) {
        char text[20];

        snprintf(text, sizeof(text), "attempt %d\n", attempt);
        assert_true(strstr(SPAWN_OUT(&b.run), text) == NULL ||
                    strstr(SPAWN_OUT(&c.run), text) == NULL);
    }
    end_all(&a, &b, &c);
}

static void a_frozen_agent_that_wakes_up_in_time_keeps_its_rank(void **state)
{
    bool kept = false;

    (void)state;
    while (!kept) { /* else it was silent for too long once more */
        int port = spawn_free_port();
        trirun_job a, b, c;

        freeze_second(&a, &b, port);
        spawn_signal(&b.run, SIGCONT);
        spawn_expect(&b.run, "trirun: restarting with 2 hosts");
        start_replaceable(&c, port, 1);
        kept = refused_of(&b, &c) == &c;
        if (kept) {
            assert_int_equal(spawn_wait(&c.run), 1);
            trirun_has(SPAWN_ERR(&c.run), "has --node-rank 1; waiting up to ");
            trirun_has(SPAWN_ERR(&c.run), "has --node-rank 1 already");
        }
        end_all(&a, &b, &c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_frozen_agent_whose_rank_was_taken_does_not_start_again),
    cmocka_unit_test(a_frozen_agent_that_wakes_up_in_time_keeps_its_rank),
};

TEST_MAIN(tests)
