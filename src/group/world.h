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

#endif
