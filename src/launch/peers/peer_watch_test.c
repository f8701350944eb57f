/*
 * peer_watch_test.c - agents that watch each other: what each is told, strangers, and the job
 * key.
 */
/* ctest: program=own */
#include "launch/peers/peers.h"

#include <time.h>

#include "base/compiler.h"
#include "launch/peers/peer_frame.h"
#include "os/clock.h"
#include "os/socket.h"
#include "testing/check.h"
#include "testing/full_queue.h"
#include "testing/no_descriptors.h"
#include "testing/scratch.h"
#include "testing/torn_io.h"

#define SOON_MS 20000
#define SILENCE_MS 1000
#define LONG_SILENCE_MS 6000 /* half of which no machine stands still for */

static const char token[] = "0123456789abcdef";

static trii_peer_frame hello_of(const char *text, int rank, int64_t round)
{
    trii_peer_frame hello = {
        .magic = TRII_PEER_MAGIC, .kind = TRII_PEER_HELLO, .rank = rank, .value = round};

    memcpy(hello.token, text, sizeof(hello.token));
    return hello;
}

/* --- agents in one loop --------------------------------------------------- */

typedef struct told {
    int lost, incompatible, warning; /* how often; the last rank */
    int rank;
    char why[TRII_ERR_BYTES];
} told;

typedef struct pair {
    scratch s;
    trii_loop *loop;     /* of both agents, */
    trii_loop *loops[2]; /* unless a test gives the second one its own */
    trii_peers *peers[2];
    trii_watch watches[2];
    trii_rdzv_agent agents[2];
    told told[2];
    int64_t round;
    int silence_ms;
} pair;

static void take_events(trii_peers *peers, told *t)
{
    trii_peer_event event;

    for (;;) {
        trii_peers_next(peers, &event);
        if (event.kind == TRII_PEER_NOTHING)
            return;
        if (event.kind == TRII_PEER_PREEMPTED)
            fail_msg("a notice of rank %d, %lld ms", event.rank, (long long)event.left_ms);
        assert_in_range(event.rank, 0, event.round->group_size - 1);
        t->lost += event.kind == TRII_PEER_LOST;
        t->incompatible += event.kind == TRII_PEER_INCOMPATIBLE;
        t->warning += event.kind == TRII_PEER_WARNING;
        t->rank = event.rank;
        snprintf(t->why, sizeof(t->why), "%s", event.text);
    }
}

static void first_has_events(trii_watch *watch, unsigned events)
{
    pair *p = TRII_CONTAINER(watch, pair, watches[0]);

    (void)events;
    take_events(p->peers[0], &p->told[0]);
}

static void second_has_events(trii_watch *watch, unsigned events)
{
    pair *p = TRII_CONTAINER(watch, pair, watches[1]);

    (void)events;
    take_events(p->peers[1], &p->told[1]);
}

static void use_key(pair *p, const char *name)
{
    char text[64];
    const char *path;

    if (name == NULL) {
        unsetenv("TRI_JOB_KEY_FILE");
        return;
    }
    snprintf(text, sizeof(text), "a secret of more than 32 characters: %s", name);
    path = scratch_file(&p->s, name, text, strlen(text));
    assert_int_equal(chmod(path, 0600), 0);
    setenv("TRI_JOB_KEY_FILE", path, 1);
}

static void start(pair *p, int i, const char *key)
{
    trii_rdzv_agent *agent = &p->agents[i];

    use_key(p, key);
    CHECK_OK(trii_peers_create(p->loops[i], "127.0.0.1", p->silence_ms, &p->peers[i]));
    CHECK_OK(trii_loop_watch(p->loops[i], &p->watches[i], trii_peers_fd(p->peers[i]), TRII_READABLE,
                             i == 0 ? first_has_events : second_has_events));
    snprintf(agent->host, sizeof(agent->host), "127.0.0.1");
    snprintf(agent->name, sizeof(agent->name), "host%d", i);
    agent->node.pid = 70 + i;
    trii_peers_describe(p->peers[i], agent);
    assert_int_equal(agent->keyed, key != NULL);
}

static void begin_silence(pair *p, int silence_ms, bool two_loops, const char *key0,
                          const char *key1)
{
    memset(p, 0, sizeof(*p));
    p->silence_ms = silence_ms;
    scratch_begin(&p->s);
    CHECK_OK(trii_loop_create(&p->loop));
    p->loops[0] = p->loops[1] = p->loop;
    if (two_loops)
        CHECK_OK(trii_loop_create(&p->loops[1]));
    start(p, 0, key0);
    start(p, 1, key1);
}

static void begin_with(pair *p, bool two_loops, const char *key0, const char *key1)
{
    begin_silence(p, SILENCE_MS, two_loops, key0, key1);
}

static void begin(pair *p, const char *key0, const char *key1)
{
    begin_with(p, false, key0, key1);
}

static void next_round(pair *p, int i)
{
    const trii_rdzv_round round = {
        .number = p->round, .group_rank = i, .group_size = 2, .agents = p->agents};

    trii_peers_watch_round(p->peers[i], &round);
}

static void both_next(pair *p)
{
    p->round++;
    next_round(p, 0);
    next_round(p, 1);
}

static void run_for(pair *p, int ms)
{
    int64_t deadline = trii_deadline_ms(ms);

    while (trii_now_ns() < deadline)
        trii_loop_run_once(p->loop, deadline);
}

static void run_until(pair *p, const int *count, int wanted)
{
    int64_t deadline = trii_deadline_ms(SOON_MS);

    while (*count < wanted && trii_now_ns() < deadline)
        trii_loop_run_once(p->loop, deadline);
    assert_int_equal(*count, wanted);
}

static void end_agent(pair *p, int i, bool in_order)
{
    trii_loop_unwatch(&p->watches[i]);
    trii_peers_destroy(p->peers[i], in_order);
    p->peers[i] = NULL;
}

static void end(pair *p)
{
    for (int i = 0; i < 2; i++)
        end_agent(p, i, false);
    if (p->loops[1] != p->loop)
        trii_loop_destroy(p->loops[1]);
    trii_loop_destroy(p->loop);
    scratch_end(&p->s);
    unsetenv("TRI_JOB_KEY_FILE");
}

static void expect_peace(const pair *p)
{
    for (int i = 0; i < 2; i++) {
        if (p->told[i].lost + p->told[i].incompatible > 0)
            fail_msg("agent %d was told: %s", i, p->told[i].why);
    }
}

static void check_life(const char *key, bool in_order)
{
    pair p;

    begin(&p, key, key);
    both_next(&p);
    run_for(&p, 2 * SILENCE_MS);
    both_next(&p);
    run_for(&p, 500);
    expect_peace(&p);
    end_agent(&p, 1, in_order);
    if (in_order) {
        run_for(&p, 500);
        expect_peace(&p);
    } else {
        run_until(&p, &p.told[0].lost, 1);
        assert_int_equal(p.told[0].rank, 1);
        assert_string_equal(p.told[0].why, "host host1 (pid 71) is gone: its agent ended");
    }
    end(&p);
}

static void a_peer_that_leaves_in_order_is_not_lost(void **state)
{
    (void)state;
    check_life(NULL, true);
}

static void a_peer_that_leaves_without_a_word_is_lost(void **state)
{
    (void)state;
    check_life(NULL, false);
}

static void peers_with_a_key_are_watched_the_same_way(void **state)
{
    (void)state;
    check_life("key", true);
    check_life("key", false);
}

/* However little a connection takes at a time, frames begin where they should. */
static void connections_may_take_a_few_bytes_at_a_time(void **state)
{
    enum { TORN_SILENCE_MS = 2000 };
    pair p;

    (void)state;
    torn = (torn_io){.most = 7, .refuses = 3, .seed = 1};
    begin_silence(&p, TORN_SILENCE_MS, false, NULL, NULL);
    both_next(&p);
    run_for(&p, 2 * TORN_SILENCE_MS);
    expect_peace(&p);
    end(&p);
    torn = (torn_io){0};
}

/* Says what agent 1 says, and hangs up. */
static void pose(pair *p)
{
    const trii_peer_frame hello = hello_of(p->agents[0].token, 1, p->round);
    int fd;

    CHECK_OK(
        trii_socket_connect("127.0.0.1", p->agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, &hello, sizeof(hello), trii_deadline_ms(SOON_MS)));
    trii_socket_close(fd);
    run_for(p, 300);
}

/* Without a key the token is all that a stranger must know; the agent's own connection outlives
 * the stranger's. */
static void no_stranger_announces_a_death(void **state)
{
    static const char *const keys[] = {"key", NULL};
    pair p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(&p, keys[i], keys[i]);
        both_next(&p);
        run_for(&p, 300);
        pose(&p);
        expect_peace(&p);
        end(&p);
    }
}

static void another_key_is_told_and_is_no_death(void **state)
{
    pair p;

    (void)state;
    begin(&p, "one", "two");
    both_next(&p);
    run_until(&p, &p.told[0].incompatible, 1);
    assert_int_equal(p.told[0].lost, 0);
    assert_non_null(strstr(p.told[0].why, "host host1 (pid 71): "));
    assert_non_null(strstr(p.told[0].why, "another job key"));
    end(&p);
}

static void a_key_on_one_side_only_is_told(void **state)
{
    pair p;

    (void)state;
    begin(&p, "key", NULL);
    both_next(&p);
    run_until(&p, &p.told[0].incompatible, 1);
    run_until(&p, &p.told[1].incompatible, 1);
    for (int i = 0; i < 2; i++) /* one may print what the other has found */
        assert_string_equal(p.told[i].why, "host host1 (pid 71) has no job key (TRI_JOB_KEY_FILE), "
                                           "but host host0 (pid 70) has one");
    end(&p);
}

/* An agent in a later round does not take part in this one, and lives. */
static void a_peer_in_a_later_round_is_not_lost(void **state)
{
    pair p;

    (void)state;
    begin(&p, NULL, NULL);
    p.round = 2;
    next_round(&p, 0);
    p.round = 1;
    next_round(&p, 1);
    run_for(&p, 500);
    expect_peace(&p);
    p.round = 2;
    next_round(&p, 1);
    run_for(&p, 500);
    expect_peace(&p);
    end(&p);
}

/* However many connect and say nothing. */
static void strangers_keep_nobody_out(void **state)
{
    enum { N = 300 };
    int fds[N];
    pair p;

    (void)state;
    begin(&p, NULL, NULL);
    for (int i = 0; i < N; i++) {
        CHECK_OK(trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS),
                                     false, &fds[i]));
        trii_loop_run_once(p.loop, trii_now_ns());
    }
    both_next(&p);
    run_for(&p, 2 * SILENCE_MS);
    expect_peace(&p);
    for (int i = 0; i < N; i++)
        trii_socket_close(fds[i]);
    end(&p);
}

static int64_t own_cpu_ms(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* The listener stays ready while nobody can be let in; an agent that asked all the time would use a
 * processor for itself, and one that calls after that is let in. */
static void without_descriptors_nobody_is_asked_without_end(void **state)
{
    int64_t before;
    int fd;
    pair p;

    (void)state;
    begin(&p, NULL, NULL);
    fd = descriptors_end_and_call(p.agents[0].port);
    before = own_cpu_ms();
    run_for(&p, 1000);
    assert_in_range(own_cpu_ms() - before, 0, 300);
    descriptors_allow();
    both_next(&p);
    run_for(&p, 2 * SILENCE_MS);
    expect_peace(&p);
    trii_socket_close(fd);
    end(&p);
}

/* An agent that takes part in round after round, and where nobody answers. */
static void a_peer_that_is_never_reached_is_refused_at_last(void **state)
{
    int fd, port;
    pair p;

    (void)state;
    begin(&p, NULL, NULL);
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &fd, &port));
    trii_socket_close(fd);
    p.agents[0].port = port;
    for (int i = 1; i <= 2; i++) {
        p.round++;
        next_round(&p, 1);
        run_until(&p, &p.told[1].lost, i);
        assert_string_equal(p.told[1].why,
                            "host host0 (pid 70) is gone: its agent does not answer");
    }
    p.round++;
    next_round(&p, 1);
    run_until(&p, &p.told[1].incompatible, 1);
    assert_int_equal(p.told[1].lost, 2);
    assert_non_null(strstr(p.told[1].why,
                           "host host0 (pid 70) takes part in the job, but host host1 (pid 71) "
                           "cannot reach its agent: connect"));
    end(&p);
}

static void higher_next_later(pair *p)
{
    p->round++;
    next_round(p, 0);
    run_for(p, TRII_PEER_HEARTBEAT_MS);
    next_round(p, 1);
}

/* Each judgement ends a round for both: if the lower rank were first, it would be the one whose
 * count of rounds is full first, and both would end. */
static void of_two_that_do_not_reach_each_other_the_higher_judges_first(void **state)
{
    int listener, fd, port;
    pair p;

    (void)state;
    begin(&p, NULL, NULL);
    listener = full_queue_listen(&port);
    CHECK_OK(trii_socket_connect("127.0.0.1", port, trii_deadline_ms(SOON_MS), false, &fd));
    p.agents[0].port = p.agents[1].port = port;
    for (int i = 1; i <= 2; i++) {
        higher_next_later(&p);
        run_until(&p, &p.told[1].lost, i);
        assert_int_equal(p.told[0].lost, 0);
    }
    higher_next_later(&p);
    run_until(&p, &p.told[1].incompatible, 1);
    assert_int_equal(p.told[0].lost + p.told[0].incompatible, 0);
    trii_socket_close(fd);
    trii_socket_close(listener);
    end(&p);
}

/* --- silence -------------------------------------------------------------- */

/* As while it waits for a disk: it is heard for as long as that takes. */
static void an_agent_whose_loop_stands_still_is_not_lost(void **state)
{
    pair p;

    (void)state;
    begin_with(&p, true, NULL, NULL);
    higher_next_later(&p);
    run_until(&p, &p.told[0].warning, 1);
    assert_int_equal(p.told[0].lost + p.told[0].incompatible, 0);
    assert_non_null(strstr(p.told[0].why, "host host1 (pid 71) is alive, but its agent has been "
                                          "blocked for 10 s: check whether a disk"));
    end(&p);
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
    begin_silence(p, silence_ms, false, NULL, NULL);
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &fd, &m->port));
    CHECK_OK(trii_loop_watch(p->loop, &m->listener, fd, TRII_READABLE, mute_called));
    p->agents[1].port = m->port;
    p->round++;
    next_round(p, 0);
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
    begin_silence(&p, LONG_SILENCE_MS, false, NULL, NULL);
    trii_peers_watch_round(p.peers[0], &round);
    frames[0] = hello_of(p.agents[0].token, 2, round.number);
    CHECK_OK(
        trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, frames, sizeof(frames), trii_deadline_ms(SOON_MS)));
    run_for(&p, 700);
    assert_int_equal(p.told[0].warning, 0);
    frames[1].value = 10000;
    CHECK_OK(trii_socket_send_all(fd, &frames[1], sizeof(frames[1]), trii_deadline_ms(SOON_MS)));
    run_until(&p, &p.told[0].warning, 1);
    assert_non_null(strstr(p.told[0].why, "host host2 (pid 0) is alive, but its agent"));
    trii_socket_close(fd);
    end(&p);
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
    trii_peer_frame frames[] = {hello_of(token, 2, round.number), heartbeat_of(0, own, 0),
                                heartbeat_of(2, 7, 50), heartbeat_of(2, 7, 0),
                                heartbeat_of(1, 5, 60)};
    int64_t at;
    pair p;
    int fd;

    (void)state;
    begin_silence(&p, LONG_SILENCE_MS, false, NULL, NULL);
    (void)trii_peers_progress(p.peers[0], own);
    trii_peers_watch_round(p.peers[0], &round);
    memcpy(frames[0].token, p.agents[0].token, sizeof(frames[0].token));
    frames[4].value = 10000; /* its warning says that all have come */
    CHECK_OK(
        trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, frames, sizeof(frames), trii_deadline_ms(SOON_MS)));
    run_until(&p, &p.told[0].warning, 1);
    at = trii_peers_progress(p.peers[0], own);
    assert_in_range((now - at) / TRII_NS_PER_S, 30, 50);
    trii_socket_close(fd);
    end(&p);
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
    begin_silence(&p, LONG_SILENCE_MS, false, NULL, NULL);
    frames[0] = hello_of(p.agents[0].token, 2, round.number);
    CHECK_OK(
        trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, frames, sizeof(frames), trii_deadline_ms(SOON_MS)));
    run_for(&p, 100);
    CHECK_OK(trii_socket_send_all(fd, &goodbye, sizeof(goodbye), trii_deadline_ms(SOON_MS)));
    trii_socket_close_linger(fd, 0); /* a reset, which nobody can miss */
    run_for(&p, 100);
    trii_loop_unwatch(&p.watches[0]);
    trii_peers_watch_round(p.peers[0], &round);
    while (event.kind != TRII_PEER_NEWS_CAME) {
        trii_loop_run_once(p.loop, trii_deadline_ms(10));
        trii_peers_next(p.peers[0], &event);
        assert_int_not_equal(event.kind, TRII_PEER_LOST);
    }
    assert_true(event.news.over);
    end(&p);
}

/* A stranger that cannot read the agents' store may know all but the token. */
static void a_peer_with_another_token_is_not_heard(void **state)
{
    trii_rdzv_agent agents[3] = {{.name = "us"}, {.name = "torchrun"}, {.name = "host2"}};
    const trii_rdzv_round round = {.number = 1, .group_size = 3, .agents = agents};
    const trii_peer_frame frames[2] = {
        hello_of(token, 2, round.number),
        {.magic = TRII_PEER_MAGIC, .kind = TRII_PEER_HEARTBEAT, .value = 10000}};
    pair p;
    int fd;

    (void)state;
    begin_silence(&p, LONG_SILENCE_MS, false, NULL, NULL);
    trii_peers_watch_round(p.peers[0], &round);
    CHECK_OK(
        trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS), false, &fd));
    CHECK_OK(trii_socket_send_all(fd, frames, sizeof(frames), trii_deadline_ms(SOON_MS)));
    run_for(&p, 700);
    assert_int_equal(p.told[0].warning, 0);
    trii_socket_close(fd);
    end(&p);
}

static void a_silent_peer_is_called_once_more_and_then_lost(void **state)
{
    mute m;
    pair p;
    int fd;

    (void)state;
    begin_mute(&p, SILENCE_MS, &m);
    fd = call_as_agent_1(&p);
    run_until(&p, &p.told[0].lost, 1);
    assert_true(m.n_calls >= 2);
    assert_string_equal(p.told[0].why, "host host1 (pid 71) was silent for 1 s: its host answers, "
                                       "so its agent is stopped or frozen");
    trii_socket_close(fd);
    trii_socket_close(m.listener.fd);
    trii_loop_unwatch(&m.listener);
    end(&p);
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
    begin_silence(&p, LONG_SILENCE_MS, false, "key", "key");
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &listener, &p.agents[1].port));
    p.round++;
    next_round(&p, 0);
    CHECK_OK(trii_socket_wait(listener, TRII_READABLE, trii_deadline_ms(SOON_MS)));
    CHECK_OK(trii_socket_accept(listener, &fd));
    p.round++;
    next_round(&p, 0);
    answer_call(fd, &last, &n);
    assert_int_equal(n, 2); /* the first is the hello */
    assert_int_equal(last.kind, TRII_PEER_GOODBYE);
    trii_socket_close(fd);
    trii_socket_close(listener);
    end(&p);
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
        run_for(&p, SILENCE_MS / 4);
    }
    expect_peace(&p);
    run_until(&p, &p.told[0].lost, 1);
    for (int i = 0; i < n; i++)
        trii_socket_close(fds[i]);
    trii_socket_close(m.listener.fd);
    trii_loop_unwatch(&m.listener);
    end(&p);
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
    run_until(&p, &m.n_calls, 1);
    trii_socket_close(m.listener.fd);
    run_until(&p, &p.told[0].lost, 1);
    assert_string_equal(p.told[0].why, "host host1 (pid 71) is gone: its agent ended");
    trii_socket_close(fd);
    end(&p);
}

/* Its queue of connections is full, as if it were cut off. */
static void a_host_that_does_not_answer_the_second_call_is_not_said_to(void **state)
{
    int listener;
    pair p;

    (void)state;
    begin_silence(&p, SILENCE_MS, false, NULL, NULL);
    listener = full_queue_listen(&p.agents[1].port);
    p.round++;
    next_round(&p, 0);
    CHECK_OK(trii_socket_wait(listener, TRII_READABLE, trii_deadline_ms(SOON_MS)));
    run_until(&p, &p.told[0].lost, 1);
    assert_string_equal(p.told[0].why,
                        "host host1 (pid 71) was silent for 1 s: dead, frozen or cut off");
    trii_socket_close(listener);
    end(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_peer_that_leaves_in_order_is_not_lost),
    cmocka_unit_test(a_peer_that_leaves_without_a_word_is_lost),
    cmocka_unit_test(peers_with_a_key_are_watched_the_same_way),
    cmocka_unit_test(connections_may_take_a_few_bytes_at_a_time),
    cmocka_unit_test(no_stranger_announces_a_death),
    cmocka_unit_test(another_key_is_told_and_is_no_death),
    cmocka_unit_test(a_key_on_one_side_only_is_told),
    cmocka_unit_test(a_peer_in_a_later_round_is_not_lost),
    cmocka_unit_test(strangers_keep_nobody_out),
    cmocka_unit_test(without_descriptors_nobody_is_asked_without_end),
    cmocka_unit_test(a_peer_that_is_never_reached_is_refused_at_last),
    cmocka_unit_test(of_two_that_do_not_reach_each_other_the_higher_judges_first),
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
