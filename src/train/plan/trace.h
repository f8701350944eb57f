/*
 * trace.h - TRI_TRACE: what ran when and on which device, in a file.
 *
 * It is a Chrome trace (chrome://tracing, ui.perfetto.dev), one event a line, which `trireme plot
 * --timeline` reads, too:
 *
 *     [
 *     {"name":"thread_name","ph":"M","pid":4711,"tid":1,"args":{"name":"cpu:1"}}
 *     ,{"name":"process_name","ph":"M","pid":4711,"args":{"name":"rank 0 of 2",..}}
 *     ,{"name":"conv","cat":"forward","ph":"X","ts":12.345,"dur":6.789,"pid":4711,"tid":1,"args":{"run":3,"node":17}}
 *
 * The closing bracket is missing, as the format allows: a program may end at any time. ts and dur
 * are microseconds of the monotonic clock; tid is a device; cat is forward, backward, update, copy
 * (between devices, and changes of layout) or communication (of which the wait is an event, too);
 * run counts the process's runs of plans; node is the number of its operation in the order of the
 * program's calls (-1: it has none). What a pipeline recorded has "part" as well, the action of its
 * schedule: stage, F, B, I or W, micro-batch (1F0; src/train/graph/step/part.h). A kernel of an
 * asynchronous device is shown at the time when it was launched. A process that has called tri_init
 * says its rank, whose clock it has (args.host: a boot of a machine) and when that was 0
 * (args.epoch: microseconds since 1970), for hosts count from moments of their own.
 */
#ifndef TRII_TRACE_H
#define TRII_TRACE_H

#include "train/plan/plan.h"

#define TRII_TRACE_MAX_EVENTS 1000000 /* events of a file; then a warning, and no more */

/* Times of the last run. */
struct trii_entry_times {
    int64_t begin, end;
    int64_t sum; /* sums over all runs */
};

/* The file of this process from now on, as if TRI_TRACE named it; NULL: that of TRI_TRACE again. A
 * file that is being written is closed. INVALID_ARG: too long. Any thread. */
tri_status trii_trace_ask(const char *path) TRI_MUST_CHECK;
/* Whether new plans are to take times for it. */
bool trii_trace_wanted(void);
/* Writes the events of a run that succeeded, of a plan that takes times. If the file cannot be
 * written, one warning says so and nothing fails. Any thread. */
void trii_trace_run(const trii_plan *plan, const trii_step *step, const trii_segment *segment);

#endif
