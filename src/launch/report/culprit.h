/*
 * culprit.h - whose doing it was that a worker failed: who aborts a group ends the others with
 * ABORTED, and they may be gone before it.
 */
#ifndef TRII_LAUNCH_CULPRIT_H
#define TRII_LAUNCH_CULPRIT_H

#include "group/watch/flight_recorder.h"
#include "launch/worker/worker.h"

typedef struct trii_culprit {
    int rank;                            /* in the job; -1 = nobody is named */
    trii_worker *worker;                 /* NULL: on another host, or none of ours */
    char why[TRII_RECORD_FAILURE_BYTES]; /* the line that names it, or "" */
} trii_culprit;

/* Who aborted the group of `victim`, which failed, and the group of that one, up to the first; the
 * victim itself if others name it. Told by their flight records, and for ranks that have none by
 * what they printed last. */
void trii_culprit_find(const char *run_dir, trii_worker *workers, int n_workers,
                       trii_worker *victim, trii_culprit *culprit_out);

#endif
