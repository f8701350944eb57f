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
    char host[256];             /* of the store; "" = none: a world of one, or a file */
    char file[1024];            /* of a file store; "" = none */
    int port;
    bool agent_store;  /* the launcher serves the store, else rank 0 does */
    int restart_count; /* of the launcher: a new life must not read the keys of an older one */
} trii_launch_env;

/**
 * url: NULL or "env://", "tcp://HOST:PORT?rank=R&world_size=W", or
 * "file:///PATH?rank=R&world_size=W". Without rank and world_size a URL says only where to meet:
 * both come from the environment.
 *
 * env:// takes, in this order: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (trirun, torchrun);
 * OMPI_COMM_WORLD_* (mpirun); SLURM_* (srun); nothing of it is a world of one. mpirun and srun
 * name no place to meet: MASTER_ADDR and MASTER_PORT do if set, else on a single host (with
 * srun: on the first one of the step) a port that follows from the job's number.
 *
 * Errors: INVALID_ARG (names the variable, or the part of the URL).
 */
tri_status trii_launch_env_read(const char *url, trii_launch_env *env_out) TRI_MUST_CHECK;

/* --- what launch_env.c and launch_url.c share ---------------------------------------------- */

#define TRII_LAUNCH_MAX_RANKS 1000000

/* From the environment: rank, size and their local ones, and with `where` the place to meet;
 * size 1 if no launcher has left its mark. */
tri_status trii_launch_env_who(trii_launch_env *env, bool where) TRI_MUST_CHECK;
/* A URL other than env://. */
tri_status trii_launch_url_read(const char *url, trii_launch_env *env) TRI_MUST_CHECK;
/* An environment variable, `fallback` where it is not set. */
tri_status trii_launch_env_int(const char *name, int64_t min, int64_t max, int fallback,
                               int *value_out) TRI_MUST_CHECK;
tri_status trii_launch_env_set_host(trii_launch_env *env, const char *host,
                                    size_t length) TRI_MUST_CHECK;
tri_status trii_launch_env_check(const trii_launch_env *env, const char *rank_name,
                                 const char *size_name) TRI_MUST_CHECK;

#endif
