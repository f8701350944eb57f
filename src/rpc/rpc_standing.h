/*
 * rpc_standing.h - what a worker knows of the others, for rooms that stand on this one.
 */
#ifndef TRII_RPC_STANDING_H
#define TRII_RPC_STANDING_H

#include <trireme/rpc.h>

/* Whether the worker of a rank of a closed set has said that it is in tri_rpc_join; its name. */
bool trii_rpc_is_in_join(tri_rpc *rpc, int rank, char name_out[TRI_RPC_MAX_NAME + 1]);

#endif
