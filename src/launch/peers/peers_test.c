/* peers_test.c - agents of one loop: what one is told reaches all, also those that it does not
 * know. */
#include <string.h>

#include "base/compiler.h"
#include "launch/peers/peers.h"
#include "os/clock.h"
#include "testing/check.h"

enum { N = 2 * TRII_PEER_NEIGHBOURS + 6, TOLD = 3 };

typedef struct agent {
    trii_peers *peers;
    trii_watch watch; /* of their events */
    int preempted;
    int rank; /* whose host will be taken away */
    int64_t left_ms;
    char host[64];
} agent;

static void agent_has_events(trii_watch *watch, unsigned events)
{
    agent *a = TRII_CONTAINER(watch, agent, watch);
    trii_peer_event event;

    (void)events;
    for (;;) {
        trii_peers_next(a->peers, &event);
        if (event.kind == TRII_PEER_NOTHING)
            return;
        if (event.kind != TRII_PEER_PREEMPTED)
            fail_msg("%s", event.text);
        a->preempted++;
        a->rank = event.rank;
        a->left_ms = event.left_ms;
        snprintf(a->host, sizeof(a->host), "%s", event.round->agents[event.rank].name);
    }
}

/* How many of the others have heard of it. */
static int reached(const agent *agents)
{
    int n = 0;

    for (int i = 0; i < N; i++)
        n += agents[i].preempted > 0;
    return n;
}

typedef struct job {
    trii_loop *loop;
    agent agents[N];
    trii_rdzv_agent list[N]; /* by agent; in a round by rank */
} job;

static void begin(job *j)
{
    memset(j, 0, sizeof(*j));
    CHECK_OK(trii_loop_create(&j->loop));
    for (int i = 0; i < N; i++) {
        trii_rdzv_agent *a = &j->list[i];
        trii_peers *peers;

        CHECK_OK(trii_peers_create(j->loop, "127.0.0.1", 5000, &peers));
        j->agents[i].peers = peers;
        CHECK_OK(trii_loop_watch(j->loop, &j->agents[i].watch, trii_peers_fd(peers), TRII_READABLE,
                                 agent_has_events));
        trii_peers_describe(peers, a);
        snprintf(a->host, sizeof(a->host), "127.0.0.1");
        snprintf(a->name, sizeof(a->name), "host%d", i);
    }
}

/* Agent i learns of a round of the first n; reversed: the last has rank 0. */
static void take_round(job *j, int64_t number, int i, int n, bool reversed)
{
    trii_rdzv_agent list[N];
    trii_rdzv_round round = {
        .number = number, .group_rank = reversed ? n - 1 - i : i, .group_size = n, .agents = list};

    for (int k = 0; k < n; k++)
        list[reversed ? n - 1 - k : k] = j->list[k];
    trii_peers_watch_round(j->agents[i].peers, &round);
}

/* The deadline of the test ends it. */
static void run_until_reached(job *j, int n)
{
    while (reached(j->agents) < n)
        trii_loop_run_once(j->loop, trii_deadline_ms(10));
}

static void end(job *j)
{
    for (int i = 0; i < N; i++) {
        agent *a = &j->agents[i];

        assert_int_equal(a->preempted, i != TOLD); /* once */
        if (i != TOLD) {
            assert_string_equal(a->host, "host3");
            assert_true(a->left_ms > 0 && a->left_ms <= 100000);
        }
        trii_loop_unwatch(&a->watch);
        trii_peers_destroy(a->peers, true);
    }
    trii_loop_destroy(j->loop);
}

/* Also those that are still being called. */
static void a_notice_reaches_every_host(void **state)
{
    static job j;

    (void)state;
    begin(&j);
    for (int i = 0; i < N; i++)
        take_round(&j, 1, i, N, false);
    trii_peers_announce_preemption(j.agents[TOLD].peers, 100000);
    run_until_reached(&j, N - 1);
    for (int i = 0; i < N; i++)
        assert_int_equal(j.agents[i].rank, i == TOLD ? 0 : TOLD);
    end(&j);
}

/* It was given before; some of the others take a while to learn of the round. */
static void a_notice_waits_for_the_round(void **state)
{
    static job j;

    (void)state;
    begin(&j);
    trii_peers_announce_preemption(j.agents[TOLD].peers, 100000);
    for (int i = 0; i < N - 1; i++) {
        take_round(&j, 1, i, N, false);
        trii_loop_run_once(j.loop, trii_deadline_ms(10));
    }
    run_until_reached(&j, N - 2);
    take_round(&j, 1, N - 1, N, false);
    run_until_reached(&j, N - 1);
    end(&j);
}

/* Who comes later hears of it, by the new ranks; the others do not again. */
static void a_notice_is_told_to_who_joins(void **state)
{
    static job j;

    (void)state;
    begin(&j);
    for (int i = 0; i < N - 1; i++)
        take_round(&j, 1, i, N - 1, false);
    trii_peers_announce_preemption(j.agents[TOLD].peers, 100000);
    run_until_reached(&j, N - 2);
    for (int i = 0; i < N; i++)
        take_round(&j, 2, i, N, true);
    run_until_reached(&j, N - 1);
    assert_int_equal(j.agents[N - 1].rank, N - 1 - TOLD);
    end(&j);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_notice_reaches_every_host),
    cmocka_unit_test(a_notice_waits_for_the_round),
    cmocka_unit_test(a_notice_is_told_to_who_joins),
};

TEST_MAIN(tests)
