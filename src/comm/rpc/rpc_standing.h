/*
 * rpc_standing.h - what rooms that stand on this one need of a worker beyond rpc.h.
 */
#ifndef TRII_RPC_STANDING_H
#define TRII_RPC_STANDING_H

#include <stdatomic.h>

#include <trireme/rpc.h>

/* The worker that NULL stands for here; NULL: there is none, or it belongs to a parent, or `blocks`
 * and this thread must not (an inline handler, a `done`, an event), with the line of a STATE. */
tri_rpc *trii_rpc_resolved(tri_rpc *rpc, const char *call, bool blocks);
/* Whether the worker of a rank of a closed set has said that it is in tri_rpc_join; its name. */
bool trii_rpc_is_in_join(tri_rpc *rpc, int rank, char name_out[TRI_RPC_MAX_NAME + 1]);
/* A named object of that type whose service is over becomes another one, references to it
 * included; *old_out is what it was, to be released by the caller. False: there is none, or
 * `is_over` says no, which is called with a lock. */
bool trii_rpc_own_again(tri_rpc *rpc, const char *name, const tri_rpc_object *type, void *object,
                        bool (*is_over)(const void *object), void **old_out);
/* Around what goes on for a request after its answer, begun before that: tri_rpc_leave waits for it
 * as for the request. */
void trii_rpc_beyond_begin(tri_rpc *rpc);
void trii_rpc_beyond_end(tri_rpc *rpc);
/* Between those two, by a thread that has answered a request of `peer`: it reads what comes next
 * itself, so that no other thread has to wake it for that. It does so for as long as looking has
 * paid before, and while all is answered here and `*called` is `before`. */
void trii_rpc_linger(tri_rpc *rpc, const char *peer, const atomic_int *called, int before);

#endif
