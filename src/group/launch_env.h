/*
 * launch_env.h - who this process is: rank, size and where the store is, from the environment
 * of the launcher or from a URL. Only reads; world.c acts.
 */
#ifndef TRII_LAUNCH_ENV_H
#define TRII_LAUNCH_ENV_H

#include <trireme/status.h>

typedef struct trii_launch_env {
    int rank, size;
    int local_rank, local_size; /* among the processes of this host */
    char host[256];             /* of the store; "" = none: a world of one */
    int port;
    bool agent_store;  /* the launcher serves the store, else rank 0 does */
    int restart_count; /* of the launcher: a new life must not read the keys of an older one */
} trii_launch_env;

/**
 * url: NULL or "env://", or "tcp://HOST:PORT?rank=R&world_size=W".
 *
 * env:// takes, in this order: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (trirun, torchrun);
 * OMPI_COMM_WORLD_* (mpirun); SLURM_* (srun); nothing of it is a world of one. mpirun and srun
 * name no place to meet: MASTER_ADDR and MASTER_PORT do if set, else on a single host (with
 * srun: on the first one of the step) a port that follows from the job's number.
 *
 * Errors: INVALID_ARG (names the variable, or the part of the URL), UNSUPPORTED (file://).
 */
tri_status trii_launch_env_read(const char *url, trii_launch_env *env_out) TRI_MUST_CHECK;

#endif
