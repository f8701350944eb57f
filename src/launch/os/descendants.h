/*
 * descendants.h - the processes below an agent, also those whose parent has ended: taking them
 * over, ending them, and a copy of the agent that outlives it.
 */
#ifndef TRII_DESCENDANTS_H
#define TRII_DESCENDANTS_H

#include "os/process.h"

/* From now on descendants whose parent ends become our children. */
void trii_process_adopt_orphans(void);
/* Takes the status of one ended child that is not in `keep`: its pid, or 0 if there is none.
 * Ended children of `keep` are left for trii_process_reap. */
int trii_process_reap_orphan(const trii_process *keep, int n_keep);
/* Sends the signal to every child but `except` (0 = none); returns how many there are. */
int trii_process_signal_children(int number, int except);
/* SIGKILL to every process of ours whose environment has the entry "NAME=value"; returns how
 * many there were. For the ruins of a job whose agent was killed. */
int trii_process_kill_marked(const char *entry);

/* A copy of this process that runs `main(arg)` and ends with its result, in its own session,
 * deaf to all signals but SIGKILL, with no descriptor but the n_fds given ones. Other threads of
 * the caller hold no lock that `main` takes, but libc's. Errors: IO. */
tri_status trii_process_fork(int (*main)(void *arg), void *arg, const int *fds, int n_fds,
                             int *pid_out) TRI_MUST_CHECK;
/* SIGKILL to a child of trii_process_fork, and waits for its end. */
void trii_process_kill(int pid);

/* SIGCONT to its group if it is stopped. Not to one that runs: SIGCONT takes back a stop that is
 * under way, and a debugger, or a sanitizer that looks for leaks at the end, would wait for it for
 * ever. */
void trii_process_continue(const trii_process *process);

#endif
