/*
 * staged_updates.h - how often the parameters of all stages of a pipeline were updated, for
 * checkpoints: an optimizer has the numbers of its rank's.
 */
#ifndef TRII_STAGED_UPDATES_H
#define TRII_STAGED_UPDATES_H

#include "train/optim/optimizer.h"

/* INVALID_ARG: it is not one of the pipeline, whose peers would wait for it elsewhere. NULL: OK. */
tri_status trii_optimizer_check_stages(const tri_optimizer *optimizer,
                                       const trii_stages *stages) TRI_MUST_CHECK;
/* Whether the tensor has the optimizer's numbers of updates, and those are of a rank's stages. */
bool trii_optimizer_counts(const tri_optimizer *optimizer, const tri_tensor *tensor);
/* Of one that was checked: where those of this rank's parameters ([n_params]) are among those of
 * all stages, and how many these are. Collective over the pipeline; release with trii_free. Errors
 * on all ranks, or of the group. */
tri_status trii_optimizer_places(const tri_optimizer *optimizer, int64_t **places_out,
                                 int64_t *n_out) TRI_MUST_CHECK;
/* The numbers of updates of all. Likewise. */
tri_status trii_optimizer_gather_counts(const tri_optimizer *optimizer, int64_t **counts_out,
                                        int64_t *n_out) TRI_MUST_CHECK;

#endif
