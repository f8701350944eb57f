/*
 * elsewhere.h - persistent tensors whose contents are not in their memory (tri_tensor.elsewhere),
 * since a strategy has divided them over ranks. A step gets them by operations that the strategy
 * records (train/dist/gathered.c); whatever reads or writes the tensor itself makes it whole first.
 */
#ifndef TRII_ELSEWHERE_H
#define TRII_ELSEWHERE_H

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
    /* Collective: runs what pends; the tensor, and others, have their contents in memory, and
     * elsewhere is NULL, until close, which keeps what was written. */
    tri_status (*open)(tri_tensor *tensor);
    tri_status (*close)(tri_tensor *tensor);
    /* What this rank has of it (tri_tensor.held) was written. */
    void (*changed)(tri_tensor *tensor);
} trii_elsewhere;

/* Tensors that are made whole one after the other, so that few of them are at a time. Zeroed at
 * first. On all ranks alike. */
typedef struct trii_opened {
    tri_tensor *tensor;
    const trii_elsewhere *by;
} trii_opened;
/* The tensor has its contents in memory until the next call. */
tri_status trii_opened_next(trii_opened *opened, tri_tensor *tensor) TRI_MUST_CHECK;
/* No tensor is needed any more. Returns `status`, or if that is OK, the failure of closing. */
tri_status trii_opened_end(trii_opened *opened, tri_status status) TRI_MUST_CHECK;

#endif
