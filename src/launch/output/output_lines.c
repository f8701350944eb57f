/*
 * output_lines.c - how the lines of a stream are shown: labels, filters, progress bars.
 *
 * A bar draws itself again and again, each time behind a \r. Where its line is still the last one
 * it may do so in place, as it would without us. Where somebody else has printed since, each state
 * would be one more line, for each of its many steps: then only the newest state is shown, and the
 * bars of a sink share a line each half a second. The last state is always shown.
 */
#include <stdio.h>
#include <string.h>

#include "launch/output/output_internal.h"
#include "os/clock.h"

#define DRAW_NS (INT64_C(500) * TRII_NS_PER_MS)
#define STATE_BYTES ((size_t)1024) /* what is longer is no bar's state, and shown at once */

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
            trii_log_file_put(stream->options.filtered, stream->label, strlen(stream->label));
            trii_log_file_put(stream->options.filtered, data, length);
            if (end == NULL)
                trii_log_file_put(stream->options.filtered, "\n", 1);
        }
        data += length;
        bytes -= length;
    }
}

static void put_label(const trii_stream *stream)
{
    /* Red is for errors, and yellow for warnings. */
    static const int colours[] = {36, 32, 35, 34, 96, 92, 95, 94};
    char colour[16];

    if (stream->options.label == NULL)
        return;
    if (!stream->sink->colour) {
        trii_sink_put(stream->sink, stream->label, strlen(stream->label));
        return;
    }
    snprintf(colour, sizeof(colour), "\033[%dm",
             colours[(size_t)stream->options.colour % TRII_COUNT_OF(colours)]);
    trii_sink_put(stream->sink, colour, strlen(colour));
    trii_sink_put(stream->sink, stream->label, strlen(stream->label));
    trii_sink_put(stream->sink, "\033[0m", 4);
}

static void put_lines(trii_stream *stream, const char *data, size_t bytes)
{
    trii_sink *sink = stream->sink;

    trii_sink_begin(sink, stream);
    if (stream->options.label == NULL) {
        trii_sink_put(sink, data, bytes);
        sink->open = data[bytes - 1] == '\n' ? NULL : stream;
        return;
    }
    while (bytes > 0) {
        const char *end = memchr(data, '\n', bytes);
        size_t length = end != NULL ? (size_t)(end - data) + 1 : bytes;

        if (sink->open != stream)
            put_label(stream);
        trii_sink_put(sink, data, length);
        sink->open = end != NULL ? NULL : stream;
        data += length;
        bytes -= length;
    }
}

/* --- bars ----------------------------------------------------------------- */

/* Whether a \r takes the reader's eye back to the beginning of the stream's own line. */
static bool is_in_place(const trii_stream *stream)
{
    return stream->sink->open == stream && (stream->sink->redraws || stream->options.label == NULL);
}

int64_t trii_stream_draw_ns(const trii_stream *stream)
{
    int n = 0;

    if (stream->options.immediate || !stream->redraw || stream->drawn_ns == 0 ||
        is_in_place(stream))
        return 0;
    for (const trii_stream *s = stream->sink->streams; s != NULL; s = s->next)
        n += s->redraw; /* this one at least */
    return stream->drawn_ns + n * DRAW_NS;
}

/* One line, or the rest or the beginning of one. */
static void put_text(trii_stream *stream, const char *data, size_t bytes)
{
    trii_sink *sink = stream->sink;

    if (stream->redraw && is_in_place(stream)) {
        trii_sink_put(sink, "\r", 1);
        put_label(stream);
    } else if (stream->redraw && sink->open == stream) {
        trii_sink_put(sink, "\n", 1);
        sink->open = NULL;
    }
    stream->redraw = false;
    put_lines(stream, data, bytes);
}

static void end_line(trii_stream *stream)
{
    trii_sink_put(stream->sink, "\n", 1);
    stream->sink->open = NULL;
}

/* A state of the bar: the next one takes its place, where there is such a thing. */
static void draw_state(trii_stream *stream, const char *data, size_t bytes)
{
    if (stream->options.filtered != NULL)
        copy_matches(stream, data, bytes);
    put_text(stream, data, bytes);
    if (!is_in_place(stream))
        end_line(stream);
    stream->drawn_ns = trii_now_ns();
    stream->redraw = true;
}

static bool is_blank(const char *data, size_t bytes)
{
    while (bytes > 0 && strchr(" \r\n", data[bytes - 1]) != NULL)
        bytes--;
    return bytes == 0;
}

/* The line ends; data ends with \n. */
static void finish_line(trii_stream *stream, const char *data, size_t bytes)
{
    if (stream->redraw && is_blank(data, bytes)) {
        if (stream->state_bytes > 0) /* what stands there is the bar's last state */
            draw_state(stream, stream->line, stream->state_bytes - 1);
        if (stream->sink->open == stream)
            end_line(stream);
        stream->redraw = false;
        return;
    }
    if (stream->options.filtered != NULL)
        copy_matches(stream, data, bytes);
    if (stream->redraw && bytes > 2 && data[bytes - 2] == '\r') {
        put_text(stream, data, bytes - 2); /* its \r was for a state that did not come */
        end_line(stream);
    } else {
        put_text(stream, data, bytes);
    }
}

/* The bar begins again; data ends with \r. `at`: where it lies in the buffer. */
static void begin_again(trii_stream *stream, size_t at, size_t bytes)
{
    const char *data = stream->line + at;

    if (bytes > 1 && is_blank(data, bytes)) { /* it wipes itself away */
        stream->state_bytes = 0;
        if (stream->redraw && is_in_place(stream))
            put_text(stream, data, bytes - 1);
    } else if (bytes > 1) {
        bool was = stream->redraw;

        stream->redraw = true;
        if (bytes <= STATE_BYTES && trii_now_ns() < trii_stream_draw_ns(stream)) {
            memmove(stream->line, data, bytes);
            stream->state_bytes = bytes;
        } else {
            stream->redraw = was;
            stream->state_bytes = 0;
            draw_state(stream, data, bytes - 1);
        }
    }
    stream->redraw = true;
}

/* Behind the line that begins at data, or `bytes`. *end_out: its last character, 0 = not there. */
static size_t next_end(const char *data, size_t bytes, char *end_out)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != '\n' && (data[i] != '\r' || (i + 1 < bytes && data[i + 1] == '\n')))
            continue;
        *end_out = data[i];
        return i + 1;
    }
    *end_out = '\0';
    return bytes;
}

/* Lines among which are states of a bar. */
static void show_bars(trii_stream *stream, size_t bytes)
{
    size_t at = stream->state_bytes, n;
    char end;

    if (at == bytes) { /* nothing newer has come in time */
        draw_state(stream, stream->line, at - 1);
        stream->state_bytes = 0;
    }
    for (; at < bytes; at += n) {
        n = next_end(stream->line + at, bytes - at, &end);
        if (end == '\r') {
            begin_again(stream, at, n);
            continue;
        }
        if (end == '\n') {
            finish_line(stream, stream->line + at, n);
        } else {
            if (stream->redraw)
                stream->drawn_ns = trii_now_ns();
            put_text(stream, stream->line + at, n);
        }
        stream->state_bytes = 0;
    }
}

void trii_stream_show(trii_stream *stream, size_t bytes)
{
    trii_sink *sink = stream->sink;

    if (bytes <= stream->state_bytes && bytes < stream->used)
        return;
    if (bytes == 0)
        return;
    if (stream->options.hidden) {
        if (stream->options.filtered != NULL) /* the log is read by others than the sink is */
            copy_matches(stream, stream->line, bytes);
        stream->state_bytes = 0;
    } else if (stream->options.immediate ||
               (!stream->redraw && memchr(stream->line, '\r', bytes) == NULL)) {
        if (stream->options.filtered != NULL)
            copy_matches(stream, stream->line, bytes);
        put_lines(stream, stream->line, bytes);
    } else {
        show_bars(stream, bytes);
    }
    stream->used -= bytes;
    memmove(stream->line + stream->state_bytes, stream->line + bytes, stream->used);
    stream->used += stream->state_bytes;
    if (stream->options.hidden)
        return;
    stream->shown = sink->total;
    if (sink->used >= TRII_QUEUE_ROOM) {
        sink->behind = true;
        stream->share += bytes;
    }
    trii_sink_commit(sink);
}
