/*
 * shared_statistics.h - how batch statistics are shared between ranks. The graph knows nothing of
 * groups: the rooms above it (parallel/sync_norm) record what communicates.
 */
#ifndef TRII_SHARED_STATISTICS_H
#define TRII_SHARED_STATISTICS_H

#include <trireme/group.h>
#include <trireme/ops.h>

#include "train/graph/step/step.h"

typedef struct trii_exchange trii_exchange;
/* Both are required. It must live until the end of the step in which it is used, since gradients
 * call it, too; the calling thread records, and nothing blocks. */
struct trii_exchange {
    /* x [..] of each rank -> [size, ..], equal on all. */
    tri_status (*gather)(const trii_exchange *exchange, trii_step *step, trii_vid x, trii_vid *out);
    /* The sum over all ranks, differentiable: its gradient is again such a sum. */
    tri_status (*sum)(const trii_exchange *exchange, trii_step *step, trii_vid x, trii_vid *out);
    tri_group *group; /* of these ranks */
};

/* tri_batch_norm in training, by the statistics of all ranks that the exchange reaches, as if their
 * batches were one; the running statistics get the same bits everywhere. Batches may differ in
 * size, and be empty. All ranks must record it, and its gradient, in the same order. */
tri_tensor *trii_batch_norm_shared(tri_tensor *x, const tri_batch_norm_args *args,
                                   const trii_exchange *exchange);

#endif
