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
    trii_worker *cause;              /* who was seen first; settle may know better */
    const char *program;             /* as the user named it */
    const char *error_dir;           /* holds LOCAL_RANK/error.json; NULL = no error files */
    const trii_memory_kills *before; /* the counters when the workers started */
    const char *run_dir;             /* holds the flight records */
    char
        early[400]; /* once settled, if the cause ended well, but others waited for it: the words */
    trii_culprit culprit; /* once settled: whom the failed ones name as who aborted their group */
} trii_failure;

/* Decides who is the cause: deaths are seen in the order in which they are complete, so one that
 * began earlier, or that is no mere echo of another, takes its place; so does the one that aborted
 * its group, by what the ranks noted, and one that ended with status 0 in the middle of the job, if
 * the others failed because it was gone. */
void trii_failure_settle(trii_failure *failure);
/* "was killed by SIGSEGV", "returned 0 after 3.0 s without tri_finalize", "aborted the group": the
 * settled cause. */
void trii_failure_describe(const trii_failure *failure, char *text_out, size_t bytes);
/* Root cause, where, when, its last words, hints, and the number of victims. Also hands the
 * cause's error file to whoever started us (TORCHELASTIC_ERROR_FILE). */
void trii_failure_report(const trii_failure *failure, trii_sink *sink);
/* Names the workers that had ended with status 0 while others went on; for a job that had to be
 * stopped. Nothing if there are none. */
void trii_failure_report_leavers(const trii_worker *workers, int n_workers, trii_sink *sink);

#endif
