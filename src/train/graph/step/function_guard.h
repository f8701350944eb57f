/*
 * function_guard.h - whether a user's function (trireme/function.h) is running on this thread, and
 * what is forbidden then. Set by ops/function_op.c; asked where a step begins or runs.
 */
#ifndef TRII_FUNCTION_GUARD_H
#define TRII_FUNCTION_GUARD_H

#include "train/graph/step/op.h"

/* Around the call of the user's function. */
void trii_function_begin(const char *name);
void trii_function_end(void);
/* OK, or STATE: a function is running, and `what` would interfere with it. */
tri_status trii_function_outside(const char *what) TRI_MUST_CHECK;

#endif
