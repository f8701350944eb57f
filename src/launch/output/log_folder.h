/*
 * log_folder.h - where a job's log files and error files are, in torchrun's layout:
 *
 *   LOG_DIR/RUN_ID_RANDOM/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}
 *   LOG_DIR/RUN_ID_RANDOM/attempt_N/{filtered_stdout.log,filtered_stderr.log}
 *
 * Without --log-dir: a fresh folder below $TMPDIR, or /tmp if that cannot be used, if there is
 * anything to write, else the run folder, which holds error files only and does not outlive a job
 * that succeeded.
 */
#ifndef TRII_LAUNCH_LOG_FOLDER_H
#define TRII_LAUNCH_LOG_FOLDER_H

#include "launch/output/log_file.h"
#include "launch/cli/options.h"

typedef struct trii_log_folder {
    char run[TRII_LOG_PATH_BYTES / 2];          /* "" = none: --log-dir=/dev/null */
    char attempt[TRII_LOG_PATH_BYTES / 2 + 32]; /* "" = it has no files */
    bool temporary;    /* --log-dir was not given, so the user is told where */
    char warning[500]; /* that TMPDIR is of no use; "" = none */
} trii_log_folder;

/* Makes the folder of this run. Errors: IO. */
tri_status trii_log_folder_create(trii_log_folder *folder, const trii_launch_options *options,
                                  const char *run_id, const char *run_dir) TRI_MUST_CHECK;
/* Makes attempt_N and a folder for each worker; an older one of that number goes. Errors: IO. */
tri_status trii_log_folder_attempt(trii_log_folder *folder, int restart_count,
                                   int local_size) TRI_MUST_CHECK;
/* What trii_launch_job.error_dir is: NULL if there are no error files. */
const char *trii_log_folder_error_dir(const trii_log_folder *folder);

#endif
