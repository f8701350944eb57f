/*
 * plot_timeline.h - what the devices did during one run of a plan, as a picture.
 */
#ifndef TRIREME_PLOT_TIMELINE_H
#define TRIREME_PLOT_TIMELINE_H

#include "plot_trace.h"

/* A row for each device, over one axis of time; the share of it that the device was busy stands
 * below its name. The pieces of a batch that passes through several devices are numbered where
 * their boxes are wide enough. A pipeline, of one file a process, has a row for each process, whose
 * waits are blank. title: NULL = none. Errors as plot_draw's. */
/* Of a pipeline: the share of the time in which a row computed nothing. */
double timeline_idle(const trace_run *run, int row);
tri_status plot_timeline(const char *path, const trace_run *run, const char *title) TRI_MUST_CHECK;

#endif
