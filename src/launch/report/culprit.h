/*
 * culprit.h - which worker's failure is the cause of the others'.
 *
 * The exit statuses and the flight records decide: a record names the first failure of its rank's
 * groups. Only of a worker without a record do its last lines on stderr count.
 */
#ifndef TRII_LAUNCH_CULPRIT_H
#define TRII_LAUNCH_CULPRIT_H

#include "inspect/why.h"
#include "launch/worker/worker.h"

#define TRII_REPORT_LINES 12 /* of a worker's stderr that are searched and shown */

/* How likely a worker's failure is the cause of the others', the most likely last. */
typedef enum trii_blame {
    TRII_BLAME_VICTIM, /* it lost a peer, another rank aborted its group, or sent it a NaN */
    TRII_BLAME_OWN,    /* it failed by itself */
    TRII_BLAME_KILLED  /* by a signal */
} trii_blame;

/* Who aborts a group ends the others with ABORTED, and they may be gone before it. */
typedef struct trii_culprit {
    int rank;                            /* in the job; -1 = nobody is named */
    trii_worker *worker;                 /* NULL: on another host, or none of ours */
    char why[TRII_RECORD_FAILURE_BYTES]; /* the line that names it, or "" */
} trii_culprit;

/* The record of a rank in the job, or NULL. */
const trii_record_file *trii_culprit_log(const trii_why_job *records, int rank);
/* Of a worker that failed. */
trii_blame trii_culprit_blame(const trii_why_job *records, trii_worker *worker);
/* It printed what TRI_CHECK=nan says of the rank that made the first NaN. */
bool trii_culprit_made_nan(trii_worker *worker);
/* Who aborted the group of `victim`, which failed, and the group of that one, up to the first; the
 * victim itself if others name it. */
void trii_culprit_find(const trii_why_job *records, trii_worker *workers, int n_workers,
                       trii_worker *victim, trii_culprit *culprit_out);

#endif
