/*
 * guard.h - a second process that cleans up when the agent was killed and cannot.
 *
 * The kernel kills the workers with the agent (parent-death signal), but not what the workers
 * started. The guard sleeps on a pipe whose other end only the agent holds: when that closes, what
 * is in the job's control group is killed, and every process whose environment carries the job's
 * TRI_RUN_DIR: not all may have control groups, and some leave them.
 */
#ifndef TRII_LAUNCH_GUARD_H
#define TRII_LAUNCH_GUARD_H

#include "launch/os/cgroup.h"
#include "launch/run_folder.h"

typedef struct trii_guard {
    int pid;      /* 0: not started */
    int alive_fd; /* closed by our death, which wakes the guard */
} trii_guard;

/* folder, cgroup: borrowed for the call; the guard holds their locks too. Errors: IO. */
tri_status trii_guard_start(trii_guard *guard, const trii_run_folder *folder,
                            const trii_cgroup *cgroup) TRI_MUST_CHECK;
/* A child was reaped: if it was the guard, its number may be another process's from now on.
 * True: it was. */
bool trii_guard_reaped(trii_guard *guard, int pid);
/* All is well: ends the guard. Not started, or gone: nothing. */
void trii_guard_dismiss(trii_guard *guard);

#endif
