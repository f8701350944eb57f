/*
 * rdzv_phase_test.c - the table of the rendezvous thread's phases is walked.
 */
/* ctest: threads=none */
#include "launch/rendezvous/rdzv_phase.h"

#include "testing/check.h"

/* Which phases can be reached from one, in any number of steps. */
static unsigned reach(trii_rdzv_phase from)
{
    unsigned seen = 1u << from, before;

    do {
        before = seen;
        for (int a = 0; a < TRII_RDZV_N_PHASES; a++) {
            for (int b = 0; b < TRII_RDZV_N_PHASES && (seen >> a & 1) != 0; b++)
                seen |= (unsigned)trii_rdzv_phase_may(a, b) << b;
        }
    } while (seen != before);
    return seen;
}

static void every_phase_is_reached_and_ends(void **state)
{
    (void)state;
    assert_int_equal(reach(TRII_RDZV_CONNECTING), (1u << TRII_RDZV_N_PHASES) - 1);
    assert_int_equal(reach(TRII_RDZV_DONE), 1u << TRII_RDZV_DONE);
    for (int from = 0; from < TRII_RDZV_N_PHASES; from++) {
        assert_non_null(trii_rdzv_phase_name(from));
        assert_false(trii_rdzv_phase_may(from, from));
        if (from != TRII_RDZV_CONNECTING && from != TRII_RDZV_DONE)
            assert_true(trii_rdzv_phase_may(from, TRII_RDZV_DONE));
    }
}

/* The orders of the agent may come at any moment at which it has a store. */
static void an_agent_may_leave_wherever_it_has_a_store(void **state)
{
    (void)state;
    for (int from = TRII_RDZV_CONNECTED; from < TRII_RDZV_GONE; from++)
        assert_true(trii_rdzv_phase_may(from, TRII_RDZV_GONE));
    assert_false(trii_rdzv_phase_may(TRII_RDZV_CONNECTING, TRII_RDZV_GONE));
    assert_false(trii_rdzv_phase_may(TRII_RDZV_NO_STORE, TRII_RDZV_GONE));
}

/* Settings are compared once, before anybody can see us, and a round begins only by joining. */
static void a_round_begins_by_joining_only(void **state)
{
    (void)state;
    for (int from = 0; from < TRII_RDZV_N_PHASES; from++) {
        assert_int_equal(trii_rdzv_phase_may(from, TRII_RDZV_RUNNING), from == TRII_RDZV_JOINING);
        assert_int_equal(trii_rdzv_phase_may(from, TRII_RDZV_APPLYING),
                         from == TRII_RDZV_CONNECTED);
        assert_int_equal(trii_rdzv_phase_may(from, TRII_RDZV_FINISHING), from == TRII_RDZV_RUNNING);
        assert_int_equal(trii_rdzv_phase_may(from, TRII_RDZV_STOPPED), trii_rdzv_phase_is_on(from));
    }
}

static void an_agent_that_has_joined_shows_that_it_lives(void **state)
{
    (void)state;
    for (int phase = 0; phase < TRII_RDZV_N_PHASES; phase++)
        assert_int_equal(trii_rdzv_phase_is_member(phase),
                         phase >= TRII_RDZV_RUNNING && phase <= TRII_RDZV_JOB_ENDED);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_phase_is_reached_and_ends),
    cmocka_unit_test(an_agent_may_leave_wherever_it_has_a_store),
    cmocka_unit_test(a_round_begins_by_joining_only),
    cmocka_unit_test(an_agent_that_has_joined_shows_that_it_lives),
};

TEST_MAIN(tests)
