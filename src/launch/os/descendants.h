/*
 * descendants.h - the processes below an agent, also those whose parent has ended: taking them
 * over, ending them, and a copy of the agent that outlives it.
 */
#ifndef TRII_DESCENDANTS_H
#define TRII_DESCENDANTS_H

#include "os/process.h"

/* From now on descendants whose parent ends become children of this process. */
void trii_process_adopt_orphans(void);
/* Reaps one ended child that is not in `keep`: returns its pid, or 0 if there is none. Ended
 * children in `keep` are left for trii_process_reap. */
int trii_process_reap_orphan(const trii_process *keep, int n_keep);
/* Sends the signal to every child but `except` (0 = none); returns how many there are. */
int trii_process_signal_children(int number, int except);
/* Sends SIGKILL to every process of this user whose environment has the entry "NAME=value"; returns
 * how many there were. For what is left of a job whose agent was killed. */
int trii_process_kill_marked(const char *entry);

/* Makes a copy of this process that runs `main(arg)` and exits with its result, in its own session,
 * with all signals but SIGKILL ignored, and no descriptors but the n_fds given ones. Other threads
 * of the caller must hold no lock that `main` takes, except libc's. Errors: IO. */
tri_status trii_process_fork(int (*main)(void *arg), void *arg, const int *fds, int n_fds,
                             int *pid_out) TRI_MUST_CHECK;
/* Sends SIGKILL to a child of trii_process_fork, and waits for its end. */
void trii_process_kill(int pid);

/* Sends SIGCONT to the child's group if it is stopped. Not if it runs: SIGCONT would cancel a stop
 * that is about to happen, and a debugger, or a leak-checking sanitizer, would wait for that stop
 * for ever. */
void trii_process_continue(const trii_process *process);

#endif
