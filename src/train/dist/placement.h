/*
 * placement.h - what a parallel strategy says of a tensor (tri_tensor.placed): what arrives as its
 * gradient on each rank, and with which others it becomes whole.
 *
 * A parameter has one shape, name and initial value on all ranks. Its gradient is `partial` over
 * the ranks of its unit where each has the part of its own samples, until unit.h's
 * trii_unit_finish has recorded the sum; of a tensor that points nowhere it is whole as it is.
 */
#ifndef TRII_PLACEMENT_H
#define TRII_PLACEMENT_H

#include <trireme/tensor.h>

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
} trii_placed;

#endif
