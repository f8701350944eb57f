/*
 * worker_command.h - the command line of one worker: Python where torchrun would use it,
 * ${local_rank} replaced.
 */
#ifndef TRII_LAUNCH_WORKER_COMMAND_H
#define TRII_LAUNCH_WORKER_COMMAND_H

#include "launch/cli/options.h"

#define TRII_COMMAND_PATH_BYTES 4096

typedef struct trii_launch_command {
    char path[TRII_COMMAND_PATH_BYTES]; /* the file to execute */
    const char *head[6];                /* argv before the user's arguments */
    int n_head;
    bool local_rank_arg; /* --local-rank=N comes before the user's arguments */
    char *const *args;   /* the user's, ends with NULL */
} trii_launch_command;

/* Finds the file, before any worker is started. Errors: INVALID_ARG (it cannot be run: C source, a
 * folder), NOT_FOUND, IO (not executable); the message says what to type instead where that is
 * known. */
tri_status trii_launch_command_find(trii_launch_command *command,
                                    const trii_launch_options *options) TRI_MUST_CHECK;
/* argv of one worker, ends with NULL; one piece of memory: release with trii_free. */
tri_status trii_launch_command_argv(const trii_launch_command *command, int local_rank,
                                    const char ***argv_out) TRI_MUST_CHECK;

#endif
