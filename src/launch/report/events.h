/*
 * events.h - what happens to a job, as lines of JSON (--events FILE).
 *
 * Every line has "time" (seconds since 1970, to the millisecond), "event" and "run_id"; then what
 * belongs to the event: docs/TORCHRUN.md lists them.
 */
#ifndef TRII_LAUNCH_EVENTS_H
#define TRII_LAUNCH_EVENTS_H

#include <trireme/status.h>

#include "base/compiler.h"
#include "launch/output/background.h"

typedef struct trii_events {
    trii_background_file *file; /* NULL = no --events */
    const char *run_id;
} trii_events;

/* path NULL: nothing is written anywhere. run_id is borrowed. Errors: IO (also a FIFO without a
 * reader), NO_MEMORY. */
tri_status trii_events_open(trii_events *events, trii_background *files, const char *path,
                            const char *run_id) TRI_MUST_CHECK;
/* format: more members of the object, "" or "\"rank\": 3, ..."; one line, written in the
 * background. */
void trii_events_put(const trii_events *events, const char *name, const char *format, ...)
    TRII_PRINTF(3, 4);
void trii_events_close(trii_events *events);

#endif
