/*
 * peer_dial_test.c - a dial whose name takes for ever to resolve keeps nobody from ending.
 */
/* ctest: program=own */
#include "launch/peers/peers.h"
#include "os/clock.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/fake_resolver.h"

static trii_mutex mutex;
static trii_cond changed;
static bool asked, released;

static void resolver_asked(void)
{
    trii_mutex_lock(&mutex);
    asked = true;
    trii_cond_broadcast(&changed);
    while (!released)
        trii_cond_wait(&changed, &mutex);
    trii_mutex_unlock(&mutex);
}

/* Agent 0 of two, whose other one has a name that does not resolve. */
static void begin(trii_loop **loop_out, trii_peers **peers_out)
{
    trii_rdzv_agent agents[2] = {{.name = "host0"}, {.name = "host1", .port = 1, .token = "t"}};
    const trii_rdzv_round round = {.number = 1, .group_size = 2, .agents = agents};

    trii_mutex_init(&mutex);
    trii_cond_init(&changed);
    asked = released = false;
    snprintf(agents[1].host, sizeof(agents[1].host), "mute.example");
    CHECK_OK(trii_loop_create(loop_out));
    CHECK_OK(trii_peers_create(*loop_out, NULL, 1000, peers_out));
    trii_peers_watch_round(*peers_out, &round);
    trii_mutex_lock(&mutex);
    while (!asked)
        trii_cond_wait(&changed, &mutex);
    trii_mutex_unlock(&mutex);
}

static void release(void)
{
    trii_mutex_lock(&mutex);
    released = true;
    trii_cond_broadcast(&changed);
    trii_mutex_unlock(&mutex);
}

static void a_dial_that_fails_is_no_death_before_the_silence_is_over(void **state)
{
    int64_t start_ns = trii_now_ns();
    trii_peer_event event = {0};
    trii_loop *loop;
    trii_peers *peers;

    (void)state;
    begin(&loop, &peers);
    release();
    for (; event.kind == TRII_PEER_NOTHING; trii_peers_next(peers, &event))
        CHECK_OK(trii_socket_wait(trii_peers_fd(peers), TRII_READABLE, trii_deadline_ms(20000)));
    assert_int_equal(event.kind, TRII_PEER_LOST);
    assert_string_equal(event.text, "host host1 (pid 0) is gone: its agent does not answer");
    assert_true(trii_now_ns() - start_ns >= 1000 * TRII_NS_PER_MS);
    trii_peers_destroy(peers, true);
    trii_loop_destroy(loop);
}

static void a_name_that_does_not_resolve_keeps_nobody(void **state)
{
    trii_loop *loop;
    trii_peers *peers;

    (void)state;
    begin(&loop, &peers);
    trii_peers_destroy(peers, true);
    release(); /* the thread ends by itself */
    trii_loop_destroy(loop);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_dial_that_fails_is_no_death_before_the_silence_is_over),
    cmocka_unit_test(a_name_that_does_not_resolve_keeps_nobody),
};

TEST_MAIN(tests)
