/*
 * env_vars.c - reading one variable of the environment, and the address of the store as it follows
 * from MASTER_ADDR or from a job's name: for the files of the launchers, env_torchrun.c and others.
 */
/* build: leaf */
#include "comm/group/join/env.h"

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

tri_status trii_launch_env_ranks(trii_launch_env *env, const char *rank_name, const char *size_name)
{
    tri_status status = TRI_OK;

    if (env->given)
        return TRI_OK;
    status = trii_launch_env_need(rank_name, 0, TRII_WORLD_MAX_RANKS, &env->rank);
    return status == TRI_OK ? trii_launch_env_need(size_name, 1, TRII_WORLD_MAX_RANKS, &env->size)
                            : status;
}

tri_status trii_launch_env_local(trii_launch_env *env, const char *rank_name, const char *size_name)
{
    tri_status status =
        trii_launch_env_int(size_name, 1, TRII_WORLD_MAX_RANKS, env->size, &env->local_size);
    int rank = env->local_size == env->size ? env->rank : 0;

    return status == TRI_OK
               ? trii_launch_env_int(rank_name, 0, TRII_WORLD_MAX_RANKS, rank, &env->local_rank)
               : status;
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
    if (env->given) {
        rank_name = "rank";
        size_name = "world_size";
    }
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

/* --- places that follow from a job's name --------------------------------- */

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
