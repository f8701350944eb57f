/* peers_test.c - agents of one loop: what one is told reaches all, also those that it does not
 * know. */
#include <string.h>

#include "launch/peers.h"
#include "os/clock.h"
#include "testing/check.h"

enum { N = 2 * TRII_PEER_NEIGHBOURS + 6, TOLD = 3 };

typedef struct agent {
    trii_peers *peers;
    int lost, noticed;
    int rank; /* whose host will be taken away */
    int64_t left_ms;
    char host[64];
} agent;

static void lost(void *arg, const trii_rdzv_round *round, int rank, const char *why)
{
    (void)round;
    (void)rank;
    (void)why;
    ((agent *)arg)->lost++;
}

static void noticed(void *arg, int rank, const char *host, int64_t left_ms)
{
    agent *a = arg;

    a->noticed++;
    a->rank = rank;
    a->left_ms = left_ms;
    snprintf(a->host, sizeof(a->host), "%s", host);
}

static void refused(void *arg, const char *why)
{
    (void)arg;
    fail_msg("%s", why);
}

/* How many of the others have heard of it. */
static int reached(const agent *agents)
{
    int n = 0;

    for (int i = 0; i < N; i++)
        n += agents[i].noticed > 0;
    return n;
}

static void a_notice_reaches_every_host(void **state)
{
    static agent agents[N];
    static trii_rdzv_agent list[N];
    trii_rdzv_round round = {.number = 1, .group_size = N, .agents = list};
    trii_loop *loop = NULL;
    int given = 0;

    (void)state;
    CHECK_OK(trii_loop_create(&loop));
    for (int i = 0; i < N; i++) {
        trii_peers_events events = {
            .lost = lost, .refused = refused, .noticed = noticed, .arg = &agents[i]};

        CHECK_OK(trii_peers_create(loop, "127.0.0.1", &events, &agents[i].peers));
        list[i].port = trii_peers_port(agents[i].peers);
        snprintf(list[i].host, sizeof(list[i].host), "127.0.0.1");
        snprintf(list[i].token, sizeof(list[i].token), "%s", trii_peers_token(agents[i].peers));
        snprintf(list[i].name, sizeof(list[i].name), "host%d", i);
    }
    for (int i = 0; i < N; i++) {
        round.group_rank = i;
        trii_peers_round(agents[i].peers, &round);
    }
    /* They are still calling each other: until all are connected a notice may not reach all. The
     * deadline of the test ends it. */
    for (; reached(agents) < N - 1; given++) {
        trii_peers_notice(agents[TOLD].peers, 1500);
        trii_loop_run_once(loop, trii_deadline_ms(10));
    }
    assert_int_equal(agents[TOLD].noticed, 0);
    for (int i = 0; i < N; i++) {
        assert_true(agents[i].noticed <= given);
        if (i == TOLD)
            continue;
        assert_int_equal(agents[i].rank, TOLD);
        assert_int_equal(agents[i].left_ms, 1500);
        assert_string_equal(agents[i].host, "host3");
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(agents[i].lost, 0);
        trii_peers_destroy(agents[i].peers, true);
    }
    trii_loop_destroy(loop);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_notice_reaches_every_host),
};

TEST_MAIN(tests)
