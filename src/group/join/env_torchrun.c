/*
 * env_torchrun.c - rank, size and store under trirun and torchrun.
 */
/* build: leaf */
#include "group/join/env.h"

#include <string.h>

#include "base/err.h"
#include "base/param.h"

tri_status trii_launch_torchrun(trii_launch_env *env, bool where)
{
    const char *agent = trii_launch_env_text("TORCHELASTIC_USE_AGENT_STORE"), *fresh;
    char place[sizeof(env->host) + 16];
    int port;
    tri_status status = trii_launch_env_ranks(env, "RANK", "WORLD_SIZE");

    if (status == TRI_OK && env->rank >= env->size) /* whatever else is missing */
        return trii_launch_env_check(env, "RANK", "WORLD_SIZE");
    if (status == TRI_OK && where)
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
