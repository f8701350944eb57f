/*
 * comparison.h - each rank of a group says what it has, and all judge whether that goes together,
 * as an operation of a step.
 */
#ifndef TRII_COMPARISON_H
#define TRII_COMPARISON_H

#include <trireme/group.h>

#include "train/graph/step/step.h"

/* all: what the ranks of the group have given, one after the other. OK, or a failure of the step
 * with its line; the same on all ranks. */
typedef tri_status (*trii_judge)(const tri_group *group, const void *all);

/* own: [bytes], as many on each rank, of words of 8; copied. Collective: all ranks of the group
 * record it. */
tri_status trii_record_comparison(trii_step *step, tri_group *group, const void *own, size_t bytes,
                                  trii_judge judge) TRI_MUST_CHECK;

#endif
