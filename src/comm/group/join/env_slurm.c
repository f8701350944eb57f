/*
 * env_slurm.c - rank, size and store under srun.
 */
/* build: leaf */
#include "comm/group/join/env.h"

#include <string.h>

#include "base/err.h"

#define text_of trii_launch_env_text

/* Entry `node` of Slurm's counts per node, "2(x3),1" = 2,2,2,1; 0 if there is none. */
static int tasks_of(const char *text, int node)
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

tri_status trii_launch_slurm_host(const char *list, char host_out[256])
{
    char host[256];
    size_t used = 0;

    /* of every bracket the first entry; a comma outside of them ends the name */
    while (*list != '\0' && *list != ',' && used < sizeof(host) - 1) {
        size_t bytes = *list == '[' ? strcspn(++list, "-,]") : 1;

        if (bytes > sizeof(host) - 1 - used)
            bytes = sizeof(host) - 1 - used;
        memcpy(host + used, list, bytes);
        used += bytes;
        list += bytes;
        if (*list == '-' || *list == ',' || *list == ']') {
            const char *end = strchr(list, ']');
            const char *open = strchr(list, '[');

            if (end != NULL && (open == NULL || end < open))
                list = end + 1;
        }
    }
    host[used] = '\0';
    if (used == 0 || used == sizeof(host) - 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "\"%.40s\" does not begin with a host name", list);
    memcpy(host_out, host, used + 1);
    return TRI_OK;
}

static tri_status read_address(trii_launch_env *env)
{
    const char *nodes = text_of("SLURM_STEP_NODELIST");
    char host[256];
    tri_status status;

    if (text_of("MASTER_ADDR") != NULL || env->job[0] == '\0') {
        status = trii_launch_env_master(env);
        return status == TRI_OK
                   ? TRI_OK
                   : TRII_FAIL_CTX(status, "env:// under srun needs MASTER_ADDR and MASTER_PORT");
    }
    if (env->local_size == env->size)
        return trii_launch_env_meet_here(env);
    nodes = nodes != NULL ? nodes : text_of("SLURM_JOB_NODELIST");
    nodes = nodes != NULL ? nodes : text_of("SLURM_NODELIST");
    if (nodes == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "env:// under srun: neither MASTER_ADDR nor SLURM_STEP_NODELIST is set");
    status = trii_launch_slurm_host(nodes, host);
    return status == TRI_OK ? trii_launch_env_meet_at(env, host, strlen(host))
                            : TRII_FAIL_CTX(status, "SLURM_STEP_NODELIST");
}

/* "JOB.STEP"; one step of a heterogeneous job is one job for us. */
static void read_job(trii_launch_env *env)
{
    const char *job = text_of("SLURM_JOB_ID"), *step = text_of("SLURM_STEP_ID");

    job = job != NULL ? job : text_of("SLURM_JOBID");
    step = step != NULL ? step : text_of("SLURM_STEPID");
    if (job != NULL)
        snprintf(env->job, sizeof(env->job), "slurm %.40s.%.20s", job, step != NULL ? step : "");
}

tri_status trii_launch_srun(trii_launch_env *env, bool where)
{
    const char *counts = text_of("SLURM_STEP_TASKS_PER_NODE");
    const char *size_name =
        text_of("SLURM_STEP_NUM_TASKS") != NULL ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    int node = 0;
    tri_status status = trii_launch_env_ranks(env, "SLURM_PROCID", size_name);

    if (status == TRI_OK)
        status = trii_launch_env_need("SLURM_LOCALID", 0, TRII_WORLD_MAX_RANKS, &env->local_rank);
    if (status == TRI_OK)
        status = trii_launch_env_int("SLURM_NODEID", 0, TRII_WORLD_MAX_RANKS, 0, &node);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "env:// under srun");
    counts = counts != NULL ? counts : text_of("SLURM_TASKS_PER_NODE");
    env->local_size = counts != NULL ? tasks_of(counts, node) : env->size;
    if (env->local_size <= 0 || env->local_size > env->size)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "env:// under srun: SLURM_STEP_TASKS_PER_NODE=%s says nothing of node %d",
                         counts != NULL ? counts : "", node);
    read_job(env);
    status = where ? read_address(env) : TRI_OK;
    return status == TRI_OK ? trii_launch_env_check(env, "SLURM_PROCID", size_name) : status;
}

bool trii_launch_is_srun(void)
{
    return text_of("SLURM_PROCID") != NULL &&
           (text_of("SLURM_STEP_NUM_TASKS") != NULL || text_of("SLURM_NTASKS") != NULL) &&
           (text_of("SLURM_STEP_ID") != NULL || text_of("SLURM_STEPID") != NULL ||
            text_of("SLURM_JOB_ID") == NULL);
}
