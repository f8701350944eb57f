/*
 * option.h - what a function does first with an options struct or a class of the program: sees that
 * its reserved words are 0, and takes a number or its default.
 */
#ifndef TRII_OPTION_H
#define TRII_OPTION_H

#include <trireme/types.h>

#include "base/compiler.h"
#include "base/err.h"

static inline double trii_option(tri_opt option, double fallback)
{
    return option.given != NULL ? option.value : fallback;
}

/* The same for a whole number: INVALID_ARG if it is none, or not within 2^53. */
tri_status trii_option_whole(tri_opt option, const char *name, int64_t fallback,
                             int64_t *value_out) TRI_MUST_CHECK;

/* INVALID_ARG if a reserved word of the struct is not 0; OK if `given` is NULL. */
#define TRII_CHECK_RESERVED(type, given)                                                           \
    ((given) == NULL ? TRI_OK                                                                      \
                     : trii_reserved((given)->reserved, TRII_COUNT_OF((given)->reserved), #type))
tri_status trii_reserved(const uint64_t *reserved, size_t n, const char *type) TRI_MUST_CHECK;

/* The same where operations are recorded: a call into the other library would cost a tenth of that,
 * and so would a wide load of words that were just written one by one. */
#define TRII_CHECK_RESERVED_INLINE(type, given)                                                    \
    ((given) == NULL                                                                               \
         ? TRI_OK                                                                                  \
         : trii_reserved_inline((given)->reserved, TRII_COUNT_OF((given)->reserved), #type))
static inline TRI_MUST_CHECK tri_status trii_reserved_inline(const uint64_t *reserved, size_t n,
                                                             const char *type)
{
    for (size_t i = 0; i < n; i++) {
        if (TRII_UNLIKELY(reserved[i] != 0))
            return trii_reserved(reserved, n, type);
    }
    return TRI_OK;
}

#endif
