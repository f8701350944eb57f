/*
 * log_file.h - a file that lines of a worker are appended to, turned over when it is large.
 */
#ifndef TRII_LAUNCH_LOG_FILE_H
#define TRII_LAUNCH_LOG_FILE_H

#include <trireme/status.h>

#define TRII_LOG_PATH_BYTES 1024

typedef struct trii_log_file {
    char path[TRII_LOG_PATH_BYTES]; /* "" = not open */
    int fd;
    int64_t max_bytes; /* 0 = it grows as it likes */
    int64_t bytes;     /* so far */
    bool failed;       /* told once; the job goes on without it */
} trii_log_file;

/* Empties an older file of that name. Errors: IO, INVALID_ARG (the path is too long). */
tri_status trii_log_file_open(trii_log_file *log, const char *path,
                              int64_t max_bytes) TRI_MUST_CHECK;
/* What would pass max_bytes goes to a fresh file, from the line on that passes it; PATH.1 holds
 * what came before, so both together take at most twice as much. A disk that is full costs the
 * lines, never the job. */
void trii_log_file_put(trii_log_file *log, const char *data, size_t bytes);
void trii_log_file_close(trii_log_file *log); /* not open: nothing */

#endif
