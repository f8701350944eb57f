/*
 * rdzv_static.c - the rendezvous in which everybody knows its rank: --node-rank, and a store at
 * --master-addr that the agent of rank 0 serves and the workers use too.
 *
 * Workers keep that store through restarts, as with torchrun, so its address does not change; but
 * unlike there, everybody first says that its workers are gone, and then rank 0 empties it. That
 * goes for the agent that comes in the place of one that was lost, too.
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"

/* The workers' keys: all that are not the agents'. */
static tri_status empty_store(trii_rendezvous *r)
{
    char **keys = NULL;
    int64_t n = 0;
    size_t own = strlen(r->id);
    tri_status status = tri_store_list_keys(r->base, &keys, &n);

    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        bool existed;

        if (strncmp(keys[i], r->id, own) == 0 && keys[i][own] == '/')
            continue;
        status = tri_store_delete(r->base, keys[i], &existed);
    }
    tri_store_free(keys);
    return status;
}

/* Who comes in the place of another may have another number of workers. */
static tri_status forget_ranks(trii_rendezvous *r)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < r->round.group_size && status == TRI_OK; i++) {
        char key[64];
        bool existed;

        snprintf(key, sizeof(key), "torchelastic/assigned_ranks/%d", i);
        status = tri_store_delete(r->kv, key, &existed);
    }
    return status;
}

static void stopped_key(const trii_rendezvous *r, int rank, char *key, size_t bytes)
{
    snprintf(key, bytes, "trireme/%lld/stopped/%d", (long long)r->round.number, rank);
}

/* One after the other: of a host that is lost this can take long. */
static tri_status await_all(trii_rendezvous *r, int64_t deadline_ns)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < r->round.group_size && status == TRI_OK; i++) {
        char key[64], *value = NULL;
        const char *keys[] = {key};

        stopped_key(r, i, key, sizeof(key));
        trii_rdzv_wait_for(r, i);
        status = trii_rdzv_read_keys(r, keys, 1, 1, deadline_ns, &value, NULL);
        tri_store_free(value);
        if (status == TRI_ERR_TIMEOUT)
            status = TRII_FAIL(TRI_ERR_TIMEOUT,
                               "job %s: the host of --node-rank %d was not ready to start again "
                               "within %g s: start its agent there",
                               r->id, i, (double)r->join_ms / 1000);
    }
    return status;
}

/* All are here and none of their workers runs: rank 0 waits for that, the others for its word. */
static tri_status assemble(trii_rendezvous *r)
{
    char key[64];
    const char *keys[] = {key};
    char *value = NULL;
    int64_t deadline = trii_deadline_ms(r->join_ms);
    tri_status status;

    stopped_key(r, r->round.group_rank, key, sizeof(key));
    status = tri_store_set(r->kv, key, "1", 1);
    snprintf(key, sizeof(key), "trireme/%lld/go", (long long)r->round.number);
    if (r->round.group_rank == 0) {
        if (status == TRI_OK)
            status = await_all(r, deadline);
        if (status == TRI_OK)
            status = empty_store(r);
        if (status == TRI_OK)
            status = forget_ranks(r);
        return status == TRI_OK ? tri_store_set(r->kv, key, "1", 1) : status;
    }
    trii_rdzv_wait_for(r, -1);
    if (status == TRI_OK)
        status = trii_rdzv_read_keys(r, keys, 1, 1, deadline, &value, NULL);
    tri_store_free(value);
    if (status == TRI_ERR_TIMEOUT)
        status = TRII_FAIL(TRI_ERR_TIMEOUT,
                           "job %s: not all of %d hosts were ready to start again within %g s",
                           r->id, r->round.group_size, (double)r->join_ms / 1000);
    return status;
}

tri_status trii_rdzv_join_static(trii_rendezvous *r)
{
    tri_status status = TRI_OK;

    if (r->kv == NULL) {
        r->round.group_rank = r->options->node_rank;
        r->round.group_size = r->options->max_nodes;
        status = tri_store_prefix(r->id, r->base, &r->kv);
        if (status == TRI_OK)
            status = trii_rdzv_claim(r);
        if (status == TRI_OK)
            trii_rdzv_enter(r, TRII_RDZV_JOINING);
        if (status != TRI_OK || r->round.number == 0)
            return status;
    } else {
        trii_rdzv_watch_stop(r);
        if (r->round.mixed)
            return TRI_OK; /* torchrun's agents start their own workers again, alone */
        r->round.number++;
    }
    status = trii_rdzv_introduce(r);
    return status == TRI_OK ? assemble(r) : status;
}
