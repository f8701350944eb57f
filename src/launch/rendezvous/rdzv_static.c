/*
 * rdzv_static.c - the rendezvous in which everybody knows its rank: --node-rank, and a store at
 * --master-addr that the agent of rank 0 serves and the workers use too.
 *
 * Workers keep that store through restarts, as with torchrun, so its address does not change; but
 * unlike there, everybody first says that its workers are gone, and then rank 0 empties it.
 */
#include "launch/rendezvous/rdzv_inside.h"

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

/* All are here and none of their workers runs. */
static tri_status assemble(trii_rendezvous *r)
{
    char here[64], go[64];
    const char *keys[] = {go};
    char *value = NULL;
    int64_t n, deadline = trii_deadline_ms(r->join_ms);
    tri_status status;

    snprintf(here, sizeof(here), "trireme/%lld/stopped", (long long)r->round.number);
    snprintf(go, sizeof(go), "trireme/%lld/go", (long long)r->round.number);
    status = tri_store_add(r->kv, here, 1, &n);
    if (status == TRI_OK && n == r->round.group_size) {
        status = empty_store(r);
        return status == TRI_OK ? tri_store_set(r->kv, go, "1", 1) : status;
    }
    if (status == TRI_OK)
        status = trii_rdzv_read_keys(r, keys, 1, 1, deadline, &value, NULL);
    tri_store_free(value);
    if (status == TRI_ERR_TIMEOUT)
        status = TRII_FAIL(TRI_ERR_TIMEOUT, "job %s: not all of %d hosts were ready to start again",
                           r->id, r->round.group_size);
    return status;
}

tri_status trii_rdzv_join_static(trii_rendezvous *r)
{
    tri_status status = TRI_OK;

    if (r->kv == NULL) {
        r->round.group_rank = r->options->node_rank;
        r->round.group_size = r->options->max_nodes;
        status = tri_store_prefix(r->id, r->base, &r->kv);
        return status == TRI_OK ? trii_rdzv_claim(r) : status;
    }
    if (r->round.mixed) {
        trii_rdzv_stop_waker(r);
        return TRI_OK; /* torchrun's agents start their own workers again, alone */
    }
    trii_rdzv_stop_waker(r);
    r->round.number++;
    status = trii_rdzv_introduce(r);
    return status == TRI_OK ? assemble(r) : status;
}
