/*
 * agent_hosts.h - the agent's side of a job of several hosts: it joins the others, hears from them,
 * and watches whether they live.
 */
#ifndef TRII_LAUNCH_AGENT_HOSTS_H
#define TRII_LAUNCH_AGENT_HOSTS_H

#include "launch/worker/environment.h"

typedef struct trii_agent_hosts trii_agent_hosts;
struct trii_agent;

/* What came of an attempt. */
typedef enum trii_outcome {
    TRII_OUTCOME_SUCCESS, /* of all hosts */
    TRII_OUTCOME_AGAIN,   /* everybody starts again */
    TRII_OUTCOME_OVER     /* the job has failed, here or elsewhere, or was stopped */
} trii_outcome;

/* If there is more than one host. Errors: of the settings and the agents' store. */
tri_status trii_agent_hosts_open(struct trii_agent *a) TRI_MUST_CHECK;
/* Blocks (in the agent's loop) until a round is formed. END: a signal came, or the job is over
 * without an error. Errors: no round, for a reason that is named. */
tri_status trii_agent_hosts_join(struct trii_agent *a) TRI_MUST_CHECK;
/* Ranks, sizes and the master's address of this round. */
void trii_agent_hosts_describe(const trii_agent_hosts *hosts, trii_launch_job *job);
/* A worker has failed just now: the others are told, unless it looks as if one of them was the
 * cause. */
void trii_agent_hosts_failure(struct trii_agent *a);
/* This host will be taken away: the agents of the others are told. left_ms: -1 = nobody said when.
 */
void trii_agent_hosts_preempted(trii_agent_hosts *hosts, int64_t left_ms);
/* No worker runs any more: what it means, with the others' news. Prints the report. Blocks until
 * all hosts agree. */
trii_outcome trii_agent_hosts_conclude(struct trii_agent *a);
/* NULL allowed. */
void trii_agent_hosts_close(struct trii_agent *a);

#endif
