/*
 * agent_hosts.h - the agent's side of a job of several hosts: it joins the others, hears from them,
 * and watches whether they live.
 */
#ifndef TRII_LAUNCH_AGENT_HOSTS_H
#define TRII_LAUNCH_AGENT_HOSTS_H

#include <trireme/status.h>

typedef struct trii_agent trii_agent;

/* If there is more than one host; sets agent->hosts and agent->callbacks. Errors: of the settings
 * and the agents' store. */
tri_status trii_agent_hosts_open(trii_agent *agent) TRI_MUST_CHECK;
/* Blocks (in the agent's loop) until a round is formed. END: a signal came, or the job is over
 * without an error. Errors: no round, for a reason that is named. */
tri_status trii_agent_hosts_join(trii_agent *agent) TRI_MUST_CHECK;
/* No worker runs any more: decides, with what the other hosts report, whether everybody starts
 * again (true) or the job is over, and prints the report. Blocks until all hosts agree. */
bool trii_agent_hosts_conclude(trii_agent *agent);
/* Joined, but the workers of this host cannot be started: ends the job on all hosts, for which none
 * of them could do better. Blocks until they know, or it is given up. */
void trii_agent_hosts_cannot_start(trii_agent *agent, const char *why);
/* A job of one host: nothing. */
void trii_agent_hosts_close(trii_agent *agent);

#endif
