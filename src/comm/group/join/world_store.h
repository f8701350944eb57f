/*
 * world_store.h - the store in which the ranks of the world meet. world.c opens and leaves it.
 */
#ifndef TRII_WORLD_STORE_H
#define TRII_WORLD_STORE_H

#include "comm/group/join/env.h"

#include <trireme/group.h>
#include <trireme/store.h>

typedef struct trii_world_store {
    tri_store *base;   /* owned: what join.h uses; NULL in a world of one, and in one whose store
                          the program gave */
    tri_store *store;  /* owned: a view of it that only this world writes to, or the program's */
    bool reports_ends; /* the launcher reports at base workers that ended */
    int size;
} trii_world_store;

/* Opens or serves it, and waits until all ranks have joined. Errors: TIMEOUT (names those that did
 * not), PEER_LOST (one ended before), STATE (another process has this rank), the store's own. */
tri_status trii_world_store_open(const trii_launch_env *env, int64_t timeout_ms,
                                 trii_world_store *ws_out) TRI_MUST_CHECK;
/* Whether a rank has gone since all have joined: what it has not written yet will never come. The
 * launcher reports it, else rank 0, which serves the store: a process that ended is not connected
 * any more. */
bool trii_world_store_lacks_one(void *world_store);
/* Of rank 0, whose store ends with it: waits until the others have seen a failure. Keeps the
 * thread's error line. */
void trii_world_store_linger(tri_store *store);
/* A rank whose settings are wrong says so where the others would wait for it until their deadline,
 * unless a launcher serves the store, which notices that it ended. Returns the failure. */
tri_status trii_world_store_refuse(const tri_init_options *opt, const char *url,
                                   tri_status mine) TRI_MUST_CHECK;
/* Without a word to the others: the world was not formed. */
void trii_world_store_release(trii_world_store *ws);
/* This rank leaves; rank 0, if it serves the store, last. Frees what is in ws. */
void trii_world_store_leave(const trii_launch_env *env, trii_world_store *ws, int64_t timeout_ms);

#endif
