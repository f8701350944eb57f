/*
 * plot_trace.h - one run of a plan, from a file that TRI_TRACE has made.
 */
#ifndef TRIREME_PLOT_TRACE_H
#define TRIREME_PLOT_TRACE_H

#include <stdint.h>

#include <trireme/status.h>

#define TRACE_CATEGORIES 6
extern const char *const trace_categories[TRACE_CATEGORIES]; /* the last: of any other name */

typedef struct trace_event {
    double begin, us; /* microseconds; in a run from its first event's begin on */
    int row, category;
    int node;  /* in the order in which the program called; -1: none */
    int piece; /* of the row's events of its category, from 1 on; 0: it has only one, or none is
                * known */
} trace_event;

typedef struct trace_row {
    int64_t pid, tid;
    char name[32];
    double busy; /* microseconds */
} trace_row;

typedef struct trace_run {
    int64_t number;
    trace_event *events;
    int n;
    trace_row *rows; /* those that have events, in the order of processes and devices */
    int n_rows;
    double us; /* from the first begin to the last end */
} trace_run;

/* number 0: the last of the runs on most devices. NOT_FOUND (also a run that is not there), IO,
 * FORMAT (names file and line, or a run that took no time), NO_MEMORY. */
tri_status trace_read(const char *path, int64_t number, trace_run *run_out) TRI_MUST_CHECK;
void trace_run_fini(trace_run *run);

#endif
