/*
 * call_site.h - how a message knows the caller's line: what waits for others or records is wrapped
 * in a macro that leaves the line for as long as the call lasts. A part of group.h, ops.h and
 * others.
 */
#ifndef TRIREME_CALL_SITE_H
#define TRIREME_CALL_SITE_H

#include <trireme/status.h>

TRI_BEGIN_DECLS

typedef struct tri_site {
    const char *file; /* static text; NULL = unknown */
    int line;
} tri_site;

/* This thread is in that line from now on; for programs that call without the macros, such as
 * bindings of other languages. */
TRI_API void tri_site_set(const char *file, int line);
TRI_API tri_site tri_site_enter(const char *file, int line); /* the same; returns where it was */

static inline void tri_site_leave(const tri_site *before)
{
    tri_site_set(before->file, before->line);
}

/* GCC does not see that nobody looks at the value of a block. */
static inline TRI_MUST_CHECK tri_status tri_site_status(tri_status status)
{
    return status;
}

TRI_END_DECLS

/* -DTRI_NO_SITES: no call is wrapped. Taking a function's address works in any case, and so does
 * (tri_zeros)(...), for where C++ allows no block: what makes a global variable. */
#if !defined(TRI_NO_SITES) && !defined(TRI_SITE_)
#define TRI_SITE_NAME_2_(number) tri_site_##number
#define TRI_SITE_NAME_(number) TRI_SITE_NAME_2_(number)
/* The line stays: of what communicates, whose arguments may have to live on (work). */
#define TRI_SITE_SET_(call) (tri_site_set(__FILE__, __LINE__), call)
#ifdef __GNUC__
/* Arguments are evaluated behind tri_site_enter, and may be calls with lines of their own: each
 * takes its line back at its end. What an argument is a compound literal of lives for the call. */
#define TRI_SITE_(call)                                                                            \
    __extension__({                                                                                \
        __attribute__((cleanup(tri_site_leave), unused))                                           \
        const tri_site TRI_SITE_NAME_(__COUNTER__) = tri_site_enter(__FILE__, __LINE__);           \
        call;                                                                                      \
    })
#else
#define TRI_SITE_(call) TRI_SITE_SET_(call)
#endif
#define TRI_SITE_STATUS_(call) tri_site_status(TRI_SITE_(call))
#endif

#endif
