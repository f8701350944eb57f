/*
 * failure_report.h - what the user reads when a job failed: who was first, why, and how many
 * followed.
 */
#ifndef TRII_LAUNCH_FAILURE_REPORT_H
#define TRII_LAUNCH_FAILURE_REPORT_H

#include "launch/report/culprit.h"
#include "launch/report/memory_kills.h"
#include "launch/worker/worker.h"

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
    trii_culprit culprit; /* and whom the failed ones name as who aborted their group */
} trii_failure;

/* Finds the cause: deaths are seen in the order in which they are complete, so a worker whose end
 * began earlier, or that is not a victim of another, takes the place of the first that was seen; so
 * does the one that aborted its group, by the flight records, and one that ended with status 0 in
 * the middle of the job, if the others failed because it was gone. */
void trii_failure_find_cause(trii_failure *failure);
/* "was killed by SIGSEGV", "returned 0 after 3.0 s without tri_finalize", "aborted the group": the
 * cause that was found. */
void trii_failure_describe(const trii_failure *failure, char *text_out, size_t bytes);
/* Root cause, where, when, its last lines on stderr, hints, and the number of victims. Also hands
 * the cause's error file to whoever started us (TORCHELASTIC_ERROR_FILE). */
void trii_failure_report(const trii_failure *failure, trii_sink *sink);
/* Names the workers that had ended with status 0 while others went on; for a job that had to be
 * stopped. Nothing if there are none. */
void trii_failure_report_leavers(const trii_worker *workers, int n_workers, trii_sink *sink);

#endif
