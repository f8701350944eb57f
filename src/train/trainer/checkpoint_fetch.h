/*
 * checkpoint_fetch.h - tri_checkpoint_fetch of a checkpoint that is not the newest one.
 */
#ifndef TRII_CHECKPOINT_FETCH_H
#define TRII_CHECKPOINT_FETCH_H

#include <trireme/checkpoint.h>
#include <trireme/group.h>

/* The one of this step; -1: the newest. */
tri_status trii_checkpoint_fetch_step(tri_group *group, const char *folder, int64_t step,
                                      tri_checkpoint **checkpoint_out) TRI_MUST_CHECK;

#endif
