/*
 * culprit.h - which worker's failure is the cause of the others'.
 *
 * The exit statuses and the flight records decide: a record names the first failure of its rank's
 * groups. Only of a worker without a record do its last lines on stderr count.
 */
#ifndef TRII_LAUNCH_CULPRIT_H
#define TRII_LAUNCH_CULPRIT_H

#include "launch/inspect/why.h"
#include "launch/report/error_file.h"
#include "launch/report/memory_kills.h"
#include "launch/worker/worker.h"

#define TRII_REPORT_LINES 12 /* of a worker's stderr that are searched and shown */

/* How likely a worker's failure is the cause of the others', the most likely last. */
typedef enum trii_blame {
    TRII_BLAME_VICTIM, /* it lost a peer, another rank aborted its group, or sent it a NaN */
    TRII_BLAME_OWN,    /* it failed by itself */
    TRII_BLAME_KILLED  /* by a signal */
} trii_blame;

/* A rank that aborts a group ends the others with ABORTED, and they may be gone before it. */
typedef struct trii_culprit {
    int rank;                            /* in the job; -1 = none is named */
    char why[TRII_RECORD_FAILURE_BYTES]; /* the line that names it, or "" */
} trii_culprit;

/* Of a worker that failed. */
trii_blame trii_culprit_blame(const trii_why_job *records, trii_worker *worker);
/* It is a victim by its words alone, so that the cause may still be ending: an interpreter closes
 * its connections long before. Where there are flight records the cause has ended when they say
 * so. */
bool trii_culprit_is_ahead(const trii_why_job *records, trii_worker *worker);
/* It printed what TRI_CHECK=nan says of the rank that made the first NaN. */
bool trii_culprit_made_nan(trii_worker *worker);
/* Which rank aborted the group of `victim`, which failed, and which that one's, up to the first;
 * the victim itself if others name it. */
void trii_culprit_find(const trii_why_job *records, trii_worker *workers, int n_workers,
                       trii_worker *victim, trii_culprit *culprit_out);

typedef struct trii_failure {
    trii_worker *workers; /* all of this host, by local rank; none is live */
    int n_workers;
    trii_worker *cause; /* the first that was seen to fail, not NULL; then the one that was found */
    trii_blame blame;   /* its, once it was found */
    const char *program;             /* as the user named it */
    const char *error_dir;           /* holds LOCAL_RANK/error.json; NULL = no error files */
    const trii_memory_kills *before; /* the counters when the workers started */
    const char *run_dir;             /* holds the flight records */
    /* Once the cause was found: what the others did, if it ended with status 0 in the middle. */
    char early[400];
    trii_culprit culprit; /* and the rank that by the failed ones aborted their group */
} trii_failure;

/* Finds the cause: deaths are seen in the order in which they are complete, so a worker whose end
 * began earlier, or that is not a victim of another, takes the place of the first that was seen; so
 * does the one that aborted its group, by the flight records, and one that ended with status 0 in
 * the middle of the job, if the others failed because it was gone. */
void trii_failure_find_cause(trii_failure *failure);
/* "was killed by SIGSEGV", "returned 0 after 3.0 s without tri_finalize", "aborted the group": the
 * cause that was found. */
void trii_failure_describe(const trii_failure *failure, char *text_out, size_t bytes);
/* What it wrote of its failure, and where; false: nothing. */
bool trii_failure_read_error(const trii_failure *failure, const trii_worker *worker, char *path_out,
                             size_t bytes, trii_error_file *error_out);
/* It ended with status 0, by itself, before the failure was seen, or was ending then. */
bool trii_failure_has_left(const trii_failure *failure, const trii_worker *worker);

#endif
