/*
 * log_file.h - a file that lines of a worker are appended to, turned over when it is large; written
 * in the background.
 */
#ifndef TRII_LAUNCH_LOG_FILE_H
#define TRII_LAUNCH_LOG_FILE_H

#include "launch/output/background.h"

#define TRII_LOG_PATH_BYTES 1024
/* Who writes to a log that is further behind waits, as for a slow disk of its own. */
#define TRII_LOG_BEHIND ((size_t)1 << 20)

typedef struct trii_log_file {
    char path[TRII_LOG_PATH_BYTES]; /* "" = not open */
    trii_background_file *file;
} trii_log_file;

/* Takes the place of an older file of that name. Errors: IO, INVALID_ARG (the path is too long). */
tri_status trii_log_file_create(const char *path, int *fd_out) TRI_MUST_CHECK;
/* As create. max_bytes 0: it grows as it likes. What would pass it goes to a fresh file, from the
 * line on that passes it; PATH.1 holds what came before, so both together take at most twice as
 * much. Errors: as create, NO_MEMORY. */
tri_status trii_log_file_open(trii_log_file *log, trii_background *background, const char *path,
                              int64_t max_bytes) TRI_MUST_CHECK;
/* A full disk loses lines and never ends the job; one warning says so. */
void trii_log_file_put(trii_log_file *log, const char *data, size_t bytes);
bool trii_log_file_is_behind(const trii_log_file *log); /* not open: false */
void trii_log_file_close(trii_log_file *log);           /* not open: nothing */

#endif
