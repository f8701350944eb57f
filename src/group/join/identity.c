/*
 * identity.c - see identity.h.
 */
/* build: leaf */
#include "group/join/identity.h"

#include <string.h>

#include "base/err.h"
#include "os/host.h"
#include "os/process.h"

void trii_identity_text(char who_out[TRII_IDENTITY_TEXT])
{
    char host[64];

    trii_host_name(host, sizeof(host));
    snprintf(who_out, TRII_IDENTITY_TEXT, "process %d on %s", trii_process_id(), host);
}

bool trii_identity_is_other(const char *who)
{
    char host[64], its[64];
    int pid = 0;

    trii_host_name(host, sizeof(host));
    return sscanf(who, "process %d on %63s", &pid, its) == 2 && strcmp(host, its) == 0 &&
           pid != trii_process_id() && trii_process_exists(pid);
}

/* OK if the value is our text, STATE with *theirs_out if it is another's. */
static tri_status compare(const char *value, const char *ours, char theirs_out[TRII_IDENTITY_TEXT])
{
    if (strcmp(value, ours) == 0)
        return TRI_OK;
    snprintf(theirs_out, TRII_IDENTITY_TEXT, "%s", value);
    return TRI_ERR_STATE;
}

/* Puts our text where nothing is. */
static tri_status claim(tri_store *store, const char *key, const char *ours,
                        char theirs_out[TRII_IDENTITY_TEXT])
{
    void *value = NULL;
    tri_status status = tri_store_compare_set(store, key, "", 0, ours, strlen(ours), &value, NULL);

    if (status == TRI_OK)
        status = compare(value, ours, theirs_out);
    tri_store_free(value);
    return status;
}

/* Waits for what rank 0 puts there. */
static tri_status await(tri_store *store, const char *key, const char *ours,
                        char theirs_out[TRII_IDENTITY_TEXT])
{
    void *value = NULL;
    tri_status status = tri_store_get(store, key, 0, &value, NULL);

    if (status == TRI_OK)
        status = compare(value, ours, theirs_out);
    tri_store_free(value);
    return status;
}

/* Two jobs that chose one port would wait for each other in vain. Rank 0 says whose store it is: if
 * whoever comes first did, a stranger could turn out the job itself. An agent's store has the
 * lives of one job, which may differ in size. */
tri_status trii_identity_claim_job(tri_store *store, const trii_launch_env *env)
{
    char ours[TRII_IDENTITY_TEXT], theirs[TRII_IDENTITY_TEXT];
    tri_status status;

    if (env->agent_store)
        snprintf(ours, sizeof(ours), "%s", *env->job != '\0' ? env->job : "no name");
    else
        snprintf(ours, sizeof(ours), "%s%s%d ranks", env->job, *env->job != '\0' ? ", " : "",
                 env->size);
    status = env->rank == 0 ? claim(store, "job", ours, theirs) : await(store, "job", ours, theirs);
    if (status == TRI_ERR_STATE)
        return TRII_FAIL(status,
                         "the store at %s port %d serves another job (%s), this is %s: "
                         "give each job a port of its own",
                         env->host, env->port, theirs, ours);
    return status;
}

tri_status trii_identity_is_taken(const trii_launch_env *env, const char *by)
{
    return TRII_FAIL(TRI_ERR_STATE,
                     "rank %d has already joined (%s) at the store %s port %d: one rank started "
                     "twice, or two jobs with one port",
                     env->rank, by, env->host, env->port);
}

tri_status trii_identity_claim_rank(tri_store *store, const trii_launch_env *env)
{
    char ours[TRII_IDENTITY_TEXT], theirs[TRII_IDENTITY_TEXT], key[32];
    tri_status status;

    trii_identity_text(ours);
    snprintf(key, sizeof(key), "rank/%d", env->rank);
    status = claim(store, key, ours, theirs);
    return status == TRI_ERR_STATE ? trii_identity_is_taken(env, theirs) : status;
}

tri_status trii_identity_drop_rank(tri_store *store, int rank)
{
    char key[32];

    snprintf(key, sizeof(key), "rank/%d", rank);
    return tri_store_delete(store, key, NULL);
}
