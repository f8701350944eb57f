/*
 * rpc_standing.c - see rpc_standing.h.
 */
/* build: shown */
#include "comm/rpc/rpc_standing.h"

#include "comm/rpc/rpc_internal.h"

bool trii_rpc_is_in_join(tri_rpc *rpc, int rank, char name_out[TRI_RPC_MAX_NAME + 1])
{
    const rpc_peer *peer = NULL;
    bool joined;

    if (rpc_resolve(&rpc, "rpc_join") != TRI_OK || rank < 0 || rank >= rpc->size)
        return false;
    rpc_lock(rpc);
    if (rank != rpc->rank)
        peer = rpc_peer_named(rpc, rpc->names[rank]);
    joined = peer != NULL && peer->joined;
    snprintf(name_out, RPC_NAME, "%s", rpc->names[rank]);
    rpc_unlock(rpc);
    return joined;
}

tri_rpc *trii_rpc_resolved(tri_rpc *rpc, const char *call, bool blocks)
{
    if (rpc_resolve(&rpc, call) != TRI_OK || (blocks && rpc_may_block(call) != TRI_OK))
        return NULL;
    return rpc;
}

bool trii_rpc_own_again(tri_rpc *rpc, const char *name, const tri_rpc_object *type, void *object,
                        bool (*is_over)(const void *object), void **old_out)
{
    rpc_object *o;
    bool found;

    if (rpc_resolve(&rpc, "rpc_own") != TRI_OK)
        return false;
    rpc_lock(rpc);
    o = rpc_object_named(rpc, name);
    found = o != NULL && o->type == type && rpc->state == RPC_STATE_ON && is_over(o->object);
    if (found) {
        *old_out = o->object;
        o->object = object;
    }
    rpc_unlock(rpc);
    return found;
}

/* Locked, and unlocked meanwhile. */
static void linger(rpc_peer *peer, const atomic_int *called, int before)
{
    tri_rpc *rpc = peer->rpc;
    int64_t began;
    bool found = true;

    rpc_peer_use(peer);
    rpc_ring_stay_awake(peer->in);
    while (found && peer->state == RPC_PEER_UP && !peer->hung && rpc->n_requests == 0 &&
           atomic_load(called) == before) {
        rpc_unlock(rpc);
        found = rpc_spin_on(peer, called, before, &began);
        rpc_lock(rpc);
        rpc_read(peer);
    }
    if (!found && began != 0)
        rpc_spin_slept(&peer->spin, INT64_MAX); /* nobody knows how long it will be */
    rpc_stop_reading(peer);
    rpc_peer_unuse(peer);
}

void trii_rpc_linger(tri_rpc *rpc, const char *name, const atomic_int *called, int before)
{
    rpc_peer *peer;

    rpc_lock(rpc);
    peer = rpc_peer_named(rpc, name);
    if (peer != NULL && peer->in != NULL && rpc_may_read(peer))
        linger(peer, called, before);
    rpc_unlock(rpc);
}

void trii_rpc_beyond_begin(tri_rpc *rpc)
{
    rpc_use(rpc);
    rpc_lock(rpc);
    rpc->n_beyond++;
    rpc_unlock(rpc);
}

void trii_rpc_beyond_end(tri_rpc *rpc)
{
    rpc_lock(rpc);
    rpc->n_beyond--;
    rpc_changed(rpc);
    rpc_unlock(rpc);
    rpc_unuse(rpc);
}
