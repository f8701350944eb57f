/*
 * incarnation.h - a rank that joins several times at one store: a worker may be a script that runs
 * several programs one after the other, and a program may try again after a timeout. Each time is
 * a turn.
 */
#ifndef TRII_INCARNATION_H
#define TRII_INCARNATION_H

#include <trireme/store.h>

#include "group/join/env.h"

/**
 * A view of the store for the n-th time that this rank joins there. A turn in which this rank did
 * not meet the others is still on: a program that tries again finds them where they wait, or have
 * met (*again_out). The same rank may take a turn in two processes at once: one of them fails.
 *
 * Errors: STATE (another process that lives has this rank; names it), and the store's own.
 */
tri_status trii_incarnation_take(tri_store *store, const trii_launch_env *env, tri_store **view_out,
                                 bool *again_out) TRI_MUST_CHECK;
/* With the view: all have come; and this rank has left. */
tri_status trii_incarnation_joined(tri_store *view, int rank) TRI_MUST_CHECK;
tri_status trii_incarnation_left(tri_store *view, int rank) TRI_MUST_CHECK;

#endif
