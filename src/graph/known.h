/*
 * known.h - a context's table from persistent tensors to their values in its step.
 */
#ifndef TRII_KNOWN_H
#define TRII_KNOWN_H

#include "graph/step.h"

/* Whether a tensor will have a gradient once what pends has run. */
typedef enum trii_pending_grad {
    TRII_GRAD_AS_PUBLISHED, /* nothing that pends changes it: tensor->has_grad, shows_grad */
    TRII_GRAD_NONE,         /* or it was cleared */
    TRII_GRAD_CONSUMED,     /* an optimizer uses it; it can be looked at all the same */
    TRII_GRAD_THERE
} trii_pending_grad;

typedef struct trii_known {
    const tri_tensor *tensor;
    uint64_t generation; /* of the step that knows it; another's: a free place */
    trii_vid value;      /* its contents now; NO_VALUE: they are no longer of this step */
    int32_t found;       /* tri_backward's: the tensor's place in its list, if it stands there */
    trii_pending_grad grad;
} trii_known;

static inline size_t trii_known_hash(const tri_tensor *tensor)
{
    return ((size_t)(uintptr_t)tensor >> 4) * (size_t)UINT64_C(0x9e3779b97f4a7c15);
}

#endif
