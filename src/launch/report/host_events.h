/*
 * host_events.h - the lines of --events about the hosts of a job: host_joined, host_left (in
 * order) and host_lost (dead, silent or cut off), each with the attempt, the round of the
 * rendezvous, and which agent it was.
 */
#ifndef TRII_LAUNCH_HOST_EVENTS_H
#define TRII_LAUNCH_HOST_EVENTS_H

#include "launch/report/events.h"
#include "launch/rendezvous/rendezvous.h"

/* A round has begun: reports the agents that were not in the round before it, and those of that
 * round that are missing from this one and have not been reported as gone. before: the n_before
 * agents of that round, by rank; NULL in the first. */
void trii_host_events_round(const trii_events *events, int attempt, const trii_rdzv_agent *before,
                            int n_before, const trii_rdzv_round *round);
/* Reports the agent as gone, once. */
void trii_host_events_gone(const trii_events *events, int attempt, trii_rdzv_round *round, int rank,
                           bool left, const char *why);

#endif
