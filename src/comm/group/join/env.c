/*
 * env.c - which launcher started this process: each has a file of its own.
 */
/* build: leaf */
#include "comm/group/join/env.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* mpiexec may start its helpers with srun: then the ranks are its own, not srun's tasks. */
static bool is_srun_step(void)
{
    const char *rank = trii_launch_env_text("PMI_RANK"), *size = trii_launch_env_text("PMI_SIZE");
    const char *tasks = trii_launch_env_text("SLURM_STEP_NUM_TASKS");

    tasks = tasks != NULL ? tasks : trii_launch_env_text("SLURM_NTASKS");
    return trii_launch_is_srun() &&
           (rank == NULL || size == NULL ||
            (strcmp(rank, trii_launch_env_text("SLURM_PROCID")) == 0 && strcmp(size, tasks) == 0));
}

tri_status trii_launch_env_who(trii_launch_env *env, bool where)
{
    if (env->given || trii_launch_env_text("RANK") != NULL ||
        trii_launch_env_text("WORLD_SIZE") != NULL)
        return trii_launch_torchrun(env, where);
    if (trii_launch_env_text("OMPI_COMM_WORLD_RANK") != NULL)
        return trii_launch_openmpi(env, where);
    if (is_srun_step())
        return trii_launch_srun(env, where);
    if (trii_launch_env_text("PMI_RANK") != NULL)
        return trii_launch_pmi(env, where);
    env->size = env->local_size = 1;
    return TRI_OK;
}

void trii_launch_env_here(int *local_rank_out, int *local_size_out)
{
    trii_launch_env env = {0};
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (trii_launch_env_who(&env, false) != TRI_OK || env.size == 1) {
        env = (trii_launch_env){.size = 1};
        if (trii_launch_env_local(&env, "LOCAL_RANK", "LOCAL_WORLD_SIZE") != TRI_OK)
            env = (trii_launch_env){.local_size = 1}; /* tri_init will say what is wrong */
    }
    trii_err_set("%s", line);
    *local_rank_out = env.local_rank;
    *local_size_out = env.local_size;
}
