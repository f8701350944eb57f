/*
 * known.h - a context's table from persistent tensors to their values in its step.
 */
#ifndef TRII_KNOWN_H
#define TRII_KNOWN_H

#include "train/graph/step/step.h"

/* Whether a tensor will have a gradient once what pends has run. */
typedef enum trii_pending_grad {
    /* nothing pending changes it: tensor->has_grad and shows_grad are right */
    TRII_GRAD_AS_PUBLISHED,
    TRII_GRAD_NONE,     /* or it was cleared */
    TRII_GRAD_CONSUMED, /* an optimizer uses it; it can still be read */
    TRII_GRAD_THERE
} trii_pending_grad;

typedef struct trii_known {
    const tri_tensor *tensor;
    uint64_t generation; /* of the step that knows it; an entry of another step is free */
    trii_vid value;      /* its contents now; NO_VALUE: no longer a value of this step */
    /* its contents until another tensor that shares its memory is written (overlaps.h); NO_VALUE */
    trii_vid overwritten;
    int32_t found; /* tri_backward's: the tensor's place in its list, if it is there */
    trii_pending_grad grad;
} trii_known;

static inline size_t trii_known_hash(const tri_tensor *tensor)
{
    return ((size_t)(uintptr_t)tensor >> 4) * (size_t)UINT64_C(0x9e3779b97f4a7c15);
}

#endif
