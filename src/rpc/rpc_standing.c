/*
 * rpc_standing.c - see rpc_standing.h.
 */
#include "rpc/rpc_standing.h"

#include "rpc/rpc_internal.h"

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

tri_rpc *trii_rpc_resolved(tri_rpc *rpc, const char *call)
{
    return rpc_resolve(&rpc, call) == TRI_OK ? rpc : NULL;
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
