/*
 * note.h - when somebody who waits for others says so in the log: after TRII_NOTE_FIRST_NS, and
 * from then on each minute (TRI_NOTE_MS), so that a log's end shows whether it still waits.
 */
#ifndef TRII_NOTE_H
#define TRII_NOTE_H

#include <stdint.h>

#define TRII_NOTE_FIRST_NS INT64_C(1500000000)

/* The moment of the next line, nanoseconds of the same clock as now_ns. */
int64_t trii_note_next(int64_t now_ns);

#endif
