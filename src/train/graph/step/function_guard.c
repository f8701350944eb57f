/*
 * function_guard.c - see function_guard.h.
 */
#include "train/graph/step/function_guard.h"

#include "base/compiler.h"
#include "base/err.h"

static _Thread_local const char *running; /* the function that runs on this thread */

void trii_function_begin(const char *name)
{
    running = name;
}

void trii_function_end(void)
{
    running = NULL;
}

tri_status trii_function_outside(const char *what)
{
    if (TRII_LIKELY(running == NULL))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE, "%s inside of the function %s, which only computes", what,
                     running);
}
