/*
 * peer_watch_test.c - agents that watch each other: what each is told, strangers, and the job key.
 * Those that are silent are in peer_silence_test.c.
 */
/* ctest: program=own */
#include <time.h>

#include "testing/full_queue.h"
#include "testing/no_descriptors.h"
#include "testing/peer_pair.h"
#include "testing/torn_io.h"

static void check_life(const char *key, bool in_order)
{
    pair p;

    pair_begin(&p, key, key);
    pair_both_next(&p);
    pair_run(&p, 2 * SILENCE_MS);
    pair_both_next(&p);
    pair_run(&p, 500);
    pair_expect_peace(&p);
    pair_end_agent(&p, 1, in_order);
    if (in_order) {
        pair_run(&p, 500);
        pair_expect_peace(&p);
    } else {
        pair_run_until(&p, &p.told[0].lost, 1);
        assert_int_equal(p.told[0].rank, 1);
        assert_string_equal(p.told[0].why, "host host1 (pid 71) is gone: its agent ended");
    }
    pair_end(&p);
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
    pair_begin_silence(&p, TORN_SILENCE_MS, false, NULL, NULL);
    pair_both_next(&p);
    pair_run(&p, 2 * TORN_SILENCE_MS);
    pair_expect_peace(&p);
    pair_end(&p);
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
    pair_run(p, 300);
}

/* Without a key the peer_token is all that a stranger must know; the agent's own connection
 * outlives the stranger's. */
static void no_stranger_announces_a_death(void **state)
{
    static const char *const keys[] = {"key", NULL};
    pair p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        pair_begin(&p, keys[i], keys[i]);
        pair_both_next(&p);
        pair_run(&p, 300);
        pose(&p);
        pair_expect_peace(&p);
        pair_end(&p);
    }
}

static void another_key_is_told_and_is_no_death(void **state)
{
    pair p;

    (void)state;
    pair_begin(&p, "one", "two");
    pair_both_next(&p);
    pair_run_until(&p, &p.told[0].incompatible, 1);
    assert_int_equal(p.told[0].lost, 0);
    assert_non_null(strstr(p.told[0].why, "host host1 (pid 71): "));
    assert_non_null(strstr(p.told[0].why, "another job key"));
    pair_end(&p);
}

static void a_key_on_one_side_only_is_told(void **state)
{
    pair p;

    (void)state;
    pair_begin(&p, "key", NULL);
    pair_both_next(&p);
    pair_run_until(&p, &p.told[0].incompatible, 1);
    pair_run_until(&p, &p.told[1].incompatible, 1);
    for (int i = 0; i < 2; i++) /* one may print what the other has found */
        assert_string_equal(p.told[i].why, "host host1 (pid 71) has no job key (TRI_JOB_KEY_FILE), "
                                           "but host host0 (pid 70) has one");
    pair_end(&p);
}

/* An agent in a later round does not take part in this one, and lives. */
static void a_peer_in_a_later_round_is_not_lost(void **state)
{
    pair p;

    (void)state;
    pair_begin(&p, NULL, NULL);
    p.round = 2;
    pair_next(&p, 0);
    p.round = 1;
    pair_next(&p, 1);
    pair_run(&p, 500);
    pair_expect_peace(&p);
    p.round = 2;
    pair_next(&p, 1);
    pair_run(&p, 500);
    pair_expect_peace(&p);
    pair_end(&p);
}

/* However many connect and say nothing. */
static void strangers_keep_nobody_out(void **state)
{
    enum { N = 300 };
    int fds[N];
    pair p;

    (void)state;
    pair_begin(&p, NULL, NULL);
    for (int i = 0; i < N; i++) {
        CHECK_OK(trii_socket_connect("127.0.0.1", p.agents[0].port, trii_deadline_ms(SOON_MS),
                                     false, &fds[i]));
        trii_loop_run_once(p.loop, trii_now_ns());
    }
    pair_both_next(&p);
    pair_run(&p, 2 * SILENCE_MS);
    pair_expect_peace(&p);
    for (int i = 0; i < N; i++)
        trii_socket_close(fds[i]);
    pair_end(&p);
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
    pair_begin(&p, NULL, NULL);
    fd = descriptors_end_and_call(p.agents[0].port);
    before = own_cpu_ms();
    pair_run(&p, 1000);
    assert_in_range(own_cpu_ms() - before, 0, 300);
    descriptors_allow();
    pair_both_next(&p);
    pair_run(&p, 2 * SILENCE_MS);
    pair_expect_peace(&p);
    trii_socket_close(fd);
    pair_end(&p);
}

/* An agent that takes part in round after round, and where nobody answers. */
static void a_peer_that_is_never_reached_is_refused_at_last(void **state)
{
    int fd, port;
    pair p;

    (void)state;
    pair_begin(&p, NULL, NULL);
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &fd, &port));
    trii_socket_close(fd);
    p.agents[0].port = port;
    for (int i = 1; i <= 2; i++) {
        p.round++;
        pair_next(&p, 1);
        pair_run_until(&p, &p.told[1].lost, i);
        assert_string_equal(p.told[1].why,
                            "host host0 (pid 70) is gone: its agent does not answer");
    }
    p.round++;
    pair_next(&p, 1);
    pair_run_until(&p, &p.told[1].incompatible, 1);
    assert_int_equal(p.told[1].lost, 2);
    assert_non_null(strstr(p.told[1].why,
                           "host host0 (pid 70) takes part in the job, but host host1 (pid 71) "
                           "cannot reach its agent: connect"));
    pair_end(&p);
}

/* Each judgement ends a round for both: if the lower rank were first, it would be the one whose
 * count of rounds is full first, and both would end. */
static void of_two_that_do_not_reach_each_other_the_higher_judges_first(void **state)
{
    int listener, fd, port;
    pair p;

    (void)state;
    pair_begin(&p, NULL, NULL);
    listener = full_queue_listen(&port);
    CHECK_OK(trii_socket_connect("127.0.0.1", port, trii_deadline_ms(SOON_MS), false, &fd));
    p.agents[0].port = p.agents[1].port = port;
    for (int i = 1; i <= 2; i++) {
        pair_next_later(&p);
        pair_run_until(&p, &p.told[1].lost, i);
        assert_int_equal(p.told[0].lost, 0);
    }
    pair_next_later(&p);
    pair_run_until(&p, &p.told[1].incompatible, 1);
    assert_int_equal(p.told[0].lost + p.told[0].incompatible, 0);
    trii_socket_close(fd);
    trii_socket_close(listener);
    pair_end(&p);
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
};

TEST_MAIN(tests)
