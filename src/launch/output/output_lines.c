/*
 * output_lines.c - how the lines of a stream are shown: labels, filters, progress bars.
 *
 * A bar draws itself again and again, each time after a \r. Bars of several workers are drawn over
 * each other in one line, as on a terminal without trirun; any other text has a line of its own.
 */
#include <stdio.h>
#include <string.h>

#include "launch/output/output_internal.h"

/* Whether the line contains one of the texts of the list. */
static bool line_matches(const char *list, const char *line, size_t bytes)
{
    char text[512];

    while (*list != '\0') {
        size_t n = 0;

        for (; *list != '\0' && (*list != ',' || list[1] == ','); list++) {
            list += *list == ',';
            if (n < sizeof(text))
                text[n++] = *list;
        }
        list += *list == ',';
        /* An empty text is in every line, as torchrun has it. */
        for (size_t at = 0; at + n <= bytes; at++) {
            if (memcmp(line + at, text, n) == 0)
                return true;
        }
    }
    return false;
}

static void copy_matches(const trii_stream *stream, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const char *end = memchr(data, '\n', bytes);
        size_t length = end != NULL ? (size_t)(end - data) + 1 : bytes;

        if (line_matches(stream->options.filters, data, length)) {
            trii_background_put(stream->options.filtered, stream->label, strlen(stream->label));
            trii_background_put(stream->options.filtered, data, length);
            if (end == NULL)
                trii_background_put(stream->options.filtered, "\n", 1);
        }
        data += length;
        bytes -= length;
    }
}

static void put_label(const trii_stream *stream)
{
    /* Red is for errors, and yellow for warnings. */
    static const int colours[] = {36, 32, 35, 34, 96, 92, 95, 94};
    char before[16] = "";

    if (stream->options.label == NULL)
        return;
    if (stream->sink->colour)
        snprintf(before, sizeof(before), "\033[%dm",
                 colours[(size_t)stream->options.colour % TRII_COUNT_OF(colours)]);
    trii_sink_put(stream->sink, before, strlen(before));
    trii_sink_put(stream->sink, stream->label, strlen(stream->label));
    if (stream->sink->colour)
        trii_sink_put(stream->sink, "\033[0m", 4);
}

/* The end of the line that begins at data, or `bytes`. A \r ends one too, unless \n follows it. */
static size_t next_end(const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n' || (data[i] == '\r' && (i + 1 == bytes || data[i + 1] != '\n')))
            return i + 1;
    }
    return bytes;
}

/* One line, or the rest or the beginning of one. */
static void put_line(trii_stream *stream, const char *data, size_t bytes)
{
    trii_sink *sink = stream->sink;
    char end = data[bytes - 1];

    stream->bar = stream->bar || end == '\r';
    if (bytes == 1 && end == '\r' && sink->open == NULL)
        return; /* it is at the beginning of a line */
    trii_sink_begin(sink, stream);
    if (sink->open == NULL || (stream->returned && *data != '\n'))
        put_label(stream);
    trii_sink_put(sink, data, bytes);
    stream->bar = stream->bar && end != '\n';
    stream->returned = end == '\r';
    sink->open = end == '\n' ? NULL : stream;
}

static void put_lines(trii_stream *stream, const char *data, size_t bytes)
{
    while (bytes > 0) {
        size_t length = next_end(data, bytes);

        put_line(stream, data, length);
        data += length;
        bytes -= length;
    }
}

void trii_stream_show(trii_stream *stream, size_t bytes)
{
    trii_sink *sink = stream->sink;

    if (bytes == 0)
        return;
    if (stream->options.filtered != NULL) /* the log is read by others than the sink is */
        copy_matches(stream, stream->line, bytes);
    if (!stream->options.hidden)
        put_lines(stream, stream->line, bytes);
    stream->used -= bytes;
    memmove(stream->line, stream->line + bytes, stream->used);
    if (stream->options.hidden)
        return;
    stream->shown = sink->total;
    if (sink->used >= TRII_QUEUE_ROOM) {
        sink->behind = true;
        stream->share += bytes;
    }
    trii_sink_commit(sink);
}
