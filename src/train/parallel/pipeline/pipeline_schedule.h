/*
 * pipeline_schedule.h - which forward and backward of which micro-batch a rank records after which:
 * pure functions of the schedule's name and three numbers, the same on all ranks.
 *
 * Stages are dealt out in turn, stage s to rank s mod ranks; ZBV goes there and back, so that the
 * first rank has the last stage, too. Every list of actions fits together with those of the other
 * ranks: nobody waits for what comes later in a list that waits for it (pipeline_schedule_test.c).
 */
#ifndef TRII_PIPELINE_SCHEDULE_H
#define TRII_PIPELINE_SCHEDULE_H

#include <trireme/pipeline.h>

#define TRII_PIPELINE_MOST_STAGES 1024
#define TRII_PIPELINE_MOST_MICROBATCHES 65536

typedef struct trii_pipeline_shape {
    tri_pipeline_schedule schedule;
    int ranks;
    int stages; /* of all ranks */
    int microbatches;
} trii_pipeline_shape;

typedef enum trii_pipeline_kind {
    TRII_PIPELINE_FORWARD,
    TRII_PIPELINE_BACKWARD, /* all of it */
    TRII_PIPELINE_INPUT, /* the gradient of the stage's input, for which the stage before waits */
    TRII_PIPELINE_WEIGHT /* those of its parameters, for which the update waits */
} trii_pipeline_kind;

typedef struct trii_pipeline_action {
    trii_pipeline_kind kind;
    int stage; /* of all stages */
    int microbatch;
} trii_pipeline_action;

/* "1f1b", ...; NULL: there is no such schedule. */
const char *trii_pipeline_schedule_name(tri_pipeline_schedule schedule);
/* INVALID_ARG: the schedule cannot have these numbers; the line names some that it can have. */
tri_status trii_pipeline_shape_check(const trii_pipeline_shape *shape) TRI_MUST_CHECK;

/* The functions below are for shapes that were checked. */

/* The rank that has a stage. */
int trii_pipeline_rank_of(const trii_pipeline_shape *shape, int stage);
/* The global number of the rank's stage 0 <= local < stages / ranks, in ascending order. */
int trii_pipeline_stage_of(const trii_pipeline_shape *shape, int rank, int local);
/* Which of its rank's stages it is, in either order. */
static inline int trii_pipeline_local_of(const trii_pipeline_shape *shape, int stage)
{
    return stage / shape->ranks;
}
/* How many actions every rank has: one F and one B, or one F, one I and one W, for each of its
 * stages and each micro-batch. */
int64_t trii_pipeline_action_count(const trii_pipeline_shape *shape);
/* Writes them, in order: actions_out[trii_pipeline_action_count]. */
void trii_pipeline_actions(const trii_pipeline_shape *shape, int rank,
                           trii_pipeline_action *actions_out);
/* One micro-batch after the other through all stages and back, each backward as a whole: for steps
 * that run while they are recorded, in which no rank may send before its peer receives. Returns how
 * many these are, at most as many as above. */
int64_t trii_pipeline_actions_in_turn(const trii_pipeline_shape *shape, int rank,
                                      trii_pipeline_action *actions_out);

#endif
