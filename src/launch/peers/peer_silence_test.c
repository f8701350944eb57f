/*
 * peer_silence_test.c - an agent that says nothing is asked once more before it is lost, and one
 * that is only slow is not lost.
 */
#include "testing/full_queue.h"
#include "testing/peer_pair.h"

/* As while it waits for a disk: it is heard for as long as that takes. */
static void an_agent_whose_loop_stands_still_is_not_lost(void **state)
{
    pair p;

    (void)state;
    pair_begin_with(&p, true, NULL, NULL);
    pair_next_later(&p);
    pair_run_until(&p, &p.told[0].warning, 1);
    assert_int_equal(p.told[0].lost + p.told[0].incompatible, 0);
    assert_non_null(strstr(p.told[0].why, "host host1 (pid 71) is alive, but its agent has been "
                                          "blocked for 10 s: check whether a disk"));
    pair_end(&p);
}

/* Takes calls and says nothing, as the system of a host whose agent is stopped. */
typedef struct mute {
    trii_watch listener;
    int port, n_calls;
} mute;

static void mute_called(trii_watch *watch, unsigned events)
{
    mute *m = TRII_CONTAINER(watch, mute, listener);
    int fd;

    (void)events;
    CHECK_OK(trii_socket_accept(watch->fd, &fd));
    m->n_calls++;
}

/* Agent 1 is played by the test, and those who call it reach `m`. */
static void begin_mute(pair *p, int silence_ms, mute *m)
{
    int fd;

    memset(m, 0, sizeof(*m));
    pair_begin_silence(p, silence_ms, false, NULL, NULL);
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &fd, &m->port));
    CHECK_OK(trii_loop_watch(p->loop, &m->listener, fd, TRII_READABLE, mute_called));
    p->agents[1].port = m->port;
    p->round++;
    pair_next(p, 0);
}

/* Says who it is, as agent 1 does. */
static int call_as_agent_1(const pair *p)
{
    const trii_peer_frame hello = hello_of(p->agents[0].token, 1, p->round);
    int fd;

    CHECK_OK(
        trii_socket_connect("127.0.0.1", p->agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, &hello, sizeof(hello), trii_deadline_ms(SOON_MS)));
    return fd;
}

/* Also where it is the first that is heard of an agent that we do not dial. */
static void a_loop_that_stood_still_for_a_moment_is_nothing(void **state)
{
    trii_rdzv_agent agents[3] = {{.name = "us"}, {.name = "torchrun"}, {.name = "host2"}};
    const trii_rdzv_round round = {.number = 1, .group_size = 3, .agents = agents};
    trii_peer_frame frames[2] = {
        {.kind = 0}, {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_HEARTBEAT, .value = 2000}};
    pair p;
    int fd;

    (void)state;
    pair_begin_silence(&p, LONG_SILENCE_MS, false, NULL, NULL);
    trii_peers_watch_round(p.peers[0], &round);
    frames[0] = hello_of(p.agents[0].token, 2, round.number);
    CHECK_OK(
        trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, frames, sizeof(frames), trii_deadline_ms(SOON_MS)));
    pair_run(&p, 700);
    assert_int_equal(p.told[0].warning, 0);
    frames[1].value = 10000;
    CHECK_OK(trii_socket_send_all(fd, &frames[1], sizeof(frames[1]), trii_deadline_ms(SOON_MS)));
    pair_run_until(&p, &p.told[0].warning, 1);
    assert_non_null(strstr(p.told[0].why, "host host2 (pid 0) is alive, but its agent"));
    trii_socket_close(fd);
    pair_end(&p);
}

static trii_peer_frame heartbeat_of(int rank, int64_t progress_ns, int seconds_ago)
{
    trii_peer_frame beat = {.magic = TRII_PEER_MAGIC,
                            .kind = TRII_PEER_HEARTBEAT,
                            .rank = rank,
                            .number = seconds_ago * 1000};

    memcpy(beat.token, &progress_ns, sizeof(progress_ns));
    return beat;
}

/* A network takes its time, so each agent that passes it on thinks of a later moment. */
static void progress_that_comes_round_again_is_none(void **state)
{
    trii_rdzv_agent agents[3] = {{.name = "us"}, {.name = "torchrun"}, {.name = "host2"}};
    const trii_rdzv_round round = {.number = 1, .group_size = 3, .agents = agents};
    const int64_t now = trii_now_ns(), own = now - 100 * TRII_NS_PER_S;
    trii_peer_frame frames[] = {hello_of(peer_token, 2, round.number), heartbeat_of(0, own, 0),
                                heartbeat_of(2, 7, 50), heartbeat_of(2, 7, 0),
                                heartbeat_of(1, 5, 60)};
    int64_t at;
    pair p;
    int fd;

    (void)state;
    pair_begin_silence(&p, LONG_SILENCE_MS, false, NULL, NULL);
    (void)trii_peers_progress(p.peers[0], own);
    trii_peers_watch_round(p.peers[0], &round);
    memcpy(frames[0].token, p.agents[0].token, sizeof(frames[0].token));
    frames[4].value = 10000; /* its warning says that all have come */
    CHECK_OK(
        trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, frames, sizeof(frames), trii_deadline_ms(SOON_MS)));
    pair_run_until(&p, &p.told[0].warning, 1);
    at = trii_peers_progress(p.peers[0], own);
    assert_in_range((now - at) / TRII_NS_PER_S, 30, 50);
    trii_socket_close(fd);
    pair_end(&p);
}

/* Its agent has told it and ended before we learn of the round. */
static void what_came_before_the_round_outlives_the_connection(void **state)
{
    trii_rdzv_agent agents[3] = {{.name = "us"}, {.name = "torchrun"}, {.name = "host2"}};
    const trii_rdzv_round round = {.number = 1, .group_size = 3, .agents = agents};
    trii_peer_frame frames[2] = {
        {.kind = 0},
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_NEWS, .rank = -1, .number = TRII_PEER_OVER}};
    const trii_peer_frame goodbye = {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_GOODBYE};
    trii_peer_event event = {.kind = TRII_PEER_NOTHING};
    pair p;
    int fd;

    (void)state;
    pair_begin_silence(&p, LONG_SILENCE_MS, false, NULL, NULL);
    frames[0] = hello_of(p.agents[0].token, 2, round.number);
    CHECK_OK(
        trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, frames, sizeof(frames), trii_deadline_ms(SOON_MS)));
    pair_run(&p, 100);
    CHECK_OK(trii_socket_send_all(fd, &goodbye, sizeof(goodbye), trii_deadline_ms(SOON_MS)));
    trii_socket_close_linger(fd, 0); /* a reset, which nobody can miss */
    pair_run(&p, 100);
    trii_loop_unwatch(&p.watches[0]);
    trii_peers_watch_round(p.peers[0], &round);
    while (event.kind != TRII_PEER_NEWS_CAME) {
        trii_loop_run_once(p.loop, trii_deadline_ms(10));
        trii_peers_next(p.peers[0], &event);
        assert_int_not_equal(event.kind, TRII_PEER_LOST);
    }
    assert_true(event.news.over);
    pair_end(&p);
}

/* A stranger that cannot read the agents' store may know all but the peer_token. */
static void a_peer_with_another_token_is_not_heard(void **state)
{
    trii_rdzv_agent agents[3] = {{.name = "us"}, {.name = "torchrun"}, {.name = "host2"}};
    const trii_rdzv_round round = {.number = 1, .group_size = 3, .agents = agents};
    const trii_peer_frame frames[2] = {
        hello_of(peer_token, 2, round.number),
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_HEARTBEAT, .value = 10000}};
    pair p;
    int fd;

    (void)state;
    pair_begin_silence(&p, LONG_SILENCE_MS, false, NULL, NULL);
    trii_peers_watch_round(p.peers[0], &round);
    CHECK_OK(
        trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, frames, sizeof(frames), trii_deadline_ms(SOON_MS)));
    pair_run(&p, 700);
    assert_int_equal(p.told[0].warning, 0);
    trii_socket_close(fd);
    pair_end(&p);
}

static void a_silent_peer_is_called_once_more_and_then_lost(void **state)
{
    mute m;
    pair p;
    int fd;

    (void)state;
    begin_mute(&p, SILENCE_MS, &m);
    fd = call_as_agent_1(&p);
    pair_run_until(&p, &p.told[0].lost, 1);
    assert_true(m.n_calls >= 2);
    assert_string_equal(p.told[0].why, "host host1 (pid 71) was silent for 1 s: its host answers, "
                                       "so its agent is stopped or frozen");
    trii_socket_close(fd);
    trii_socket_close(m.listener.fd);
    trii_loop_unwatch(&m.listener);
    pair_end(&p);
}

/* Proves the key to who called, which has sent its half; takes all that it says then. */
static void answer_call(int fd, trii_peer_frame *last_out, int *n_out)
{
    trii_peer_reader reader = {0};
    trii_job_key key;
    char byte;

    *n_out = 0;
    CHECK_OK(trii_job_key_load(&key));
    while (trii_socket_recv_all(fd, &byte, 1, trii_deadline_ms(SOON_MS)) == TRI_OK) {
        unsigned char answer[TRII_ANSWER_BYTES];
        size_t used, bytes;
        tri_status status = trii_peer_reader_feed(&reader, &key, &byte, 1, &used, answer, &bytes);

        if (bytes > 0)
            CHECK_OK(trii_socket_send_all(fd, answer, bytes, trii_deadline_ms(SOON_MS)));
        if (status == TRI_INPROGRESS)
            continue;
        CHECK_OK(status);
        *last_out = reader.frame;
        (*n_out)++;
    }
}

/* Its round is over when the other agent answers, who has not heard of the next one yet. */
static void a_peer_that_calls_for_too_long_is_not_lost(void **state)
{
    trii_peer_frame last = {0};
    int listener, fd, n;
    pair p;

    (void)state;
    pair_begin_silence(&p, LONG_SILENCE_MS, false, "key", "key");
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &listener, &p.agents[1].port));
    p.round++;
    pair_next(&p, 0);
    CHECK_OK(trii_socket_wait(listener, TRII_READABLE, trii_deadline_ms(SOON_MS)));
    CHECK_OK(trii_socket_accept(listener, &fd));
    p.round++;
    pair_next(&p, 0);
    answer_call(fd, &last, &n);
    assert_int_equal(n, 2); /* the first is the hello */
    assert_int_equal(last.kind, TRII_PEER_GOODBYE);
    trii_socket_close(fd);
    trii_socket_close(listener);
    pair_end(&p);
}

/* A firewall may forget a connection without a word: then the agent calls again. */
static void a_peer_heard_over_any_connection_lives(void **state)
{
    mute m;
    pair p;
    int fds[16], n = 0;

    (void)state;
    begin_mute(&p, SILENCE_MS, &m);
    while (n < 16) {
        fds[n++] = call_as_agent_1(&p);
        pair_run(&p, SILENCE_MS / 4);
    }
    pair_expect_peace(&p);
    pair_run_until(&p, &p.told[0].lost, 1);
    for (int i = 0; i < n; i++)
        trii_socket_close(fds[i]);
    trii_socket_close(m.listener.fd);
    trii_loop_unwatch(&m.listener);
    pair_end(&p);
}

/* Nobody listens there any more: that is known before the silence is over. */
static void a_second_call_that_is_refused_decides_at_once(void **state)
{
    mute m;
    pair p;
    int fd;

    (void)state;
    begin_mute(&p, LONG_SILENCE_MS, &m);
    fd = call_as_agent_1(&p);
    pair_run_until(&p, &m.n_calls, 1);
    trii_socket_close(m.listener.fd);
    pair_run_until(&p, &p.told[0].lost, 1);
    assert_string_equal(p.told[0].why, "host host1 (pid 71) is gone: its agent ended");
    trii_socket_close(fd);
    pair_end(&p);
}

/* Its queue of connections is full, as if it were cut off. */
static void a_host_that_does_not_answer_the_second_call_is_not_said_to(void **state)
{
    int listener;
    pair p;

    (void)state;
    pair_begin_silence(&p, SILENCE_MS, false, NULL, NULL);
    listener = full_queue_listen(&p.agents[1].port);
    p.round++;
    pair_next(&p, 0);
    CHECK_OK(trii_socket_wait(listener, TRII_READABLE, trii_deadline_ms(SOON_MS)));
    pair_run_until(&p, &p.told[0].lost, 1);
    assert_string_equal(p.told[0].why,
                        "host host1 (pid 71) was silent for 1 s: dead, frozen or cut off");
    trii_socket_close(listener);
    pair_end(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_agent_whose_loop_stands_still_is_not_lost),
    cmocka_unit_test(a_loop_that_stood_still_for_a_moment_is_nothing),
    cmocka_unit_test(progress_that_comes_round_again_is_none),
    cmocka_unit_test(what_came_before_the_round_outlives_the_connection),
    cmocka_unit_test(a_peer_with_another_token_is_not_heard),
    cmocka_unit_test(a_silent_peer_is_called_once_more_and_then_lost),
    cmocka_unit_test(a_peer_that_calls_for_too_long_is_not_lost),
    cmocka_unit_test(a_peer_heard_over_any_connection_lives),
    cmocka_unit_test(a_second_call_that_is_refused_decides_at_once),
    cmocka_unit_test(a_host_that_does_not_answer_the_second_call_is_not_said_to),
};

TEST_MAIN(tests)
