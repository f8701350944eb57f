/*
 * pipeline_random.h - random operations of a pipeline draw what those of one process draw, which
 * records the micro-batches one after the other: their numbers in the step are counted over all
 * stages and micro-batches.
 *
 * They are known once this rank has recorded the pass, and are set then: what a stage draws for the
 * first micro-batch is told with its result, and the last stage tells all ranks the sum. Each
 * micro-batch has to draw as often as the first. Not under TRI_EAGER=1, which has drawn by then.
 *
 * A mask of cut features is a part of that of the whole, whatever stage has cut them.
 */
#ifndef TRII_PIPELINE_RANDOM_H
#define TRII_PIPELINE_RANDOM_H

#include "train/parallel/pipeline/pipeline_internal.h"

/* The random operations of a stage's forward of one micro-batch. */
typedef struct trii_drawn {
    uint32_t first, n; /* as this rank has counted them */
} trii_drawn;

typedef struct trii_pipeline_random {
    const trii_pipeline *p;
    trii_step *step; /* NULL: numbers stay as they are */
    trii_pipeline_call call;
    int32_t first_node;          /* of the pass */
    uint32_t base;               /* random operations of the step before it */
    trii_drawn *drawn;           /* [n_local][microbatches] */
    int64_t *before;             /* [n_local]: by all earlier stages, for one micro-batch */
    trii_cut_features *features; /* [n_local]: what the stage has cut last */
    int64_t of_all;              /* stages, once the last one is recorded here; -1: not here */
} trii_pipeline_random;

/* NO_MEMORY; end is called all the same. */
tri_status trii_pipeline_random_begin(trii_pipeline_random *r, const trii_pipeline *p,
                                      trii_step *step, trii_pipeline_call call) TRI_MUST_CHECK;
void trii_pipeline_random_end(trii_pipeline_random *r);
/* Around what a stage records for a micro-batch. before: what earlier stages draw for one. */
void trii_pipeline_random_enter(trii_pipeline_random *r, int local, int microbatch,
                                trii_pipeline_drawn before);
tri_status trii_pipeline_random_leave(trii_pipeline_random *r, int local,
                                      int microbatch) TRI_MUST_CHECK;
/* By all stages up to this one, for one micro-batch: what the next one has before it. */
trii_pipeline_drawn trii_pipeline_random_until(const trii_pipeline_random *r, int local);
/* All is recorded: so many micro-batches. */
tri_status trii_pipeline_random_set(trii_pipeline_random *r, int microbatches) TRI_MUST_CHECK;

#endif
