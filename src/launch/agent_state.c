/*
 * agent_state.c - the two tables of agent_state.h. agent.c, agent_hosts.c, attempt.c and shutdown.c
 * change states only through them; a change that the table does not have is a bug, and asserts.
 * agent_state_test.c walks every path.
 */
#include "launch/agent_state.h"

#include <assert.h>

#include "base/compiler.h"
#include "base/log.h"

#define TO(state) (1u << TRII_AGENT_##state)
#define HOSTS_TO(state) (1u << TRII_HOSTS_##state)

static const unsigned after[TRII_AGENT_STATES] = {
    [TRII_AGENT_OPENING] = TO(JOINING) | TO(RUNNING) | TO(CLOSING),
    [TRII_AGENT_JOINING] = TO(RUNNING) | TO(FLUSHING) | TO(CLOSING),
    /* CLOSING: the first worker could not be started */
    [TRII_AGENT_RUNNING] = TO(STOPPING) | TO(SWEEPING) | TO(CLOSING),
    [TRII_AGENT_STOPPING] = TO(KILLING) | TO(SWEEPING),
    [TRII_AGENT_KILLING] = TO(SWEEPING),
    [TRII_AGENT_SWEEPING] = TO(SWEEP_KILLING) | TO(STOPPED),
    [TRII_AGENT_SWEEP_KILLING] = TO(STOPPED),
    [TRII_AGENT_STOPPED] = TO(RUNNING) | TO(CONCLUDING) | TO(FLUSHING) | TO(CLOSING),
    [TRII_AGENT_CONCLUDING] = TO(JOINING) | TO(FLUSHING),
    [TRII_AGENT_FLUSHING] = TO(CLOSING),
    [TRII_AGENT_CLOSING] = TO(CLOSED),
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
    return (after[from] >> to & 1) != 0;
}

bool trii_hosts_state_may_follow(trii_hosts_state from, trii_hosts_state to)
{
    return (hosts_after[from] >> to & 1) != 0;
}

const char *trii_agent_state_name(trii_agent_state state)
{
    static const char *const names[TRII_AGENT_STATES] = {
        [TRII_AGENT_OPENING] = "OPENING",
        [TRII_AGENT_JOINING] = "JOINING",
        [TRII_AGENT_RUNNING] = "RUNNING",
        [TRII_AGENT_STOPPING] = "STOPPING",
        [TRII_AGENT_KILLING] = "KILLING",
        [TRII_AGENT_SWEEPING] = "SWEEPING",
        [TRII_AGENT_SWEEP_KILLING] = "SWEEP_KILLING",
        [TRII_AGENT_STOPPED] = "STOPPED",
        [TRII_AGENT_CONCLUDING] = "CONCLUDING",
        [TRII_AGENT_FLUSHING] = "FLUSHING",
        [TRII_AGENT_CLOSING] = "CLOSING",
        [TRII_AGENT_CLOSED] = "CLOSED",
    };

    return names[state];
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
