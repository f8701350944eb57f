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
