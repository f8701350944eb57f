/*
 * event_file.h - records in a file, one behind the other, written by a thread of their own.
 *
 * The framing is TFRecord's, all numbers little-endian:
 *
 *   offset  bytes  what
 *   0       8      u64 n, length of the data
 *   8       4      u32 masked CRC-32C of these 8 bytes
 *   12      n      data
 *   12 + n  4      u32 masked CRC-32C of the data
 */
#ifndef TRII_EVENT_FILE_H
#define TRII_EVENT_FILE_H

#include <trireme/status.h>

#define TRII_EVENT_HEAD 12
#define TRII_EVENT_TAIL 4

typedef struct trii_event_file trii_event_file;

typedef struct trii_event_file_options {
    int64_t flush_ns;   /* a record waits no longer for others before all are written */
    size_t max_waiting; /* bytes; once so many wait for the disk, put waits as well, */
    int64_t max_ns;     /* but no longer than that */
} trii_event_file_options;

/* Appends to the file, which it makes if it is not there. Errors: IO, NOT_FOUND, NO_MEMORY. */
tri_status trii_event_file_open(const char *path, const trii_event_file_options *options,
                                trii_event_file **file_out) TRI_MUST_CHECK;
/* Takes a record, which the thread writes soon, whole or not at all. Any thread. A record that
 * could not be written is told by the next call: that one takes nothing. Errors: IO (names the file
 * and the reason), NO_MEMORY, STATE (a child of fork() has no such thread). */
tri_status trii_event_file_put(trii_event_file *file, const void *data,
                               size_t bytes) TRI_MUST_CHECK;
/* Waits until what was put is in the file. Errors: IO, STATE. */
tri_status trii_event_file_flush(trii_event_file *file) TRI_MUST_CHECK;
/* Writes what is left. NULL allowed; in a child of fork() it only closes the child's copy. The file
 * is closed in any case. Errors: IO, also if it was told before: how many records are missing. */
tri_status trii_event_file_close(trii_event_file *file) TRI_MUST_CHECK;

#endif
