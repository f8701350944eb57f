/*
 * samples.h - the samples that a loss is the mean of, by which ranks are weighted.
 */
#ifndef TRII_SAMPLES_H
#define TRII_SAMPLES_H

#include <trireme/group.h>

#include "train/graph/step/step.h"

/* The samples under a loss. The mean divides by `divisor`, an f64 scalar, or by `count` if that is
 * NO_VALUE. */
typedef struct trii_samples {
    int64_t count;
    trii_vid divisor;
} trii_samples;

/* The part of a step under a loss, or several. */
typedef struct trii_under {
    int32_t last_node;      /* the last node that they depend on; -1 = none */
    const int32_t *reached; /* for each value: NO_VALUE = they depend on it, by a gradient */
    int32_t *scratch;       /* room for as many numbers */
} trii_under;

/* Finds them: 1 where there is no mean. May record what divides. */
tri_status trii_samples_find(trii_step *step, const trii_under *under,
                             trii_samples *samples_out) TRI_MUST_CHECK;
/* Whether the gradients that will be recorded are sums over ranks of this group: if so, these must
 * be weighted before those sums or not at all. Sums over a group that has no other rank of it, such
 * as another axis of a mesh, change nothing for it. */
bool trii_samples_cross_ranks(const trii_step *step, const trii_under *under,
                              const tri_group *group);
/* The loss's gradients go on at other workers: its samples are added to what trii_samples_take
 * gives; known: their number, -1 = it is to be found. */
tri_status trii_samples_go_elsewhere(trii_step *step, const trii_under *under,
                                     int64_t known) TRI_MUST_CHECK;
/* The samples of all backward passes since the last call whose gradients went on at other workers
 * (trii_host_kind.grad_elsewhere). */
int64_t trii_samples_take(trii_step *step);

#endif
