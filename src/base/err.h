/*
 * err.h - the line that says why a call failed, one per thread.
 *
 * The first function that knows the cause writes the line; callers pass the status on
 * and prepend only news. No allocation, so it works when memory ran out.
 */
#ifndef TRII_ERR_H
#define TRII_ERR_H

#include <trireme/status.h>

#include "base/compiler.h"

#define TRII_ERR_BYTES 512

/* Macros, so that compiler and analyzer see the status itself and not a call. */
#define TRII_FAIL(status, ...) (trii_err_set(__VA_ARGS__), (status))
#define TRII_FAIL_CTX(status, ...) (trii_err_prepend(__VA_ARGS__), (status))

void trii_err_set(const char *format, ...) TRII_PRINTF(1, 2);
/* Puts "context: " in front of the line. */
void trii_err_prepend(const char *format, ...) TRII_PRINTF(1, 2);

/* How many lines this thread has written: tells whether a callback wrote one, or the line that is
 * there is an old one. */
unsigned trii_err_lines(void);

/* INVALID_ARG for a pointer that is NULL, or a text that is NULL or empty: "CALL: NAME is NULL". */
tri_status trii_need(const void *pointer, const char *call, const char *name) TRI_MUST_CHECK;
tri_status trii_need_text(const char *text, const char *call, const char *name) TRI_MUST_CHECK;

#endif
