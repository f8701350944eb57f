/*
 * rdzv_state_test.c - what a node that wants to take part makes of a state.
 */
/* ctest: threads=none */
#include "launch/rendezvous/rdzv_state.h"

#include <stdio.h>

#include "testing/check.h"

static const trii_rdzv_rules rules = {.min_nodes = 2, .max_nodes = 2, .last_call_us = 1000};

static trii_rdzv_node node_of(int i)
{
    trii_rdzv_node node = {.pid = i, .local_id = 1};

    snprintf(node.addr, sizeof(node.addr), "host%d", i);
    return node;
}

/* Node i wants a round; whether that changed the state. */
static bool wants(trii_rdzv_state *s, int i)
{
    trii_rdzv_node node = node_of(i);
    bool dirty = false;

    CHECK_OK(trii_rdzv_want(s, &node, -1, &rules, 1000, &dirty));
    return dirty;
}

static const trii_rdzv_entry *entry(const trii_rdzv_state *s, int i)
{
    trii_rdzv_node node = node_of(i);

    return trii_rdzv_find(s, &node);
}

/* Two are in the round, the third waits for a place. */
static void fill(trii_rdzv_state *s)
{
    trii_rdzv_state_init(s);
    for (int i = 0; i < 3; i++)
        assert_true(wants(s, i));
    assert_true(s->complete);
    assert_true(entry(s, 2)->redundant);
    assert_false(wants(s, 2));
}

static void a_waiting_agent_is_let_in_once_there_is_room(void **state)
{
    trii_rdzv_state s;
    trii_rdzv_node first = node_of(0);

    (void)state;
    fill(&s);
    trii_rdzv_remove(&s, &first, 2);
    assert_true(wants(&s, 2));
    assert_true(wants(&s, 2));
    assert_true(entry(&s, 2)->waiting);
    trii_rdzv_state_fini(&s);
}

/* Else it would take the end of the job for that of a round that it should have been in. */
static void an_agent_that_waits_when_the_job_ends_is_told_that_it_was_not_needed(void **state)
{
    trii_rdzv_state s;
    trii_rdzv_node first = node_of(0);

    (void)state;
    fill(&s);
    s.closed = true;
    trii_rdzv_remove(&s, &first, 2);
    assert_false(wants(&s, 2));
    assert_true(entry(&s, 2)->redundant);
    trii_rdzv_state_fini(&s);
}

static void nobody_comes_to_a_job_that_has_ended(void **state)
{
    trii_rdzv_state s;

    (void)state;
    fill(&s);
    s.closed = true;
    assert_false(wants(&s, 3));
    assert_null(entry(&s, 3));
    trii_rdzv_state_fini(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_waiting_agent_is_let_in_once_there_is_room),
    cmocka_unit_test(an_agent_that_waits_when_the_job_ends_is_told_that_it_was_not_needed),
    cmocka_unit_test(nobody_comes_to_a_job_that_has_ended),
};

TEST_MAIN(tests)
