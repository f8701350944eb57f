/*
 * launch_env.c - see launch_env.h.
 */
#include "group/launch_env.h"

#include <string.h>

#include "base/err.h"
#include "base/param.h"

/* Ports that follow from a job's number: below the range that systems give out themselves. */
enum { FIRST_JOB_PORT = 20000, N_JOB_PORTS = 12000 };

static const char *text_of(const char *name)
{
    const char *text = getenv(name);

    return text != NULL && *text != '\0' ? text : NULL;
}

static tri_status read_int(const char *name, int64_t min, int64_t max, int *value_out)
{
    const char *text = text_of(name);
    int64_t value;
    tri_status status;

    if (text == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the environment variable %s is not set", name);
    status = trii_parse_i64(text, name, min, max, &value);
    if (status == TRI_OK)
        *value_out = (int)value;
    return status;
}

/* As read_int, and `fallback` where it is not set. */
tri_status trii_launch_env_int(const char *name, int64_t min, int64_t max, int fallback,
                               int *value_out)
{
    *value_out = fallback;
    return text_of(name) != NULL ? read_int(name, min, max, value_out) : TRI_OK;
}

tri_status trii_launch_env_set_host(trii_launch_env *env, const char *host, size_t length)
{
    if (length == 0 || length >= sizeof(env->host))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%.*s is no host name",
                         (int)(length < 80 ? length : 80), host);
    memcpy(env->host, host, length);
    env->host[length] = '\0';
    return TRI_OK;
}

tri_status trii_launch_env_check(const trii_launch_env *env, const char *rank_name,
                                 const char *size_name)
{
    if (env->rank >= env->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%d is not below %s=%d", rank_name, env->rank,
                         size_name, env->size);
    if (env->local_rank >= env->local_size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "local rank %d is not below %d, the local size",
                         env->local_rank, env->local_size);
    return TRI_OK;
}

static tri_status read_master(trii_launch_env *env)
{
    const char *host = text_of("MASTER_ADDR");
    tri_status status = read_int("MASTER_PORT", 1, 65535, &env->port);

    if (host == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the environment variable MASTER_ADDR is not set");
    return status == TRI_OK ? trii_launch_env_set_host(env, host, strlen(host)) : status;
}

/* --- trirun and torchrun ---------------------------------------------------------------- */

static tri_status read_torchrun(trii_launch_env *env, bool where)
{
    const char *agent = text_of("TORCHELASTIC_USE_AGENT_STORE");
    tri_status status = read_int("WORLD_SIZE", 1, TRII_LAUNCH_MAX_RANKS, &env->size);

    if (status == TRI_OK)
        status = read_int("RANK", 0, TRII_LAUNCH_MAX_RANKS, &env->rank);
    if (status == TRI_OK && where)
        status = read_master(env);
    /* Without LOCAL_*, as when somebody sets the four by hand: one host. */
    if (status == TRI_OK)
        status = trii_launch_env_int("LOCAL_WORLD_SIZE", 1, TRII_LAUNCH_MAX_RANKS, env->size,
                                     &env->local_size);
    if (status == TRI_OK)
        status =
            trii_launch_env_int("LOCAL_RANK", 0, TRII_LAUNCH_MAX_RANKS,
                                env->local_size == env->size ? env->rank : 0, &env->local_rank);
    if (status == TRI_OK)
        status =
            trii_launch_env_int("TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX, 0, &env->restart_count);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "env:// needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    env->agent_store = agent != NULL && strcmp(agent, "True") == 0;
    return trii_launch_env_check(env, "RANK", "WORLD_SIZE");
}

/* --- mpirun and srun -------------------------------------------------------------------- */

static int job_port(const char *job)
{
    uint32_t hash = 2166136261u; /* FNV-1a: the same on every rank is all that matters */

    for (; *job != '\0'; job++)
        hash = (hash ^ (unsigned char)*job) * 16777619u;
    return FIRST_JOB_PORT + (int)(hash % N_JOB_PORTS);
}

static tri_status read_mpirun(trii_launch_env *env, bool where)
{
    const char *job = text_of("PMIX_NAMESPACE");
    tri_status status = read_int("OMPI_COMM_WORLD_RANK", 0, TRII_LAUNCH_MAX_RANKS, &env->rank);

    if (status == TRI_OK)
        status = read_int("OMPI_COMM_WORLD_SIZE", 1, TRII_LAUNCH_MAX_RANKS, &env->size);
    if (status == TRI_OK)
        status = read_int("OMPI_COMM_WORLD_LOCAL_RANK", 0, TRII_LAUNCH_MAX_RANKS, &env->local_rank);
    if (status == TRI_OK)
        status = read_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1, TRII_LAUNCH_MAX_RANKS, &env->local_size);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "env:// under mpirun");
    job = job != NULL ? job : text_of("OMPI_MCA_ess_base_jobid");
    if (!where)
        return trii_launch_env_check(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    if (text_of("MASTER_ADDR") != NULL || job == NULL || env->local_size < env->size) {
        status = read_master(env);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "env:// under mpirun needs MASTER_ADDR and MASTER_PORT");
    } else {
        status = trii_launch_env_set_host(env, "127.0.0.1", 9);
        env->port = job_port(job);
    }
    return status == TRI_OK
               ? trii_launch_env_check(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
               : status;
}

/* Entry `node` of Slurm's counts per node, "2(x3),1" = 2,2,2,1; 0 if there is none. */
static int slurm_tasks_of(const char *text, int node)
{
    while (*text != '\0') {
        char *end;
        long tasks = strtol(text, &end, 10), repeat = 1;

        if (end == text)
            return 0;
        if (strncmp(end, "(x", 2) == 0) {
            repeat = strtol(end + 2, &end, 10);
            end += *end == ')';
        }
        if (node < repeat)
            return (int)tasks;
        node -= (int)repeat;
        text = end + (*end == ',');
    }
    return 0;
}

/* The first host of "node[003-007,12],other" or of a plain list. */
static tri_status slurm_first_host(trii_launch_env *env, const char *list)
{
    size_t prefix = strcspn(list, "[,"), digits = 0;
    char host[256];

    if (list[prefix] == '[')
        digits = strcspn(list + prefix + 1, "-,]");
    snprintf(host, sizeof(host), "%.*s%.*s", (int)prefix, list, (int)digits,
             list + prefix + (list[prefix] == '['));
    return trii_launch_env_set_host(env, host, strlen(host));
}

static tri_status read_srun_address(trii_launch_env *env)
{
    const char *job = text_of("SLURM_JOB_ID"), *step = text_of("SLURM_STEP_ID");
    const char *nodes = text_of("SLURM_STEP_NODELIST");
    char number[64];
    tri_status status;

    if (text_of("MASTER_ADDR") != NULL || job == NULL) {
        status = read_master(env);
        return status == TRI_OK
                   ? TRI_OK
                   : TRII_FAIL_CTX(status, "env:// under srun needs MASTER_ADDR and MASTER_PORT");
    }
    snprintf(number, sizeof(number), "%s.%s", job, step != NULL ? step : "");
    env->port = job_port(number);
    nodes = nodes != NULL ? nodes : text_of("SLURM_JOB_NODELIST");
    if (env->local_size == env->size)
        return trii_launch_env_set_host(env, "127.0.0.1", 9);
    if (nodes == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "env:// under srun: neither MASTER_ADDR nor SLURM_STEP_NODELIST is set");
    return slurm_first_host(env, nodes);
}

static tri_status read_srun(trii_launch_env *env, bool where)
{
    const char *counts = text_of("SLURM_STEP_TASKS_PER_NODE");
    const char *size_name =
        text_of("SLURM_STEP_NUM_TASKS") != NULL ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    int node = 0;
    tri_status status = read_int("SLURM_PROCID", 0, TRII_LAUNCH_MAX_RANKS, &env->rank);

    if (status == TRI_OK)
        status = read_int(size_name, 1, TRII_LAUNCH_MAX_RANKS, &env->size);
    if (status == TRI_OK)
        status = read_int("SLURM_LOCALID", 0, TRII_LAUNCH_MAX_RANKS, &env->local_rank);
    if (status == TRI_OK)
        status = trii_launch_env_int("SLURM_NODEID", 0, TRII_LAUNCH_MAX_RANKS, 0, &node);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "env:// under srun");
    counts = counts != NULL ? counts : text_of("SLURM_TASKS_PER_NODE");
    env->local_size = counts != NULL ? slurm_tasks_of(counts, node) : env->size;
    if (env->local_size <= 0 || env->local_size > env->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "env:// under srun: SLURM_STEP_TASKS_PER_NODE=%s says nothing of node %d",
                         counts != NULL ? counts : "", node);
    status = where ? read_srun_address(env) : TRI_OK;
    return status == TRI_OK ? trii_launch_env_check(env, "SLURM_PROCID", size_name) : status;
}

/* A batch script has SLURM_PROCID too, but a program that it runs without srun is alone. */
static bool is_srun(void)
{
    return text_of("SLURM_PROCID") != NULL &&
           (text_of("SLURM_STEP_NUM_TASKS") != NULL || text_of("SLURM_NTASKS") != NULL) &&
           (text_of("SLURM_STEP_ID") != NULL || text_of("SLURM_JOB_ID") == NULL);
}

tri_status trii_launch_env_who(trii_launch_env *env, bool where)
{
    if (text_of("RANK") != NULL || text_of("WORLD_SIZE") != NULL)
        return read_torchrun(env, where);
    if (text_of("OMPI_COMM_WORLD_RANK") != NULL)
        return read_mpirun(env, where);
    if (is_srun())
        return read_srun(env, where);
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
