/*
 * worker_output.h - where each worker's stdout and stderr go: to the terminal, to log files, to
 * both or nowhere, as -r, -t and the filters say.
 */
#ifndef TRII_LAUNCH_WORKER_OUTPUT_H
#define TRII_LAUNCH_WORKER_OUTPUT_H

#include "launch/worker/environment.h"
#include "launch/output/log_folder.h"
#include "launch/output/output.h"

typedef struct trii_outputs {
    const trii_launch_options *options;
    trii_background *files; /* log files, and our own output where it is one */
    trii_sink out, err;
    trii_sink *err_sink; /* &out where both go to the same place, so that order is kept */
    trii_log_folder folder;
    trii_background_file *filtered[2]; /* stdout, stderr; NULL = none */
    bool begun;                        /* an attempt had its files */
} trii_outputs;

/* options, loop: borrowed. Errors: NO_MEMORY; what was made goes with trii_outputs_fini. */
tri_status trii_outputs_init(trii_outputs *outputs, trii_loop *loop,
                             const trii_launch_options *options) TRI_MUST_CHECK;
/* Once per job: its log folder. Errors: IO. */
tri_status trii_outputs_prepare(trii_outputs *outputs, const char *run_id,
                                const char *run_dir) TRI_MUST_CHECK;
/* Before each start of the workers; the streams of the one before are closed. Then
 * trii_log_folder_error_dir(&outputs->folder) holds. Errors: IO, of the first start; a later one
 * runs without files, with a warning. */
tri_status trii_outputs_attempt(trii_outputs *outputs, int restart_count,
                                int local_size) TRI_MUST_CHECK;
/* The streams of one worker. out_fd, err_fd: for its process, and then closed by the caller;
 * -1 after a failure. Errors: IO, NO_MEMORY; what was opened is closed. */
tri_status trii_outputs_open(trii_outputs *outputs, const trii_launch_job *job, int local_rank,
                             trii_stream *out, trii_stream *err, int *out_fd,
                             int *err_fd) TRI_MUST_CHECK;
/* Streams are closed before. */
void trii_outputs_fini(trii_outputs *outputs);

#endif
