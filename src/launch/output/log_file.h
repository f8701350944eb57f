/*
 * log_file.h - a file that lines of a worker are appended to, turned over when it is large; written
 * in the background.
 */
#ifndef TRII_LAUNCH_LOG_FILE_H
#define TRII_LAUNCH_LOG_FILE_H

#include "launch/output/background.h"

#define TRII_LOG_PATH_BYTES 1024

/* Takes the place of an older file of that name. Errors: IO, INVALID_ARG (the path is too long). */
tri_status trii_log_file_create(const char *path, int *fd_out) TRI_MUST_CHECK;
/* As create, for trii_background_put. max_bytes 0: it grows as it likes. What would pass it goes to
 * a fresh file, from the line on that passes it; PATH.1 holds what came before, so both together
 * take at most twice as much. A full disk loses lines and never ends the job; one warning says so.
 * Errors: as create, NO_MEMORY. */
tri_status trii_log_file_open(const char *path, int64_t max_bytes, trii_background *background,
                              trii_background_file **file_out) TRI_MUST_CHECK;
/* Appends to what is there, which may be a FIFO, and it grows as it likes. name: of the option that
 * has the path, for messages. Errors: IO (also a FIFO without a reader), NO_MEMORY. */
tri_status trii_log_file_append(const char *path, const char *name, trii_background *background,
                                trii_background_file **file_out) TRI_MUST_CHECK;

#endif
