/*
 * program.h - the program that this process runs, and one that it runs and waits for.
 */
#ifndef TRII_PROGRAM_H
#define TRII_PROGRAM_H

#include "os/process.h"

/* Runs argv[0] (a path; argv ends with NULL) with this process's environment and streams, and
 * waits until it ends or the deadline passes; then it is killed: TIMEOUT. Errors: those of
 * trii_process_start. */
tri_status trii_program_run(const char *const *argv, int64_t deadline_ns,
                            trii_process_exit *exit_out) TRI_MUST_CHECK;
/* The folder of the file of our own program, without the slash. Errors: IO, INVALID_ARG. */
tri_status trii_program_folder(char *path_out, size_t bytes) TRI_MUST_CHECK;

#endif
