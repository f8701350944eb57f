/*
 * peer_pair.h - two agents that watch each other, in one loop or in two. Tests only.
 */
#ifndef TEST_PEER_PAIR_H
#define TEST_PEER_PAIR_H

#include "base/compiler.h"
#include "launch/peers/peer_frame.h"
#include "launch/peers/peers.h"
#include "os/clock.h"
#include "os/socket.h"
#include "testing/check.h"
#include "testing/scratch.h"

enum {
    SOON_MS = 20000,
    SILENCE_MS = 1000,
    LONG_SILENCE_MS = 6000 /* half of which no machine stands still for */
};

static const char peer_token[] = "0123456789abcdef";

static inline trii_peer_frame hello_of(const char *text, int rank, int64_t round)
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

static inline void take_events(trii_peers *peers, told *t)
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

static inline void first_has_events(trii_watch *watch, unsigned events)
{
    pair *p = TRII_CONTAINER(watch, pair, watches[0]);

    (void)events;
    take_events(p->peers[0], &p->told[0]);
}

static inline void second_has_events(trii_watch *watch, unsigned events)
{
    pair *p = TRII_CONTAINER(watch, pair, watches[1]);

    (void)events;
    take_events(p->peers[1], &p->told[1]);
}

static inline void pair_use_key(pair *p, const char *name)
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

static inline void pair_start(pair *p, int i, const char *key)
{
    trii_rdzv_agent *agent = &p->agents[i];

    pair_use_key(p, key);
    CHECK_OK(trii_peers_create(p->loops[i], "127.0.0.1", p->silence_ms, &p->peers[i]));
    CHECK_OK(trii_loop_watch(p->loops[i], &p->watches[i], trii_peers_fd(p->peers[i]), TRII_READABLE,
                             i == 0 ? first_has_events : second_has_events));
    snprintf(agent->host, sizeof(agent->host), "127.0.0.1");
    snprintf(agent->name, sizeof(agent->name), "host%d", i);
    agent->node.pid = 70 + i;
    trii_peers_describe(p->peers[i], agent);
    assert_int_equal(agent->keyed, key != NULL);
}

static inline void pair_begin_silence(pair *p, int silence_ms, bool two_loops, const char *key0,
                                      const char *key1)
{
    memset(p, 0, sizeof(*p));
    p->silence_ms = silence_ms;
    scratch_begin(&p->s);
    CHECK_OK(trii_loop_create(&p->loop));
    p->loops[0] = p->loops[1] = p->loop;
    if (two_loops)
        CHECK_OK(trii_loop_create(&p->loops[1]));
    pair_start(p, 0, key0);
    pair_start(p, 1, key1);
}

static inline void pair_begin_with(pair *p, bool two_loops, const char *key0, const char *key1)
{
    pair_begin_silence(p, SILENCE_MS, two_loops, key0, key1);
}

static inline void pair_begin(pair *p, const char *key0, const char *key1)
{
    pair_begin_with(p, false, key0, key1);
}

static inline void pair_next(pair *p, int i)
{
    const trii_rdzv_round round = {
        .number = p->round, .group_rank = i, .group_size = 2, .agents = p->agents};

    trii_peers_watch_round(p->peers[i], &round);
}

static inline void pair_both_next(pair *p)
{
    p->round++;
    pair_next(p, 0);
    pair_next(p, 1);
}

static inline void pair_run(pair *p, int ms)
{
    int64_t deadline = trii_deadline_ms(ms);

    while (trii_now_ns() < deadline)
        trii_loop_run_once(p->loop, deadline);
}

static inline void pair_next_later(pair *p)
{
    p->round++;
    pair_next(p, 0);
    pair_run(p, TRII_PEER_HEARTBEAT_MS);
    pair_next(p, 1);
}

static inline void pair_run_until(pair *p, const int *count, int wanted)
{
    int64_t deadline = trii_deadline_ms(SOON_MS);

    while (*count < wanted && trii_now_ns() < deadline)
        trii_loop_run_once(p->loop, deadline);
    assert_int_equal(*count, wanted);
}

static inline void pair_end_agent(pair *p, int i, bool in_order)
{
    trii_loop_unwatch(&p->watches[i]);
    trii_peers_destroy(p->peers[i], in_order);
    p->peers[i] = NULL;
}

static inline void pair_end(pair *p)
{
    for (int i = 0; i < 2; i++)
        pair_end_agent(p, i, false);
    if (p->loops[1] != p->loop)
        trii_loop_destroy(p->loops[1]);
    trii_loop_destroy(p->loop);
    scratch_end(&p->s);
    unsetenv("TRI_JOB_KEY_FILE");
}

static inline void pair_expect_peace(const pair *p)
{
    for (int i = 0; i < 2; i++) {
        if (p->told[i].lost + p->told[i].incompatible > 0)
            fail_msg("agent %d was told: %s", i, p->told[i].why);
    }
}

#endif
