/*
 * event_read.h - event files of TensorBoard, of any program, read from memory. Their format:
 * event_file.h and event_encode.h.
 */
#ifndef TRII_EVENT_READ_H
#define TRII_EVENT_READ_H

#include <trireme/status.h>

typedef struct trii_event_reader {
    const char *path; /* for messages */
    const uint8_t *data;
    size_t bytes;
    size_t at; /* of the next record */
} trii_event_reader;

typedef struct trii_event {
    size_t offset; /* of its record in the file */
    double wall_time;
    int64_t step;
    bool is_start; /* what has this step or a later one before it is void */
    const uint8_t *summary;
    size_t summary_bytes;
    size_t next; /* of the values within; for trii_event_value_next */
} trii_event;

typedef struct trii_event_value {
    const char *tag; /* tag_bytes of it; no zero follows */
    size_t tag_bytes;
    bool is_scalar;
    double value;
} trii_event_value;

/* The next event. TRI_END: the file ends here, or within a record, which is still being written.
 * Errors: FORMAT (names the file and the offset). */
tri_status trii_event_read(trii_event_reader *reader, trii_event *out) TRI_MUST_CHECK;
/* The next of its values. TRI_END after the last one. Errors: FORMAT, as above. */
tri_status trii_event_value_next(const trii_event_reader *reader, trii_event *event,
                                 trii_event_value *out) TRI_MUST_CHECK;

#endif
