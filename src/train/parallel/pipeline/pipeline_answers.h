/*
 * pipeline_answers.h - when gradients that a rank has sent to the stage before have surely come
 * there, so that their memory is free: at the next message from the rank of that stage which its
 * list has after the backward that needed the gradient. Nobody waits for it then.
 */
#ifndef TRII_PIPELINE_ANSWERS_H
#define TRII_PIPELINE_ANSWERS_H

#include "train/graph/step/step.h"
#include "train/parallel/pipeline/pipeline_schedule.h"

#define TRII_PIPELINE_ANSWERS_TAKEN 8 /* at once, at most */

typedef struct trii_pipeline_answer {
    trii_vid token; /* of the gradient's send */
    int peer;
    int64_t place; /* of the backward that needs it, in the peer's list */
} trii_pipeline_answer;

typedef struct trii_pipeline_answers {
    const trii_pipeline_shape *shape; /* the caller's */
    int64_t *places; /* [local stage][micro-batch]: forward and end of backward of the one before */
    trii_pipeline_answer *list;
    int n;
} trii_pipeline_answers;

/* NO_MEMORY; fini is called all the same. */
tri_status trii_pipeline_answers_init(trii_pipeline_answers *answers,
                                      const trii_pipeline_shape *shape, int rank) TRI_MUST_CHECK;
void trii_pipeline_answers_fini(trii_pipeline_answers *answers);
/* The gradient of a stage's input has been sent. */
void trii_pipeline_answers_add(trii_pipeline_answers *answers, int stage, int microbatch,
                               trii_vid token);
/* Tokens of what has come when the input of this stage comes: how many. */
int trii_pipeline_answers_take(trii_pipeline_answers *answers, int stage, int microbatch,
                               trii_vid tokens_out[TRII_PIPELINE_ANSWERS_TAKEN]);

#endif
