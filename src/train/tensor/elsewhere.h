/*
 * elsewhere.h - persistent tensors whose contents are not in their memory (tri_tensor.elsewhere),
 * since a strategy has divided them over ranks. A step gets them by operations that the strategy
 * records (train/dist/gathered.c); whatever reads or writes the tensor itself makes it whole first.
 */
#ifndef TRII_ELSEWHERE_H
#define TRII_ELSEWHERE_H

#include <trireme/group.h>
#include <trireme/tensor.h>

#include "base/compiler.h"

struct trii_step; /* train/graph/step/step.h */

typedef struct trii_elsewhere {
    const char *why; /* what is said where the tensor itself is read or written */
    /* The value that has the tensor's contents in this step, from now on until it is retired.
     * `old`: the retired value that its reader wants, whose contents they must be; -1: those of
     * now. */
    tri_status (*resolve)(struct trii_step *step, tri_tensor *tensor, int32_t old,
                          int32_t *value_out);
    /* Over which it is divided. */
    tri_group *(*ranks)(const tri_tensor *tensor);
    /* Collective: runs what pends; the tensor, and others, have their contents in memory, and
     * elsewhere is NULL, until close, which keeps what was written. */
    tri_status (*open)(tri_tensor *tensor);
    tri_status (*close)(tri_tensor *tensor);
    /* What this rank has of it (tri_tensor.held) was written. */
    void (*changed)(tri_tensor *tensor);
} trii_elsewhere;

/* Tensors that are made whole one after the other, so that few of them are at a time. Zeroed at
 * first. On all ranks alike: one that fails in between goes on with the next tensor all the same,
 * for its peers do. */
typedef struct trii_opened {
    tri_tensor *tensor;
    const trii_elsewhere *by;
    tri_group *group; /* of what was opened last; borrowed */
} trii_opened;
/* The tensor has its contents in memory until the next call. `status`: of this rank so far, which
 * is returned if it is a failure. */
tri_status trii_opened_next(trii_opened *opened, tri_tensor *tensor,
                            tri_status status) TRI_MUST_CHECK;
/* No tensor is needed any more. If one was opened, all ranks return the same: OK, or the failure of
 * one of them; else `status`. */
tri_status trii_opened_end(trii_opened *opened, tri_status status) TRI_MUST_CHECK;

/* ranks_agree.c. All ranks return the same: OK, or the failure of the lowest rank that has one, in
 * its words. group NULL: this process alone, whose status is returned. Collective; blocks. */
tri_status trii_ranks_agree(tri_group *group, tri_status status) TRI_MUST_CHECK;
/* The same where ranks meet for the first time in the user's `call` ("tri_save"), which failures
 * name: a rank that calls it alone meets whatever the others do. */
tri_status trii_ranks_meet(tri_group *group, const char *call, tri_status status) TRI_MUST_CHECK;

#endif
