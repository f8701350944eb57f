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
    tri_group *replicas; /* counts are over the batches of all of these ranks; NULL: of this one */
    /* Once it is counted; else NULL. With replicas the mean of their counts: since their gradients
     * are averaged, each divides by the count of all over their number. */
    tri_tensor *counted;
} trii_pipeline_loss;

/* What one micro-batch adds to the loss of the batch; share: of its rows. */
tri_status trii_pipeline_loss_of(trii_pipeline_loss *l, tri_tensor *output, tri_tensor *target,
                                 double share, tri_tensor **loss_out) TRI_MUST_CHECK;
/* Of what the micro-batches here have added up to: the loss of all replicas' batches. Where they
 * are counted together only. */
tri_tensor *trii_pipeline_loss_of_all(const trii_pipeline_loss *l, tri_tensor *loss);

#endif
