/*
 * env_torchrun.c - rank, size and store under trirun and torchrun.
 */
/* build: leaf */
#include "comm/group/join/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/param.h"

/* What our launchers say of the store that they serve: "HOST PORT new|kept ERROR_FILE". */
typedef struct agent_store {
    char host[256];
    int port;
    char age[8];
} agent_store;

/* False: nothing is said, or what is said comes from a launcher further up. A launcher that runs as
 * a worker of trirun is told by TORCHELASTIC_ERROR_FILE, which it replaces and programs leave
 * alone.
 */
static bool find_agent_store(agent_store *store)
{
    const char *text = trii_param_text(TRII_PARAM_AGENT_STORE);
    const char *error_file = getenv("TORCHELASTIC_ERROR_FILE");
    int at = 0;

    return text != NULL &&
           sscanf(text, "%255s %d %7s%n", store->host, &store->port, store->age, &at) == 3 &&
           text[at] == ' ' && strcmp(text + at + 1, error_file != NULL ? error_file : "") == 0;
}

/* A program may give other numbers than the launcher's. */
static bool has_launchers_ranks(const trii_launch_env *env)
{
    trii_launch_env theirs = {0};

    return !env->given || (trii_launch_env_ranks(&theirs, "RANK", "WORLD_SIZE") == TRI_OK &&
                           theirs.rank == env->rank && theirs.size == env->size);
}

/* Decides which process serves at the place that MASTER_ADDR and MASTER_PORT, or a URL, name. */
static void find_server(trii_launch_env *env, bool where, int master_port)
{
    const char *agent = trii_launch_env_text("TORCHELASTIC_USE_AGENT_STORE");
    agent_store store;

    env->agent_store =
        agent != NULL && strcmp(agent, "True") == 0 && env->port == master_port; /* not past it */
    if (!env->agent_store || !find_agent_store(&store))
        return;
    if (env->local_size == env->size && *env->job == '\0')
        snprintf(env->job, sizeof(env->job), "workers of port %d", store.port);
    /* The program may have named a place of its own, as each tutorial of DDP does; only rank 0 can
     * serve there. If the port is the launcher's by chance, the store is, too, but the name may
     * mean an address of this host at which it is not served. */
    env->agent_store = env->port == store.port;
    /* the launcher reports there how its ranks end, by its numbers */
    env->new_store = env->agent_store && strcmp(store.age, "new") == 0 && has_launchers_ranks(env);
    if (env->agent_store && where)
        snprintf(env->host, sizeof(env->host), "%s", store.host);
}

tri_status trii_launch_torchrun(trii_launch_env *env, bool where)
{
    int port;
    tri_status status = trii_launch_env_ranks(env, "RANK", "WORLD_SIZE");

    if (status == TRI_OK && env->rank >= env->size) /* whatever else is missing */
        return trii_launch_env_check(env, "RANK", "WORLD_SIZE");
    if (status == TRI_OK && where &&
        !(env->given && env->size == 1)) /* a single rank meets no other */
        status = trii_launch_env_master(env);
    if (status == TRI_OK) /* which may lack, as when somebody sets the four by hand */
        status = trii_launch_env_local(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    if (status == TRI_OK)
        status =
            trii_launch_env_int("TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX, 0, &env->restart_count);
    port = env->port;
    if (status == TRI_OK && port != 0 && !where)
        status = trii_launch_env_int("MASTER_PORT", 1, 65535, 0, &port);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "env:// needs %sMASTER_ADDR and MASTER_PORT",
                             env->given ? "" : "RANK, WORLD_SIZE, ");
    if (trii_launch_env_text("TORCHELASTIC_RUN_ID") != NULL)
        snprintf(env->job, sizeof(env->job), "run %.80s",
                 trii_launch_env_text("TORCHELASTIC_RUN_ID"));
    find_server(env, where, port);
    return trii_launch_env_check(env, "RANK", "WORLD_SIZE");
}
