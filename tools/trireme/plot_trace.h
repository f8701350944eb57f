/*
 * plot_trace.h - one run of a plan, from a file that TRI_TRACE has made; or one step of several
 * processes, from a file of each.
 */
#ifndef TRIREME_PLOT_TRACE_H
#define TRIREME_PLOT_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

enum {
    TRACE_FORWARD,
    TRACE_BACKWARD,
    TRACE_UPDATE,
    TRACE_COPY,
    TRACE_COMMUNICATION,
    TRACE_OTHER,   /* of any other name */
    TRACE_INPUTS,  /* of a pipeline whose backwards have two parts */
    TRACE_WEIGHTS, /* the second one */
    TRACE_CATEGORIES
};
extern const char *const trace_categories[TRACE_CATEGORIES];

typedef struct trace_event {
    double begin, us; /* microseconds; in a run from its first event's begin on */
    int row, category;
    int node;  /* in the order in which the program called; -1: none */
    int piece; /* of the row's events of its category, from 1 on; 0: it has only one, or none is
                * known. Of a pipeline: 1 + its micro-batch */
    int stage; /* of a pipeline; -1: no part of one */
    bool waits;
} trace_event;

typedef struct trace_row {
    int process; /* counted over all files */
    int64_t tid;
    int rank; /* of the process; -1: it has not said */
    char name[64];
    double busy; /* microseconds; in a pipeline without waits */
    int stage;   /* the first of a pipeline; -1: it has none */
    int n_stages;
} trace_row;

typedef struct trace_run {
    int64_t number, last; /* last: of the file that came first */
    bool trains;          /* it has a backward */
    trace_event *events;
    int n;
    trace_row *rows; /* those that have events, in the order of processes and devices */
    int n_rows;
    double us; /* from the first begin to the last end */
    bool pipeline;
} trace_run;

/* number 0: of each file the last of the runs of a pipeline, or else of those on most devices; with
 * a backward, if one of them has one. Ranks without a file, and a file that is cut, are named on
 * stderr. NOT_FOUND (also a run that is not there), IO, FORMAT (names file and line, or a run that
 * took no time), MISMATCH (files of different jobs), NO_MEMORY. */
tri_status trace_read(const char *const *paths, int n_paths, int64_t number,
                      trace_run *run_out) TRI_MUST_CHECK;
void trace_run_fini(trace_run *run);

#endif
