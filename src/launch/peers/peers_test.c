/* peers_test.c - agents of one loop: what one is told reaches all, also those that it does not
 * know. */
#include <string.h>

#include "base/compiler.h"
#include "launch/peers/peers_internal.h"
#include "os/clock.h"
#include "os/socket.h"
#include "testing/check.h"

enum { N = 2 * TRII_PEER_NEIGHBOURS + 6, TOLD = 3 };

typedef struct agent {
    trii_peers *peers;
    trii_watch watch; /* of their events */
    int preempted;
    int rank; /* whose host will be taken away */
    int64_t left_ms;
    char host[64];
    int n_news;
    trii_rdzv_news first_news, news; /* the last */
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
        if (event.kind == TRII_PEER_NEWS_CAME) {
            a->news = event.news;
            if (a->n_news++ == 0)
                a->first_news = event.news;
            continue;
        }
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

static void destroy(job *j)
{
    for (int i = 0; i < N; i++) {
        trii_loop_unwatch(&j->agents[i].watch);
        trii_peers_destroy(j->agents[i].peers, true);
    }
    trii_loop_destroy(j->loop);
}

static void end(job *j)
{
    for (int i = 0; i < N; i++) {
        const agent *a = &j->agents[i];

        assert_int_equal(a->preempted, i != TOLD); /* once */
        if (i == TOLD)
            continue;
        assert_string_equal(a->host, "host3");
        assert_true(a->left_ms > 0 && a->left_ms <= 100000);
    }
    destroy(j);
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

/* An agent that comes later hears of it, by the new ranks; the others do not again. */
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

/* The deadline of the test ends it. */
static void run_until_told(job *j, int from, int n_news)
{
    for (int i = from; i < N; i++) {
        while (i != TOLD && j->agents[i].n_news < n_news)
            trii_loop_run_once(j->loop, trii_deadline_ms(10));
    }
}

static void end_agent(job *j, int i)
{
    trii_loop_unwatch(&j->agents[i].watch);
    trii_peers_destroy(j->agents[i].peers, true);
    j->agents[i].peers = NULL;
}

/* None of the others sees only that it is gone, which is an event that fails here. */
static void an_agent_that_has_met_the_others_may_end_when_it_has_told_them(void **state)
{
    const trii_rdzv_news over = {.over = true, .gone = -1, .why = "host3 cannot start its workers"};
    static job j;

    (void)state;
    begin(&j);
    for (int i = 0; i < N; i++)
        take_round(&j, 1, i, N, false);
    trii_peers_tell(j.agents[TOLD].peers, &over);
    while (!trii_peers_have_met(j.agents[TOLD].peers))
        trii_loop_run_once(j.loop, TRII_NO_DEADLINE);
    end_agent(&j, TOLD);
    run_until_told(&j, 0, 1);
    for (int i = 0; i < N; i++)
        assert_true(i == TOLD || j.agents[i].news.over);
    destroy(&j);
}

/* Until it has no connection with that one any more, which has left in order. */
static void run_until_left(job *j, int i, int rank)
{
    trii_peers *p = j->agents[i].peers;
    const trii_peer_state *state = &p->states[rank];
    bool left = false, over = false;

    while (!over) {
        trii_loop_run_once(j->loop, trii_deadline_ms(10));
        trii_loop_lock(p->loop);
        over = state->n_links == 0 && !state->dialing;
        left = state->left;
        trii_loop_unlock(p->loop);
    }
    assert_true(left);
}

/* Its loop has not come to the connection of the other one, whose loop has not come to its. */
static void an_agent_says_goodbye_to_whom_it_has_not_accepted_yet(void **state)
{
    static job j;

    (void)state;
    begin(&j);
    for (int i = 0; i < 2; i++)
        trii_loop_change(&j.agents[i].peers->listener, 0);
    for (int i = 1; i >= 0; i--) {
        take_round(&j, 1, i, 2, false);
        while (!trii_peers_have_met(j.agents[i].peers))
            trii_loop_run_once(j.loop, trii_deadline_ms(10));
    }
    end_agent(&j, 0);
    run_until_left(&j, 1, 0);
    destroy(&j);
}

/* Rank 2 is to dial it, and is stopped: it finds the goodbye when it goes on. */
static void an_agent_that_ends_waits_for_no_other_that_is_stopped(void **state)
{
    static job j;

    (void)state;
    begin(&j);
    trii_loop_change(&j.agents[2].peers->listener, 0);
    for (int i = 0; i < 2; i++)
        take_round(&j, 1, i, 3, false);
    trii_peers_meet(j.agents[0].peers);
    while (!trii_peers_have_met(j.agents[0].peers))
        trii_loop_run_once(j.loop, TRII_NO_DEADLINE);
    for (int i = 0; i < 3; i++) { /* it is not lost, but reached */
        const trii_peer_state *other = &j.agents[0].peers->states[i];

        assert_int_equal(other->judgement, TRII_PEER_NOTHING);
        assert_true(i == 0 || other->reached);
    }
    end_agent(&j, 0);
    take_round(&j, 1, 2, 3, false);
    run_until_left(&j, 2, 0);
    destroy(&j);
}

static void one_that_has_not_identified_itself_yet_hears_the_goodbye(void **state)
{
    trii_peer_frame frame;
    static job j;
    int fd;

    (void)state;
    begin(&j);
    CHECK_OK(trii_socket_connect("127.0.0.1", j.list[0].port, trii_deadline_ms(20000), false, &fd));
    end_agent(&j, 0);
    CHECK_OK(trii_socket_recv_all(fd, &frame, sizeof(frame), trii_deadline_ms(20000)));
    assert_int_equal(frame.kind, TRII_PEER_GOODBYE);
    trii_socket_close(fd);
    destroy(&j);
}

/* Its agent has read the list of the round already, and learns only now that it is in it. accepts:
 * else its loop comes too late to accept the connection before the other agent has ended. */
static void check_early_news(bool accepts)
{
    const trii_rdzv_news over = {.over = true, .gone = -1, .why = "rank 1 failed"};
    const trii_rdzv_news left = {.left = true, .gone = 1, .why = "host1 has left"};
    static job j;

    begin(&j);
    if (!accepts)
        trii_loop_change(&j.agents[0].peers->listener, 0);
    take_round(&j, 1, 1, 2, false);
    trii_peers_tell(j.agents[1].peers, &over);
    while (!trii_peers_have_met(j.agents[1].peers))
        trii_loop_run_once(j.loop, TRII_NO_DEADLINE);
    trii_peers_tell(j.agents[1].peers, &left);
    end_agent(&j, 1);
    take_round(&j, 1, 0, 2, false);
    while (j.agents[0].n_news < 2)
        trii_loop_run_once(j.loop, TRII_NO_DEADLINE);
    assert_true(j.agents[0].first_news.over);
    assert_string_equal(j.agents[0].news.why, "host1 has left");
    destroy(&j);
}

static void news_that_come_before_the_round_are_kept(void **state)
{
    (void)state;
    check_early_news(true);
}

static void news_are_heard_before_their_agent_is_taken_for_dead(void **state)
{
    (void)state;
    check_early_news(false);
}

/* Also agents that enter the round later. */
static void news_reach_every_agent_once(void **state)
{
    const trii_rdzv_news failed = {.counts = true, .gone = -1, .why = "rank 7 exited with code 3"};
    const trii_rdzv_news same = {.gone = -1, .why = "rank 8 exited with code 3"};
    const trii_rdzv_news gone = {.gone = 5, .left = true, .why = "host5 was stopped"};
    const trii_rdzv_news over = {.over = true, .hung = true, .gone = -1, .why = ""};
    static job j;

    (void)state;
    begin(&j);
    for (int i = 0; i < N - 1; i++)
        take_round(&j, 1, i, N, false);
    trii_peers_tell(j.agents[TOLD].peers, &failed);
    trii_peers_tell(j.agents[TOLD].peers, &same); /* nothing new */
    while (j.agents[N - 2].n_news < 1)
        trii_loop_run_once(j.loop, trii_deadline_ms(10));
    take_round(&j, 1, N - 1, N, false);
    run_until_told(&j, 0, 1);
    for (int i = 0; i < N; i++) {
        assert_int_equal(j.agents[i].n_news, i != TOLD);
        if (i != TOLD)
            assert_memory_equal(&j.agents[i].news, &failed, sizeof(failed));
    }
    trii_peers_tell(j.agents[TOLD].peers, &gone);
    trii_peers_tell(j.agents[TOLD].peers, &gone);
    run_until_told(&j, 0, 2);
    assert_memory_equal(&j.agents[0].news, &gone, sizeof(gone));
    trii_peers_tell(j.agents[TOLD].peers, &over);
    run_until_told(&j, 0, 3);
    for (int i = 0; i < N; i++)
        assert_int_equal(j.agents[i].n_news, i != TOLD ? 3 : 0);
    assert_memory_equal(&j.agents[0].news, &over, sizeof(over));
    destroy(&j);
}

/* Ranks 4 to 9 are torchrun's, which have no connections. */
static void agents_of_torchrun_do_not_part_those_of_trirun(void **state)
{
    const trii_rdzv_news news = {.gone = -1, .why = "rank 7 exited with code 3"};
    static job j;

    (void)state;
    begin(&j);
    for (int i = TOLD + 1; i < N - 4; i++)
        j.list[i].port = 0;
    for (int i = 0; i < N; i++) {
        if (j.list[i].port != 0)
            take_round(&j, 1, i, N, false);
    }
    trii_peers_tell(j.agents[TOLD].peers, &news);
    run_until_told(&j, N - 4, 1);
    destroy(&j);
}

static void progress_on_one_host_is_known_on_all(void **state)
{
    const int64_t now = trii_now_ns(), old = now - 100 * TRII_NS_PER_S;
    static job j;

    (void)state;
    begin(&j);
    for (int i = 0; i < N; i++)
        assert_true(trii_peers_progress(j.agents[i].peers, i == TOLD ? now : old) <= now);
    for (int i = 0; i < N; i++)
        take_round(&j, 1, i, N, false);
    for (int i = 0; i < N; i++) {
        int64_t at;

        while (i != TOLD && (at = trii_peers_progress(j.agents[i].peers, old)) < now)
            trii_loop_run_once(j.loop, trii_deadline_ms(10));
        assert_true(i == TOLD || at <= now + TRII_NS_PER_S); /* as long ago as it was */
    }
    destroy(&j);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_agent_that_has_met_the_others_may_end_when_it_has_told_them),
    cmocka_unit_test(an_agent_says_goodbye_to_whom_it_has_not_accepted_yet),
    cmocka_unit_test(an_agent_that_ends_waits_for_no_other_that_is_stopped),
    cmocka_unit_test(one_that_has_not_identified_itself_yet_hears_the_goodbye),
    cmocka_unit_test(news_that_come_before_the_round_are_kept),
    cmocka_unit_test(news_are_heard_before_their_agent_is_taken_for_dead),
    cmocka_unit_test(news_reach_every_agent_once),
    cmocka_unit_test(agents_of_torchrun_do_not_part_those_of_trirun),
    cmocka_unit_test(progress_on_one_host_is_known_on_all),
    cmocka_unit_test(a_notice_reaches_every_host),
    cmocka_unit_test(a_notice_waits_for_the_round),
    cmocka_unit_test(a_notice_is_told_to_who_joins),
};

TEST_MAIN(tests)
