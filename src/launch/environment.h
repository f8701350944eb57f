/*
 * environment.h - what a worker is told: torchrun's variables, and TRI_* of ours.
 */
#ifndef TRII_LAUNCH_ENVIRONMENT_H
#define TRII_LAUNCH_ENVIRONMENT_H

#include <trireme/status.h>

/* What the workers of one start have in common; all texts borrowed. */
typedef struct trii_launch_job {
    int size; /* workers of this host, here also of the world */
    const char *master_addr;
    int master_port;
    const char *run_id;
    const char *run_dir;
    const char *role;
    const char *signals; /* TORCHELASTIC_SIGNALS_TO_HANDLE */
    int restart_count;
    int max_restarts;
    int cores; /* that all workers share */
} trii_launch_job;

/* A block for trii_process_spec.envp: `inherited` without the variables that we set, and ours
 * for the worker `rank`. One piece of memory: release with trii_free. Errors: NO_MEMORY. */
tri_status trii_launch_environment(const trii_launch_job *job, int rank,
                                   const char *const *inherited,
                                   const char ***envp_out) TRI_MUST_CHECK;

#endif
