/*
 * env.c - which launcher started this process: each has a file of its own.
 */
/* build: leaf */
#include "group/join/env.h"

#include <string.h>

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
    if (trii_launch_env_text("RANK") != NULL || trii_launch_env_text("WORLD_SIZE") != NULL)
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
