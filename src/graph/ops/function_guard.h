/*
 * function_guard.h - whether a user's function is running on this thread, and which calls are
 * forbidden then.
 */
#ifndef TRII_FUNCTION_GUARD_H
#define TRII_FUNCTION_GUARD_H

#include "graph/op.h"

/* OK, or STATE: a function runs, and `what` would get into its way. */
tri_status trii_function_outside(const char *what) TRI_MUST_CHECK;

#endif
