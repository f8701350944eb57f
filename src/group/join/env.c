/*
 * env.c - see env.h.
 */
/* build: leaf */
#include "group/join/env.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/param.h"
#include "os/process.h"

const char *trii_launch_env_text(const char *name)
{
    const char *text = getenv(name);

    return text != NULL && *text != '\0' ? text : NULL;
}

tri_status trii_launch_env_need(const char *name, int64_t min, int64_t max, int *value_out)
{
    const char *text = trii_launch_env_text(name);
    int64_t value;
    tri_status status;

    if (text == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the environment variable %s is not set", name);
    status = trii_parse_i64(text, name, min, max, &value);
    if (status == TRI_OK)
        *value_out = (int)value;
    return status;
}

tri_status trii_launch_env_int(const char *name, int64_t min, int64_t max, int fallback,
                               int *value_out)
{
    *value_out = fallback;
    return trii_launch_env_text(name) != NULL ? trii_launch_env_need(name, min, max, value_out)
                                              : TRI_OK;
}

tri_status trii_launch_env_set_host(trii_launch_env *env, const char *host, size_t length)
{
    if (length == 0 || length >= sizeof(env->host))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%.*s is not a host name",
                         (int)(length < 80 ? length : 80), host);
    memcpy(env->host, host, length);
    env->host[length] = '\0';
    return TRI_OK;
}

tri_status trii_launch_env_check(const trii_launch_env *env, const char *rank_name,
                                 const char *size_name)
{
    if (env->rank >= env->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "rank %d is out of range (world of %d): %s=%d has to be below %s=%d",
                         env->rank, env->size, rank_name, env->rank, size_name, env->size);
    if (env->local_rank >= env->local_size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "local rank %d is not below %d, the local size",
                         env->local_rank, env->local_size);
    return TRI_OK;
}

tri_status trii_launch_env_master(trii_launch_env *env)
{
    const char *host = trii_launch_env_text("MASTER_ADDR");
    size_t length = host != NULL ? strlen(host) : 0;
    tri_status status = trii_launch_env_need("MASTER_PORT", 1, 65535, &env->port);

    if (host == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the environment variable MASTER_ADDR is not set");
    if (length > 2 && host[0] == '[' && host[length - 1] == ']') { /* IPv6, as in a URL */
        host++;
        length -= 2;
    }
    return status == TRI_OK ? trii_launch_env_set_host(env, host, length) : status;
}

/* --- places that follow from a job's name --------------------------------------------------- */

/* Ports below the range that systems give out themselves. */
enum { FIRST_JOB_PORT = 20000, N_JOB_PORTS = 12000 };

static int job_port(const char *job)
{
    /* the same on every rank is all that matters */
    return FIRST_JOB_PORT + (int)(trii_hash32(job) % N_JOB_PORTS);
}

tri_status trii_launch_env_meet_here(trii_launch_env *env)
{
    snprintf(env->host, sizeof(env->host), "@trireme-%d-%.80s", trii_process_user(), env->job);
    env->port = 0;
    return TRI_OK;
}

tri_status trii_launch_env_meet_at(trii_launch_env *env, const char *host, size_t length)
{
    env->port = job_port(env->job);
    return trii_launch_env_set_host(env, host, length);
}

/* --- trirun and torchrun ---------------------------------------------------------------- */

static tri_status read_torchrun(trii_launch_env *env, bool where)
{
    const char *agent = trii_launch_env_text("TORCHELASTIC_USE_AGENT_STORE"), *fresh;
    char place[sizeof(env->host) + 16];
    int port;
    tri_status status = trii_launch_env_need("WORLD_SIZE", 1, TRII_WORLD_MAX_RANKS, &env->size);

    if (status == TRI_OK)
        status = trii_launch_env_need("RANK", 0, TRII_WORLD_MAX_RANKS, &env->rank);
    if (status == TRI_OK && env->rank >= env->size) /* whatever else is missing */
        return trii_launch_env_check(env, "RANK", "WORLD_SIZE");
    if (status == TRI_OK && where)
        status = trii_launch_env_master(env);
    /* Without LOCAL_*, as when somebody sets the four by hand: one host. */
    if (status == TRI_OK)
        status = trii_launch_env_int("LOCAL_WORLD_SIZE", 1, TRII_WORLD_MAX_RANKS, env->size,
                                     &env->local_size);
    if (status == TRI_OK)
        status =
            trii_launch_env_int("LOCAL_RANK", 0, TRII_WORLD_MAX_RANKS,
                                env->local_size == env->size ? env->rank : 0, &env->local_rank);
    if (status == TRI_OK)
        status =
            trii_launch_env_int("TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX, 0, &env->restart_count);
    port = env->port;
    if (status == TRI_OK && port != 0 && !where)
        status = trii_launch_env_int("MASTER_PORT", 1, 65535, 0, &port);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "env:// needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    /* a URL may lead past it */
    env->agent_store = agent != NULL && strcmp(agent, "True") == 0 && env->port == port;
    /* a launcher that our launcher runs may have another */
    snprintf(place, sizeof(place), "%s:%d", env->host, env->port);
    fresh = trii_param_text(TRII_PARAM_NEW_STORE);
    env->new_store = env->agent_store && fresh != NULL && strcmp(fresh, place) == 0;
    if (trii_launch_env_text("TORCHELASTIC_RUN_ID") != NULL)
        snprintf(env->job, sizeof(env->job), "run %.80s",
                 trii_launch_env_text("TORCHELASTIC_RUN_ID"));
    return trii_launch_env_check(env, "RANK", "WORLD_SIZE");
}

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
        return read_torchrun(env, where);
    if (trii_launch_env_text("OMPI_COMM_WORLD_RANK") != NULL)
        return trii_launch_openmpi(env, where);
    if (is_srun_step())
        return trii_launch_srun(env, where);
    if (trii_launch_env_text("PMI_RANK") != NULL)
        return trii_launch_pmi(env, where);
    env->size = env->local_size = 1;
    return TRI_OK;
}

tri_status trii_launch_env_read(const char *url, trii_launch_env *env_out)
{
    trii_launch_env env = {0};
    tri_status status;

    if (url == NULL || strcmp(url, "env://") == 0)
        status = trii_launch_env_who(&env, true);
    else
        status = trii_launch_url_read(url, &env);
    if (status == TRI_OK)
        *env_out = env;
    return status;
}
