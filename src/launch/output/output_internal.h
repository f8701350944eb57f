/*
 * output_internal.h - what the files of output.h know of each other: output.c (pipes) calls
 * output_lines.c (what is shown, and how), and both call output_sink.c (queues in front of
 * descriptors).
 */
#ifndef TRII_LAUNCH_OUTPUT_INTERNAL_H
#define TRII_LAUNCH_OUTPUT_INTERNAL_H

#include "launch/output/output.h"

#define TRII_QUEUE_ROOM ((size_t)1 << 16) /* a sink that holds more is behind its reader */

/* --- output_sink.c -------------------------------------------------------- */
void trii_sink_put(trii_sink *sink, const char *data, size_t bytes);
/* Writes what the descriptor takes now. */
void trii_sink_flush(trii_sink *sink);
/* Starts writing what was put. */
void trii_sink_commit(trii_sink *sink);
/* From here on the stream owns the sink's last line. Ends another's unfinished one; of two bars one
 * is drawn over the other. */
void trii_sink_begin(trii_sink *sink, const trii_stream *stream);

/* --- output_lines.c ------------------------------------------------------- */
/* The first `bytes` of the stream's buffer are shown, also where they end within a line, and leave
 * it. */
void trii_stream_show(trii_stream *stream, size_t bytes);

#endif
