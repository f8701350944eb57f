/*
 * pipeline_loss.h - the loss of a batch, of its micro-batches' losses.
 */
#ifndef TRII_PIPELINE_LOSS_H
#define TRII_PIPELINE_LOSS_H

#include <trireme/pipeline.h>

typedef struct trii_pipeline_loss {
    tri_pipeline_loss_fn loss;
    tri_pipeline_count_fn count; /* NULL: of rows */
    void *arg;
    tri_tensor *target;  /* of the whole batch */
    tri_tensor *counted; /* of it, once it is; else NULL */
} trii_pipeline_loss;

/* What one micro-batch adds to the loss of the batch; share: of its rows. */
tri_status trii_pipeline_loss_of(trii_pipeline_loss *l, tri_tensor *output, tri_tensor *target,
                                 double share, tri_tensor **loss_out) TRI_MUST_CHECK;

#endif
