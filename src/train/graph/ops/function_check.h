/*
 * function_check.h - what TRI_CHECK=nan checks of a user's function: that it writes all of its
 * results, and none of its operands.
 */
#ifndef TRII_FUNCTION_CHECK_H
#define TRII_FUNCTION_CHECK_H

#include <trireme/function.h>

#include "base/compiler.h"

/* Before it runs: fills results with a NaN that no computation produces. Absent ones are
 * skipped. */
void trii_function_prepare(const tri_function_array *results, int n);
/* After it has run: what still has that NaN was not written (INVALID_ARG). `name` is the list's. */
tri_status trii_function_written(const tri_function_array *results, int n,
                                 const char *name) TRI_MUST_CHECK;
/* A checksum of the contents of all arrays. */
uint64_t trii_function_digest(const tri_function_array *operands, int n);

#endif
