/*
 * awaited.h - a gradient that other ranks of a group wait for from the moment in which this rank
 * has recorded its operation: where the step fails before the gradient is recorded, too, they get
 * the reason instead.
 */
#ifndef TRII_AWAITED_H
#define TRII_AWAITED_H

#include <trireme/group.h>

#include "train/graph/step/step.h"
#include "train/graph/step/witness.h"

/* Lives until the end of the step, zeroed at first. */
typedef struct trii_awaited {
    trii_witness witness; /* first */
    tri_group *group;     /* NULL: nobody waits any more */
} trii_awaited;

void trii_await(trii_step *step, trii_awaited *awaited, tri_group *group);
/* The gradient is recorded, or it never will be, on no rank. */
static inline void trii_await_no_more(trii_awaited *awaited)
{
    awaited->group = NULL;
}

#endif
