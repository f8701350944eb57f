/*
 * dry_run.h - what trirun would do: hosts, addresses, ranks, command lines and variables.
 */
#ifndef TRII_LAUNCH_DRY_RUN_H
#define TRII_LAUNCH_DRY_RUN_H

#include <stdio.h>

#include "launch/cli/options.h"

/* Errors: those that starting the program would have (no such program), NO_MEMORY. */
tri_status trii_dry_run(const trii_launch_options *options, FILE *out) TRI_MUST_CHECK;

#endif
