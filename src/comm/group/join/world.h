/*
 * world.h - what other rooms need of a group beside its public functions.
 */
#ifndef TRII_WORLD_H
#define TRII_WORLD_H

#include <trireme/group.h>

/* The world: what a NULL group means; borrowed, NULL if there is none. */
tri_group *trii_group_get_world(void);
/* What stands for a group that could not be found: it has no ranks, and every call with it fails
 * with the line that is the last error of this thread now, on any thread. */
tri_group *trii_group_not_found(void);
/* How a call finds its group: NULL becomes the world. STATE: there is none; INVALID_ARG: this
 * process is not a member. Both begin with the call's name. */
tri_status trii_group_resolve(tri_group **group_io, const char *call) TRI_MUST_CHECK;
/* Whether the peer of a call that ended with PEER_LOST left the group in order: its engine tells
 * that from a death, and has seen none. Plug-ins cannot tell: false. */
bool trii_group_was_left(const tri_group *group);
/* Whether groups reduce numbers of this type like that. */
tri_status trii_reduction_check(tri_dtype dtype, tri_redop op) TRI_MUST_CHECK;
/* Whether a rank other than this one is in both groups, of which it is a member. Groups that were
 * not made from one have ranks that nobody can compare: true, unless one has no other rank. */
bool trii_group_meets(const tri_group *a, const tri_group *b);
/* Of no other group of this process, not even of a later one at this address; never 0. */
uint64_t trii_group_number(const tri_group *group);
/* UNSUPPORTED: the engine of this group takes memory of a device only. */
tri_status trii_group_takes_host_memory(const tri_group *group) TRI_MUST_CHECK;
/* tri_group_alloc, with its status. */
tri_status trii_group_alloc(tri_group *group, size_t bytes, void **p_out) TRI_MUST_CHECK;
/* As tri_work_test, but the time between two calls does not count as waiting: for callers that
 * compute in between and wait at the end. */
tri_status trii_work_poll(tri_work *work) TRI_MUST_CHECK;
/* As tri_work_wait with the group's deadline, but gives up after so many nanoseconds, with
 * INPROGRESS and no error line; INT64_MAX: never. */
tri_status trii_work_wait_for(tri_work *work, int64_t for_ns) TRI_MUST_CHECK;
/* As tri_all_gather_v. Ranks whose tags differ do not gather the same: MISMATCH. */
tri_status trii_all_gather_tagged(tri_group *group, const void *src, void *dst,
                                  const size_t *counts, tri_dtype dtype, int tag,
                                  tri_work **work_out) TRI_MUST_CHECK;
/* Bytes of the calls under the handle: of a buffer of this rank in each. NULL: 0. */
size_t trii_group_work_bytes(const tri_work *work);
/* Puts aside the batch that this thread has begun, until it is set again: calls that a library
 * makes of its own accord block, and do not belong to the program's batch. NULL: no batch. Returns
 * the previous one. */
tri_work *trii_batch_set(tri_work *batch);
/* TRI_CHECK=order: this rank's next operation on the group is `what`, recorded at `where` ("" =
 * unknown). If another rank said that its operation of this number is something else, the group
 * fails: MISMATCH, with both. Never waits for another rank: the first to come only leaves word. */
tri_status trii_group_compare_order(tri_group *group, const char *what,
                                    const char *where) TRI_MUST_CHECK;

/* The same of a message: sender and receiver compare the n-th of a pair with one tag. */
typedef struct trii_compared_message {
    bool sends;
    int peer;
    const char *what;  /* must be the same: "8 f32"; below 100 characters */
    const char *tag;   /* "tag 7"; below 100 characters */
    const char *where; /* "" = unknown */
} trii_compared_message;
tri_status trii_group_compare_message(tri_group *group,
                                      const trii_compared_message *m) TRI_MUST_CHECK;
/* "; messages that have not met: ..": some of those to or from this rank that only one side has
 * started, for a line about a wait that was too long; "" if there are none. */
void trii_group_name_unmet(tri_group *group, char *text, size_t size);

#endif
