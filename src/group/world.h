/*
 * world.h - what other rooms need of a group beside its public functions.
 */
#ifndef TRII_WORLD_H
#define TRII_WORLD_H

#include <trireme/group.h>

/* The world: what a NULL group means; borrowed, NULL if there is none. */
tri_group *trii_group_get_world(void);
/* tri_group_alloc, with its status. */
tri_status trii_group_alloc(tri_group *group, size_t bytes, void **p_out) TRI_MUST_CHECK;
/* As tri_work_test, but the time between two looks is no waiting: for those who compute meanwhile,
 * and wait for it in the end. */
tri_status trii_work_poll(tri_work *work) TRI_MUST_CHECK;
/* As tri_work_wait with the group's deadline, but gives up after so many nanoseconds, with
 * INPROGRESS and without a word; INT64_MAX: it does not. */
tri_status trii_work_wait_for(tri_work *work, int64_t for_ns) TRI_MUST_CHECK;
/* TRI_CHECK=order: this rank's next operation on the group is `what`, recorded at `where` ("" =
 * unknown). MISMATCH, with both, if another rank said that its operation of this number is
 * something else. Never waits for another rank: who comes first only says it. */
tri_status trii_group_compare_order(tri_group *group, const char *what,
                                    const char *where) TRI_MUST_CHECK;

#endif
