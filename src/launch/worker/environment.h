/*
 * environment.h - the environment of a worker: torchrun's variables, and TRI_*.
 */
#ifndef TRII_LAUNCH_ENVIRONMENT_H
#define TRII_LAUNCH_ENVIRONMENT_H

#include "launch/cli/options.h"

/* One start of the workers of one host; all texts borrowed. */
typedef struct trii_launch_job {
    const trii_launch_options *options;
    int local_size; /* workers of this host */
    int world_size;
    int first_rank; /* the rank of local rank 0 */
    int group_rank; /* of this host, and how many there are */
    int group_size;
    int first_role_rank; /* of local rank 0 among all workers of this role */
    int role_size;
    const char *master_addr;
    int master_port;
    bool use_agent_store; /* the store at the master's address is served by an agent */
    bool new_store;       /* and it is new with every start of the workers */
    const char *run_id;
    const char *run_dir;
    const char *error_dir; /* holds LOCAL_RANK/error.json; NULL = no error files */
    int restart_count;
    int cores; /* that the workers of this host share */
} trii_launch_job;

/* A block for trii_process_spec.envp: `inherited` without the variables that trirun sets, and those
 * for the worker local_rank. One piece of memory: release with trii_free. Errors: NO_MEMORY. */
tri_status trii_launch_environment(const trii_launch_job *job, int local_rank,
                                   const char *const *inherited,
                                   const char ***envp_out) TRI_MUST_CHECK;

#endif
