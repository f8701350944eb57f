/*
 * agent_state_test.c - the tables of states: what they allow, and that every way leads to an end.
 */
/* ctest: threads=none */
#include "launch/agent_state.h"

#include "testing/check.h"

/* The states that can be reached from one, it included, as bits. */
static unsigned reach_from(trii_agent_state from)
{
    unsigned found = 1u << from;

    for (int pass = 0; pass < TRII_AGENT_STATES; pass++) {
        for (trii_agent_state s = 0; s < TRII_AGENT_STATES; s++) {
            for (trii_agent_state t = 0; (found >> s & 1) != 0 && t < TRII_AGENT_STATES; t++) {
                if (trii_agent_state_may_follow(s, t))
                    found |= 1u << t;
            }
        }
    }
    return found;
}

static unsigned reach_hosts_from(trii_hosts_state from)
{
    unsigned found = 1u << from;

    for (int pass = 0; pass < TRII_HOSTS_STATES; pass++) {
        for (trii_hosts_state s = 0; s < TRII_HOSTS_STATES; s++) {
            for (trii_hosts_state t = 0; (found >> s & 1) != 0 && t < TRII_HOSTS_STATES; t++) {
                if (trii_hosts_state_may_follow(s, t))
                    found |= 1u << t;
            }
        }
    }
    return found;
}

static void every_state_is_reached_and_has_a_name(void **state)
{
    (void)state;
    assert_int_equal(reach_from(TRII_AGENT_OPENING), (1u << TRII_AGENT_STATES) - 1);
    assert_int_equal(reach_hosts_from(TRII_HOSTS_OUTSIDE), (1u << TRII_HOSTS_STATES) - 1);
    for (trii_agent_state s = 0; s < TRII_AGENT_STATES; s++)
        assert_true(trii_agent_state_name(s)[0] != '\0');
}

static void every_way_leads_to_the_end(void **state)
{
    (void)state;
    for (trii_agent_state s = 0; s < TRII_AGENT_STATES; s++)
        assert_true((reach_from(s) >> TRII_AGENT_CLOSED & 1) != 0);
    for (trii_hosts_state s = 0; s < TRII_HOSTS_STATES; s++)
        assert_true((reach_hosts_from(s) >> TRII_HOSTS_LEFT & 1) != 0);
}

static void nothing_follows_the_end(void **state)
{
    (void)state;
    assert_int_equal(reach_from(TRII_AGENT_CLOSED), 1u << TRII_AGENT_CLOSED);
    assert_int_equal(reach_hosts_from(TRII_HOSTS_LEFT), 1u << TRII_HOSTS_LEFT);
    for (trii_agent_state s = TRII_AGENT_FLUSHING; s < TRII_AGENT_STATES; s++)
        assert_true((reach_from(s) >> TRII_AGENT_RUNNING & 1) == 0);
}

/* Workers are started only where none of an earlier attempt is left, and nobody forgets to stop
 * them: the only ways out of an attempt are a start that failed, and STOPPED. */
static void an_attempt_begins_and_ends_with_no_process(void **state)
{
    (void)state;
    for (trii_agent_state from = 0; from < TRII_AGENT_STATES; from++) {
        for (trii_agent_state to = 0; to < TRII_AGENT_STATES; to++) {
            bool inside = trii_agent_state_is_attempt(from),
                 enters = trii_agent_state_is_attempt(to);

            if (!trii_agent_state_may_follow(from, to))
                continue;
            if (!inside && enters)
                assert_int_equal(to, TRII_AGENT_RUNNING);
            if (inside && !enters)
                assert_true(to == TRII_AGENT_STOPPED ||
                            (from == TRII_AGENT_RUNNING && to == TRII_AGENT_CLOSING));
            if (inside && enters)
                assert_true(to > from); /* never back to a gentler one */
        }
    }
}

/* Hosts that have agreed that all is done, or have left, join no other round. */
static void a_failure_is_reported_from_a_round_only(void **state)
{
    (void)state;
    assert_true(trii_hosts_state_may_follow(TRII_HOSTS_JOINED, TRII_HOSTS_REPORTED));
    assert_false(trii_hosts_state_may_follow(TRII_HOSTS_JOINING, TRII_HOSTS_REPORTED));
    assert_false(trii_hosts_state_may_follow(TRII_HOSTS_OUTSIDE, TRII_HOSTS_REPORTED));
    assert_false(trii_hosts_state_may_follow(TRII_HOSTS_LEFT, TRII_HOSTS_JOINING));
    assert_false(trii_hosts_state_may_follow(TRII_HOSTS_FINISHED, TRII_HOSTS_JOINING));
    assert_false(trii_hosts_state_may_follow(TRII_HOSTS_REPORTED, TRII_HOSTS_FINISHED));
}

static void a_state_is_entered(void **state)
{
    trii_agent_state agent = TRII_AGENT_OPENING;
    trii_hosts_state hosts = TRII_HOSTS_OUTSIDE;

    (void)state;
    trii_agent_state_enter(&agent, TRII_AGENT_RUNNING);
    assert_int_equal(agent, TRII_AGENT_RUNNING);
    trii_hosts_state_enter(&hosts, TRII_HOSTS_JOINING);
    assert_int_equal(hosts, TRII_HOSTS_JOINING);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_state_is_reached_and_has_a_name),
    cmocka_unit_test(every_way_leads_to_the_end),
    cmocka_unit_test(nothing_follows_the_end),
    cmocka_unit_test(an_attempt_begins_and_ends_with_no_process),
    cmocka_unit_test(a_failure_is_reported_from_a_round_only),
    cmocka_unit_test(a_state_is_entered),
};

TEST_MAIN(tests)
