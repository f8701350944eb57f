/*
 * placement.h - what a parallel strategy says of a tensor (tri_tensor.placed): what of it this rank
 * updates, what arrives as its gradient, and with which others that becomes whole.
 *
 * A parameter has one shape, name and initial value on all ranks. Its gradient is `partial` over
 * the ranks of its unit where each has the part of its own samples, until unit.h's
 * trii_unit_finish has recorded the sum; of a tensor that points nowhere it is whole as it is.
 *
 * Of a sharded parameter each rank updates its piece, a range of the elements in plain order, which
 * has gradient, optimizer state and average of its own. Ranges begin and end at multiples of
 * TRII_PIECE_BLOCK elements, or where the tensor does, so that sums of whole blocks (norms) are the
 * same however the tensor is divided.
 */
#ifndef TRII_PLACEMENT_H
#define TRII_PLACEMENT_H

#include "train/tensor/persistent.h"
#include "train/tensor/piece.h"

struct trii_unit;

typedef enum trii_placement {
    TRII_PLACEMENT_WHOLE,  /* all of it, the same on all ranks */
    TRII_PLACEMENT_PARTIAL /* the sum over the ranks is the whole */
} trii_placement;

/* Owned by the unit, while it lives. */
typedef struct trii_placed {
    struct trii_unit *unit; /* the ranks and the others */
    tri_tensor *tensor;     /* a reference is held */
    const char *name;       /* the module's */
    /* What tri_backward leaves in it. WHOLE: nothing is done, since the tensor did not require a
     * gradient when the unit was made; a gradient that it gets all the same is refused. */
    trii_placement gradient;
    int index; /* PARTIAL: among the unit's parameters */
    /* [count], a range of the tensor's memory; count is 0 where other ranks have all of it. Owned.
     * NULL: this rank updates the whole tensor. */
    tri_tensor *piece;
    int64_t start; /* the number of its first element */
    /* Parameters of different numbers share no bucket: what the program says is gathered together.
     */
    int group;
} trii_placed;

/* Of the sums of squares that a norm is made of: train/graph/ops/grad_norm.c. */
#define TRII_PIECE_BLOCK 4096

/* The tensor that this rank updates in the place of a parameter: its piece, or itself. */
static inline tri_tensor *trii_home(tri_tensor *tensor)
{
    return tensor->placed != NULL && tensor->placed->piece != NULL ? tensor->placed->piece : tensor;
}

#endif
