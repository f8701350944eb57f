/*
 * dry_run.h - what trirun would do: hosts, addresses, ranks, command lines and variables.
 */
#ifndef TRII_LAUNCH_DRY_RUN_H
#define TRII_LAUNCH_DRY_RUN_H

#include <stdio.h>

#include "launch/worker/worker_command.h"

/* Errors: NO_MEMORY. */
tri_status trii_dry_run(const trii_launch_options *options, const trii_launch_command *command,
                        FILE *out) TRI_MUST_CHECK;

#endif
