/*
 * agent_state.h - the states of an agent and of its membership among other hosts, and which may
 * follow which: one table each, in agent_state.c.
 *
 *   OPENING -> JOINING -> RUNNING -> STOPPING -> KILLING
 *                 ^          |           |          |
 *                 |          +-----------+----------+-> SWEEPING -> SWEEP_KILLING
 *                 |                                        |              |
 *             CONCLUDING <- STOPPED <----------------------+--------------+
 *                 |            |
 *                 +------------+-> FLUSHING -> CLOSING -> CLOSED
 *
 * A job on one host skips JOINING and CONCLUDING. An error leads to CLOSING from any state in which
 * no process of the job is left.
 */
#ifndef TRII_LAUNCH_AGENT_STATE_H
#define TRII_LAUNCH_AGENT_STATE_H

#include <stdbool.h>

typedef enum trii_agent_state {
    TRII_AGENT_OPENING,       /* settings, folders, signals: no worker has been started yet */
    TRII_AGENT_JOINING,       /* waiting for other hosts; no worker runs */
    TRII_AGENT_RUNNING,       /* until a worker fails, a signal comes or all workers have ended */
    TRII_AGENT_STOPPING,      /* workers got the signal that asks them to end, and a grace period */
    TRII_AGENT_KILLING,       /* workers that outlasted it got SIGKILL */
    TRII_AGENT_SWEEPING,      /* what the workers left behind got SIGTERM, and a grace period */
    TRII_AGENT_SWEEP_KILLING, /* ... and SIGKILL */
    TRII_AGENT_STOPPED,       /* nothing of the attempt runs that can be ended */
    TRII_AGENT_CONCLUDING,    /* the hosts agree on what the end of the attempt means */
    TRII_AGENT_FLUSHING,      /* the job is over; output that is queued is written */
    TRII_AGENT_CLOSING,       /* files that are written in the background are finished */
    TRII_AGENT_CLOSED,
    TRII_AGENT_STATES
} trii_agent_state;

/* What this agent is to the agents of other hosts. */
typedef enum trii_hosts_state {
    TRII_HOSTS_OUTSIDE,  /* it has never joined */
    TRII_HOSTS_JOINING,  /* it has asked for a round */
    TRII_HOSTS_JOINED,   /* it is in a round */
    TRII_HOSTS_REPORTED, /* ... and has told the others that a worker failed here */
    TRII_HOSTS_FINISHED, /* the workers of all hosts have succeeded */
    TRII_HOSTS_LEFT,     /* the others know that it has gone, or none is left */
    TRII_HOSTS_STATES
} trii_hosts_state;

bool trii_agent_state_may_follow(trii_agent_state from, trii_agent_state to);
bool trii_hosts_state_may_follow(trii_hosts_state from, trii_hosts_state to);
/* Changes *state; that `next` may follow it is asserted. */
void trii_agent_state_enter(trii_agent_state *state, trii_agent_state next);
void trii_hosts_state_enter(trii_hosts_state *state, trii_hosts_state next);
/* "RUNNING", for the log and for tests. */
const char *trii_agent_state_name(trii_agent_state state);

/* Workers run, or what they left behind is being ended. */
static inline bool trii_agent_state_is_attempt(trii_agent_state state)
{
    return state >= TRII_AGENT_RUNNING && state < TRII_AGENT_STOPPED;
}

#endif
