/*
 * error_file.h - what a Python worker wrote about its own failure (torchelastic's @record), read
 * into the report, and handed on to what started trirun.
 */
#ifndef TRII_LAUNCH_ERROR_FILE_H
#define TRII_LAUNCH_ERROR_FILE_H

#include <trireme/status.h>

/* Of a larger file nothing is read: Python's are of some KiB. Reading 1 MiB takes 25 ms. */
#define TRII_ERROR_FILE_BYTES (1 << 20)

typedef struct trii_error_file {
    char message[512];    /* "ValueError: boom" */
    char traceback[2048]; /* its last part; "" = none */
    int64_t timestamp;    /* seconds since 1970; 0 = none */
    bool too_large;       /* for TRII_ERROR_FILE_BYTES: the rest is zero */
} trii_error_file;

/* False: there is no such file, or it is none of torchelastic's, or too large; error_out is then
 * zero but for too_large. */
bool trii_error_file_read(const char *path, trii_error_file *error_out);
/* Copies it with "errorCode" added, as torchrun does for the file that its own
 * TORCHELASTIC_ERROR_FILE names. Errors: NOT_FOUND, IO, NO_MEMORY,
 * FORMAT (too large). */
tri_status trii_error_file_copy(const char *from, const char *to, int exit_code) TRI_MUST_CHECK;

#endif
