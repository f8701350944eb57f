/*
 * agent_state.c - the two tables of agent_state.h. agent.c, agent_hosts.c, attempt.c and shutdown.c
 * change states only through them; a change that the table does not have is a bug, and asserts.
 * agent_state_test.c walks every path.
 */
#include "launch/agent_state.h"

#include <assert.h>

#include "base/log.h"

#define TO(state) (1u << TRII_AGENT_##state)
#define HOSTS_TO(state) (1u << TRII_HOSTS_##state)
#define STATE(state, following) [TRII_AGENT_##state] = {#state, following}

static const struct {
    const char *name;
    unsigned after;
} states[TRII_AGENT_STATES] = {
    STATE(OPENING, TO(JOINING) | TO(RUNNING) | TO(CLOSING)),
    STATE(JOINING, TO(RUNNING) | TO(FLUSHING) | TO(CLOSING)),
    /* CLOSING: the first worker could not be started */
    STATE(RUNNING, TO(STOPPING) | TO(SWEEPING) | TO(CLOSING)),
    STATE(STOPPING, TO(KILLING) | TO(SWEEPING)),
    STATE(KILLING, TO(SWEEPING)),
    STATE(SWEEPING, TO(SWEEP_KILLING) | TO(STOPPED)),
    STATE(SWEEP_KILLING, TO(STOPPED)),
    STATE(STOPPED, TO(RUNNING) | TO(CONCLUDING) | TO(FLUSHING) | TO(CLOSING)),
    STATE(CONCLUDING, TO(JOINING) | TO(FLUSHING)),
    STATE(FLUSHING, TO(CLOSING)),
    STATE(CLOSING, TO(CLOSED)),
    STATE(CLOSED, 0),
};

static const unsigned hosts_after[TRII_HOSTS_STATES] = {
    [TRII_HOSTS_OUTSIDE] = HOSTS_TO(JOINING) | HOSTS_TO(LEFT),
    /* JOINING: the round was over before this agent knew of it */
    [TRII_HOSTS_JOINING] = HOSTS_TO(JOINING) | HOSTS_TO(JOINED) | HOSTS_TO(LEFT),
    [TRII_HOSTS_JOINED] =
        HOSTS_TO(JOINING) | HOSTS_TO(REPORTED) | HOSTS_TO(FINISHED) | HOSTS_TO(LEFT),
    [TRII_HOSTS_REPORTED] = HOSTS_TO(JOINING) | HOSTS_TO(LEFT),
    /* REPORTED: an agent of torchrun closed the job while a worker failed here */
    [TRII_HOSTS_FINISHED] = HOSTS_TO(REPORTED) | HOSTS_TO(LEFT),
};

bool trii_agent_state_may_follow(trii_agent_state from, trii_agent_state to)
{
    return (states[from].after >> to & 1) != 0;
}

bool trii_hosts_state_may_follow(trii_hosts_state from, trii_hosts_state to)
{
    return (hosts_after[from] >> to & 1) != 0;
}

const char *trii_agent_state_name(trii_agent_state state)
{
    return states[state].name;
}

void trii_agent_state_enter(trii_agent_state *state, trii_agent_state next)
{
    assert(trii_agent_state_may_follow(*state, next));
    TRII_LOG(TRII_LOG_DEBUG, "launch", "agent: %s -> %s", trii_agent_state_name(*state),
             trii_agent_state_name(next));
    *state = next;
}

void trii_hosts_state_enter(trii_hosts_state *state, trii_hosts_state next)
{
    assert(trii_hosts_state_may_follow(*state, next));
    *state = next;
}
