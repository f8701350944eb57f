/*
 * status.h - how every call says whether it worked, and why not.
 */
#ifndef TRIREME_STATUS_H
#define TRIREME_STATUS_H

#include <trireme/export.h>

#include <stdio.h>
#include <stdlib.h>

TRI_BEGIN_DECLS

/* 0 is success, > 0 is "no error, not done", < 0 is failure. The ranges say what
 * the caller has to replace: the call, the group or the process. What fails a group comes out in
 * the group's range, whatever caused it (TRI_ERR_ABORTED, and the line begins with the cause). */
typedef enum tri_status {
    TRI_OK = 0,
    TRI_INPROGRESS = 1,
    TRI_END = 2, /* an iteration has no further element */

    /* the call: mend it and try again */
    TRI_ERR_INVALID_ARG = -1,
    TRI_ERR_NO_MEMORY = -2,
    TRI_ERR_UNSUPPORTED = -3,
    TRI_ERR_TIMEOUT = -4,
    TRI_ERR_IO = -5,        /* a file, a socket or the system refused; the line names it */
    TRI_ERR_NOT_FOUND = -6, /* a file, key, engine or name does not exist */
    TRI_ERR_FORMAT = -7,    /* a file or message is damaged or of another format */
    TRI_ERR_STATE = -8,     /* called at the wrong moment: handle of an ended step, double init */
    TRI_ERR_NAN = -9,       /* TRI_CHECK=nan found a value that is not a number */

    /* the group: destroy it, form a new one */
    TRI_ERR_PEER_LOST = -40,
    TRI_ERR_ABORTED = -41,
    TRI_ERR_MISMATCH = -42,      /* ranks disagree about the call; the line names both calls */
    TRI_ERR_GROUP_TIMEOUT = -43, /* the group's timeout has passed; the line names the ranks */

    /* the process: a bug in Trireme, please report it */
    TRI_ERR_INTERNAL = -80
} tri_status;

/* The status's own name, e.g. "PEER_LOST". Static text, never NULL. */
TRI_API const char *tri_status_name(tri_status status);

/* One line about the last failure on this thread, with the values; "" if there was none.
 * Borrowed: valid until the next failing call of this thread. */
TRI_API const char *tri_last_error(void);

/* Sets the error line of this thread and returns `status`, for the program's functions that the
 * library calls, when they fail. A status that is not an error becomes INVALID_ARG. */
TRI_API tri_status tri_status_fail(tri_status status, const char *format, ...) TRI_PRINTF(2, 3);
/* The same with a place of the source, which ends the line: "... (file:line)". */
TRI_API tri_status tri_status_fail_at(const char *file, int line, tri_status status,
                                      const char *format, ...) TRI_PRINTF(4, 5);
#ifndef TRI_NO_SITES
#define tri_status_fail(...) tri_status_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#endif

/* For programs, never for libraries: print the line, say where, exit 1. */
#define TRI_TRY(call)                                                                              \
    do {                                                                                           \
        tri_status tri_try_status_ = (call);                                                       \
        if (tri_try_status_ < 0) {                                                                 \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,                                 \
                    tri_status_name(tri_try_status_), tri_last_error());                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

TRI_END_DECLS

#endif
