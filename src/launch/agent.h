/*
 * agent.h - starts the workers of one host and supervises them until the last has ended.
 *
 * One thread, one event loop: it serves the job's store, reads the workers' output, and sees
 * each death through a pidfd, in the order in which they happened. Whatever ends the agent, the
 * kernel ends the workers; a guard (guard.h) ends what they started. Where that is allowed the
 * workers are in a control group of their own (launch/os/cgroup.h).
 */
#ifndef TRII_LAUNCH_AGENT_H
#define TRII_LAUNCH_AGENT_H

#include "launch/worker/worker_command.h"

/* Blocks until the job is over. exit_out: 0 all workers succeeded, 1 one failed or a signal
 * ended the job; what happened has been printed to stderr. Errors: the job could not be
 * started; nothing runs. Owns the process: signals, descriptors 0 to 2, children. */
tri_status trii_agent_run(const trii_launch_options *options, const trii_launch_command *command,
                          int *exit_out) TRI_MUST_CHECK;

#endif
