/*
 * env.h - who this process is: rank, size and where the store is, from the environment of the
 * launcher or from a URL. Only reads; world.c acts on it.
 */
#ifndef TRII_ENV_H
#define TRII_ENV_H

#include <trireme/status.h>

#include "comm/group/group_limits.h"

typedef struct trii_launch_env {
    int rank, size;
    bool given;                 /* rank and size are, by the program */
    int local_rank, local_size; /* among the processes of this host */
    char host[256];             /* of the store: a name or address, or several with commas, or
                                   "@NAME" on one host; "" = none: a world of one, or a file */
    char file[1024];            /* of a file store; "" = none */
    int port;
    char job[96];      /* what tells this job from others; "" = unknown */
    bool agent_store;  /* the launcher serves the store, else rank 0 does: also where the launcher
                          has one, and the program has set MASTER_ADDR and MASTER_PORT itself */
    bool new_store;    /* the launcher made it for this start of the workers */
    bool again;        /* this process has joined a world before */
    bool by_url;       /* a URL says where the ranks meet, and not MASTER_ADDR */
    int restart_count; /* of the launcher: a new life must not read the keys of an older one */
} trii_launch_env;

/**
 * url: NULL or "env://", "tcp://HOST:PORT?rank=R&world_size=W", or
 * "file:///PATH?rank=R&world_size=W". Without rank and world_size a URL says only where to meet:
 * both come from the environment.
 *
 * env:// takes, in this order: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (trirun, torchrun);
 * OMPI_COMM_WORLD_* (Open MPI); SLURM_* (srun); PMI_RANK, PMI_SIZE, MPI_LOCAL* (MPICH, Intel
 * MPI); nothing of it is a world of one. The last three name no place to meet: MASTER_ADDR and
 * MASTER_PORT do if set; else, on one host, a name of an AF_UNIX socket that follows from the
 * job's; on several, the host of rank 0 (the first of srun's step; that of mpirun, if rank 0
 * is there) and a port that follows from the job's name.
 *
 * Errors: INVALID_ARG (names the variable, or the part of the URL).
 */
tri_status trii_launch_env_read(const char *url, trii_launch_env *env_out) TRI_MUST_CHECK;
/* The same for a program that gives its rank and the size: the rest comes from the environment, and
 * a URL must not say them, too. size 0: as trii_launch_env_read. Errors: INVALID_ARG. */
tri_status trii_launch_env_read_as(const char *url, int rank, int size,
                                   trii_launch_env *env_out) TRI_MUST_CHECK;
/* For a program that gives the store as well: no place to meet. Errors: INVALID_ARG. */
tri_status trii_launch_env_at_store(int rank, int size, trii_launch_env *env_out) TRI_MUST_CHECK;
/* What the launcher says of this process's place on its host, for calls before the world is joined:
 * 0 of 1 if it says nothing. Leaves the thread's error line as it is. */
void trii_launch_env_here(int *local_rank_out, int *local_size_out);

/* --- env.c ---------------------------------------------------------------- */

/* From the environment: rank, size and their local ones, and with `where` the place to meet;
 * size 1 if no launcher has left its mark. */
tri_status trii_launch_env_who(trii_launch_env *env, bool where) TRI_MUST_CHECK;

/* --- env_vars.c ----------------------------------------------------------- */

/* NULL if it is not set or empty. */
const char *trii_launch_env_text(const char *name);
/* An environment variable that must be set. */
tri_status trii_launch_env_need(const char *name, int64_t min, int64_t max,
                                int *value_out) TRI_MUST_CHECK;
/* An environment variable, `fallback` where it is not set. */
tri_status trii_launch_env_int(const char *name, int64_t min, int64_t max, int fallback,
                               int *value_out) TRI_MUST_CHECK;
/* Rank and size, whose variables must be set. */
tri_status trii_launch_env_ranks(trii_launch_env *env, const char *rank_name,
                                 const char *size_name) TRI_MUST_CHECK;
/* The local ones; without the variables all ranks are on one host. */
tri_status trii_launch_env_local(trii_launch_env *env, const char *rank_name,
                                 const char *size_name) TRI_MUST_CHECK;
tri_status trii_launch_env_set_host(trii_launch_env *env, const char *host,
                                    size_t length) TRI_MUST_CHECK;
/* MASTER_ADDR and MASTER_PORT. */
tri_status trii_launch_env_master(trii_launch_env *env) TRI_MUST_CHECK;
/* Where the ranks of env->job meet: all on this host, or at rank 0's host. */
tri_status trii_launch_env_meet_here(trii_launch_env *env) TRI_MUST_CHECK;
tri_status trii_launch_env_meet_at(trii_launch_env *env, const char *host,
                                   size_t length) TRI_MUST_CHECK;
tri_status trii_launch_env_check(const trii_launch_env *env, const char *rank_name,
                                 const char *size_name) TRI_MUST_CHECK;

/* --- the launchers: `where` as in who ------------------------------------- */

tri_status trii_launch_torchrun(trii_launch_env *env, bool where) TRI_MUST_CHECK;
tri_status trii_launch_openmpi(trii_launch_env *env, bool where) TRI_MUST_CHECK;
tri_status trii_launch_pmi(trii_launch_env *env, bool where) TRI_MUST_CHECK;
tri_status trii_launch_srun(trii_launch_env *env, bool where) TRI_MUST_CHECK;
/* Whether srun started us. A batch script has SLURM_PROCID too, but a program that it runs
 * without srun is alone. */
bool trii_launch_is_srun(void);
/* The first host of Slurm's "rack[0-1]node[003-007,12],other". */
tri_status trii_launch_slurm_host(const char *list, char host_out[256]) TRI_MUST_CHECK;

#endif
