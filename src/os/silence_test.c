/*
 * silence_test.c - when a host is silent, from what its system says about a connection.
 */
#include "testing/check.h"

#include "os/clock.h"
#include "os/socket.h"

#define MS TRII_NS_PER_MS
#define SILENCE (1000 * MS)

/* Looks every 100 ms from `from` to `to`, in ms; the ms at which the host is silent, or -1.
 * acks_end: acknowledgements come until then. */
static int64_t look(trii_socket_health health, int64_t from, int64_t to, int64_t acks_end)
{
    int64_t unacked_ns = 0;

    for (int64_t now = from; now <= to; now += 100) {
        health.last_ack_ms = now < acks_end ? 10 : now - acks_end;
        if (trii_socket_is_silent(&health, now * MS, SILENCE, &unacked_ns))
            return now;
    }
    return -1;
}

static void a_host_that_acknowledges_nothing_is_silent(void **state)
{
    const trii_socket_health owed = {.owed = true};
    int64_t unacked_ns;

    (void)state;
    assert_int_equal(look(owed, 5000, 9000, 0), 6000); /* the first look begins the time */
    assert_int_equal(look(owed, 5000, 9000, 7000), 8000);
    assert_int_equal(look(owed, 5000, 9000, 99999), -1);
    unacked_ns = 0;
    for (int64_t now = 5000; now < 99999999; now = now * 3 / 2)
        assert_false(trii_socket_is_silent(&owed, now * MS, 0, &unacked_ns)); /* 0: for ever */
}

static void a_host_that_owes_nothing_may_be_quiet(void **state)
{
    trii_socket_health health = {.owed = true, .last_ack_ms = 5000};
    int64_t unacked_ns = 0;

    (void)state;
    assert_int_equal(look((trii_socket_health){0}, 5000, 9000, 0), -1);
    /* time before the last acknowledgement does not count */
    assert_false(trii_socket_is_silent(&health, 6000 * MS, SILENCE, &unacked_ns));
    health.owed = false;
    assert_false(trii_socket_is_silent(&health, 6500 * MS, SILENCE, &unacked_ns));
    health.owed = true;
    assert_false(trii_socket_is_silent(&health, 7100 * MS, SILENCE, &unacked_ns));
    assert_true(trii_socket_is_silent(&health, 8100 * MS, SILENCE, &unacked_ns));
}

/* A stopped process, or one that computes: its buffers are full, but its host answers. */
static void a_full_peer_is_not_silent_while_it_answers(void **state)
{
    const trii_socket_health full = {.owed = true, .full = true, .unanswered_probes = 1};
    const trii_socket_health unanswered = {.owed = true, .full = true, .unanswered_probes = 2};

    (void)state;
    assert_int_equal(look(full, 5000, 99000, 0), -1);
    assert_int_equal(look(unanswered, 5000, 99000, 0), 6000);
}

/* Whether the default lasts through an outage that begins when a packet has just been sent:
 * `rto_ms` and then twice as much pass between two attempts, and the first after the outage is
 * answered. */
static bool outlives(int64_t outage_ms, int64_t rto_ms)
{
    trii_socket_health health = {.owed = true};
    int64_t unacked_ns = 0, answer_ms = 0;

    for (int64_t pause = rto_ms; answer_ms < outage_ms; pause *= 2)
        answer_ms += pause;
    for (int64_t ms = 1; ms < answer_ms; ms += 100) {
        health.last_ack_ms = ms;
        if (trii_socket_is_silent(&health, (5000 + ms) * MS, TRII_SILENCE_MS * MS, &unacked_ns))
            return false;
    }
    return true;
}

static void a_network_may_take_ten_seconds_to_repair_itself(void **state)
{
    (void)state;
    for (int64_t rto_ms = 200; rto_ms <= 400; rto_ms += 10)
        assert_true(outlives(10000, rto_ms));
    assert_false(outlives(60000, 200));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_host_that_acknowledges_nothing_is_silent),
    cmocka_unit_test(a_host_that_owes_nothing_may_be_quiet),
    cmocka_unit_test(a_full_peer_is_not_silent_while_it_answers),
    cmocka_unit_test(a_network_may_take_ten_seconds_to_repair_itself),
};

TEST_MAIN(tests)
