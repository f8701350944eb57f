/*
 * own_part.h - a rank's part of a tensor that all ranks have alike, the whole included: a slice
 * whose gradient other ranks have a part in. The graph knows nothing of groups: the room above it
 * (traffic/) records what communicates.
 */
#ifndef TRII_OWN_PART_H
#define TRII_OWN_PART_H

#include <trireme/group.h>

#include "train/graph/step/step.h"

typedef struct trii_part_gradient trii_part_gradient;
/* Must live until the end of the step in which it is used. */
struct trii_part_gradient {
    /* Required. The gradient of the whole tensor, from that of this rank's part. */
    tri_status (*record)(const trii_part_gradient *own, trii_step *step, trii_vid g, trii_vid *out);
    tri_group *group; /* between whose ranks it communicates */
};

/* The elements start .. start + n of one dimension (tri_dist_scatter_to), or all of x
 * (tri_dist_copy_to). */
tri_status trii_rec_own_part(trii_step *step, trii_vid x, int dim, int64_t start, int64_t n,
                             const trii_part_gradient *gradient, trii_vid *out) TRI_MUST_CHECK;
tri_status trii_rec_own_whole(trii_step *step, trii_vid x, const trii_part_gradient *gradient,
                              trii_vid *out) TRI_MUST_CHECK;

/* f of both: where that is, as two numbers of 32 bits, which a double holds exactly and which are
 * written again in each step. NULL: the node is of another operation. */
const trii_part_gradient *trii_part_gradient_of(const trii_node *node);

#endif
