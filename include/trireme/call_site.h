/*
 * call_site.h - how a message knows the caller's line: functions that wait for other ranks or
 * record operations are wrapped in macros that set this thread's line during the call. A part of
 * group.h, ops.h and others.
 */
#ifndef TRIREME_CALL_SITE_H
#define TRIREME_CALL_SITE_H

#include <trireme/status.h>

TRI_BEGIN_DECLS

typedef struct tri_site {
    const char *file; /* static text; NULL = unknown */
    int line;
} tri_site;

/* Sets the line in which this thread is from now on, for programs that call without the macros,
 * such as bindings of other languages. */
TRI_API void tri_site_set(const char *file, int line);
/* The same; returns the line that was set before. */
TRI_API tri_site tri_site_enter(const char *file, int line);

static inline void tri_site_leave(const tri_site *before)
{
    tri_site_set(before->file, before->line);
}

/* Makes GCC warn if the status is ignored, which it does not for the value of a block. */
static inline TRI_MUST_CHECK tri_status tri_site_status(tri_status status)
{
    return status;
}

TRI_END_DECLS

/* -DTRI_NO_SITES: no call is wrapped. A function's address can be taken in any case, and
 * (tri_zeros)(...) calls it without the macro, which C++ needs outside of functions (where a global
 * variable is initialised). */
#if !defined(TRI_NO_SITES) && !defined(TRI_SITE_)
#define TRI_SITE_NAME_2_(number) tri_site_##number
#define TRI_SITE_NAME_(number) TRI_SITE_NAME_2_(number)
/* For functions that communicate: the line stays set after the call, and an argument that is a
 * compound literal lives on, as an unfinished work may need it. */
#define TRI_SITE_SET_(call) (tri_site_set(__FILE__, __LINE__), call)
#ifdef __GNUC__
/* Arguments are evaluated after tri_site_enter, and may be calls with lines of their own: each
 * restores the line at its end. A compound literal in the arguments lives until the call ends. */
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
