/*
 * join.h - how the ranks that start a world find each other in a store, and no rank of an earlier
 * start. world_store.c opens the store and calls this; the protocol is drawn in join.c.
 */
#ifndef TRII_JOIN_H
#define TRII_JOIN_H

#include <trireme/store.h>

#include "comm/group/join/env.h"
#include "store/own_address.h"

/**
 * Every rank calls it with the same store, as often as it joins; returns when all ranks have.
 *
 *   own       of a rank 0 that serves the store: whether it is the one that the others reach; NULL
 *             = it is
 *   mine      not OK: this rank cannot join, and the thread's error line says why. The others get
 *             that as their failure; rank 0 waits until they have come, other ranks do not
 *   view_out  owned by the caller: of the store, for keys of this world alone
 *
 * Says in the log who is missing. Errors: TIMEOUT (names those that are missing), PEER_LOST (names
 * one whose worker ended before it joined), STATE (another process has this rank, another job has
 * this store, the ranks disagree on how many they are: names both), the store's own. INPROGRESS: a
 * rank 0 that left an earlier world took its store with it; open it again, and join there.
 */
tri_status trii_join(tri_store *store, const trii_launch_env *env, trii_own_address *own,
                     tri_status mine, int64_t deadline_ns, tri_store **view_out) TRI_MUST_CHECK;
/* So that this rank may join again, maybe in another process. */
tri_status trii_join_leave(tri_store *store, int rank) TRI_MUST_CHECK;
/* The process that has a rank in the store of a world. */
typedef enum trii_join_holder {
    TRII_HOLDER_NONE,
    TRII_HOLDER_CLAIMED, /* it has not come to this world, but perhaps will */
    TRII_HOLDER_CAME
} trii_join_holder;
/* view: that of trii_join. */
trii_join_holder trii_join_holder_of(tri_store *store, tri_store *view, int rank);
/* Whether WHAT/rank is there; a store that fails says so elsewhere. */
bool trii_join_has(tri_store *store, const char *what, int rank);

#endif
