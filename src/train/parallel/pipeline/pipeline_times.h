/*
 * pipeline_times.h - when each action of a schedule would run if forwards and both parts of
 * backwards took one unit each, and messages none.
 */
#ifndef TRII_PIPELINE_TIMES_H
#define TRII_PIPELINE_TIMES_H

#include "train/parallel/pipeline/pipeline_schedule.h"

typedef struct trii_pipeline_times {
    trii_pipeline_action *actions; /* [ranks][n] */
    int64_t *begin;                /* of each */
    int64_t n;
    int64_t units; /* from the first begin to the last end */
} trii_pipeline_times;

/* Units that it takes. */
static inline int trii_pipeline_units(const trii_pipeline_action *a)
{
    return a->kind == TRII_PIPELINE_BACKWARD ? 2 : 1;
}

/* Of a shape that was checked. NO_MEMORY; INTERNAL: the lists wait for each other. fini is called
 * all the same. */
tri_status trii_pipeline_times_find(const trii_pipeline_shape *shape,
                                    trii_pipeline_times *times_out) TRI_MUST_CHECK;
void trii_pipeline_times_fini(trii_pipeline_times *times);
/* The share of the units in which the rank does nothing. */
double trii_pipeline_idle(const trii_pipeline_times *times, int rank);

#endif
