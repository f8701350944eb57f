/*
 * failure_report.h - what the user reads when a job failed: which worker was first, why, how many
 * followed.
 */
#ifndef TRII_LAUNCH_FAILURE_REPORT_H
#define TRII_LAUNCH_FAILURE_REPORT_H

#include "launch/report/culprit.h"

/* Root cause, where, when, its last lines on stderr, hints, and the number of victims. Also hands
 * the cause's error file to what started trirun (TORCHELASTIC_ERROR_FILE). */
void trii_failure_report(const trii_failure *failure, trii_sink *sink);
/* Names the workers that had ended with status 0 while others went on; for a job that had to be
 * stopped. Nothing if there are none. */
void trii_failure_report_leavers(const trii_worker *workers, int n_workers, trii_sink *sink);

#endif
