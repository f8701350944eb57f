/*
 * output.c - see output.h: the workers' streams. attempt.c adds them as workers start and drains
 * them as they end; what a line looks like is decided in output_lines.c, where it goes in
 * output_sink.c. report/ asks here for the last lines of a stream.
 */
#include "launch/output/output_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "launch/os/pipe.h"
#include "os/clock.h"
#include "os/descriptor.h"

#define READ_BYTES ((size_t)65536)
#define LINE_BYTES ((size_t)65536) /* a longer line is shown in pieces */
/* While a sink is behind, a stream that has put more than this into it since then has to wait. */
#define SHARE_BYTES ((size_t)1 << 16)
/* A worker whose log has more than this left to write waits, as for a slow disk of its own. */
#define LOG_BEHIND_BYTES ((size_t)1 << 20)
/* Half a screen of a terminal: what is further up has to be looked for. */
#define VIEW_BYTES ((uint64_t)1024)
/* Read at most so much at a worker's end: its children may still write. */
#define DRAIN_READS 64

/* Stands for the owner of an unfinished line that is no more. */
static const trii_stream closed_stream;

static void append_tail(trii_stream *stream, const char *data, size_t bytes)
{
    size_t room = sizeof(stream->tail) - 1;

    if (bytes > room) {
        data += bytes - room;
        bytes = room;
    }
    if (stream->tail_used + bytes > room) {
        size_t keep = room - bytes;

        memmove(stream->tail, stream->tail + stream->tail_used - keep, keep);
        stream->tail_used = keep;
    }
    memcpy(stream->tail + stream->tail_used, data, bytes);
    stream->tail_used += bytes;
    stream->tail[stream->tail_used] = '\0';
}

/* Where the last finished line ends; \r counts, for progress bars, unless \n may follow it. */
static size_t find_line_end(const char *data, size_t bytes)
{
    bool last = true;

    while (bytes > 0 && data[bytes - 1] != '\n' && (data[bytes - 1] != '\r' || last)) {
        bytes--;
        last = false;
    }
    return bytes;
}

static void flush_fired(trii_timer *timer);

/* An unfinished line is shown if nothing follows it for a while. */
static void flush_later(trii_stream *stream)
{
    int64_t due_ns = stream->used > 0 ? trii_now_ns() + stream->sink->flush_ns : TRII_NO_DEADLINE;

    trii_loop_timer(stream->sink->loop, &stream->flush, due_ns, flush_fired);
}

/* Whether the stream waits: it has put more than its share into a sink whose reader is slow, or its
 * log file has not kept up. */
static bool must_wait(const trii_stream *stream)
{
    return (stream->sink->behind && !stream->options.hidden && stream->share >= SHARE_BYTES) ||
           trii_background_left(stream->log) > LOG_BEHIND_BYTES ||
           trii_background_left(stream->options.filtered) > LOG_BEHIND_BYTES;
}

static void stream_ready(trii_watch *watch, unsigned events);

/* Stops or continues reading. */
static void update_watch(trii_stream *stream)
{
    bool pause = must_wait(stream);

    if (stream->fd < 0 || pause == stream->paused)
        return;
    stream->paused = pause;
    if (pause)
        trii_loop_unwatch(&stream->watch);
    else if (trii_loop_watch(stream->sink->loop, &stream->watch, stream->fd, TRII_READABLE,
                             stream_ready) != TRI_OK)
        trii_stream_close(stream); /* out of descriptors: the worker sees a closed pipe */
}

static void close_pipe(trii_stream *stream)
{
    trii_loop_unwatch(&stream->watch);
    trii_fd_close(stream->fd);
    stream->fd = -1;
}

/* One read; false at the end of the pipe or when it is empty. */
static bool stream_read(trii_stream *stream)
{
    size_t got, ready, from;

    if (stream->fd < 0)
        return false;
    switch (trii_fd_read(stream->fd, stream->line + stream->used, READ_BYTES, &got)) {
    case TRI_OK:
        break;
    case TRI_INPROGRESS:
        return false;
    default:
        close_pipe(stream);
        return false;
    }
    stream->total += got;
    append_tail(stream, stream->line + stream->used, got);
    if (stream->log != NULL)
        trii_background_put(stream->log, stream->line + stream->used, got);
    from = stream->used > 0 && stream->line[stream->used - 1] == '\r' ? stream->used - 1
                                                                      : stream->used;
    stream->used += got;
    ready = find_line_end(stream->line + from, stream->used - from);
    ready += ready > 0 ? from : 0;
    if (stream->options.immediate || stream->used - ready >= LINE_BYTES)
        ready = stream->used;
    trii_stream_show(stream, ready);
    flush_later(stream);
    update_watch(stream);
    return true;
}

static void flush_fired(trii_timer *timer)
{
    trii_stream *stream = TRII_CONTAINER(timer, trii_stream, flush);

    if (stream->paused)
        flush_later(stream); /* the line's end may lie in the pipe, which we do not read now */
    else if (!stream_read(stream)) /* else we were too busy to read on */
        trii_stream_show(stream, stream->used);
}

static void stream_ready(trii_watch *watch, unsigned events)
{
    trii_stream *stream = TRII_CONTAINER(watch, trii_stream, watch);

    (void)events;
    stream_read(stream);
}

/* The sink has caught up, or it has no reader: then the workers' pipes are closed, too, so that
 * they learn it as if they had written themselves. */
static void sink_changed(trii_sink *sink)
{
    for (trii_stream *s = sink->streams; s != NULL; s = s->next) {
        bool other_reader = s->log != NULL || s->options.hidden;

        s->share = 0;
        s->options.hidden = s->options.hidden || sink->broken;
        if (sink->broken && !other_reader)
            close_pipe(s);
        else
            update_watch(s);
    }
}

void trii_sink_go_on(trii_sink *sink)
{
    if (sink->file != NULL)
        trii_sink_flush(sink);
    for (trii_stream *s = sink->streams; s != NULL; s = s->next)
        update_watch(s);
}

/* --- life of a stream ----------------------------------------------------- */

tri_status trii_stream_open(trii_stream *stream, trii_sink *sink, int own_fd,
                            const trii_stream_options *options)
{
    tri_status status = TRI_OK;

    memset(stream, 0, sizeof(*stream));
    stream->fd = own_fd;
    stream->sink = sink;
    stream->options = *options;
    snprintf(stream->label, sizeof(stream->label), "%s",
             options->label != NULL ? options->label : "");
    stream->line = trii_alloc_aligned(64, LINE_BYTES + READ_BYTES, "output line");
    if (stream->line == NULL)
        status = TRI_ERR_NO_MEMORY;
    if (status == TRI_OK && options->log_path != NULL)
        status = trii_log_file_open(options->log_path, options->log_max_bytes, options->files,
                                    &stream->log);
    if (status == TRI_OK)
        status = trii_loop_watch(sink->loop, &stream->watch, own_fd, TRII_READABLE, stream_ready);
    if (status != TRI_OK) {
        trii_free(stream->line);
        trii_background_close(stream->log);
        trii_fd_close(own_fd);
        memset(stream, 0, sizeof(*stream));
        stream->fd = -1;
        return status;
    }
    stream->next = sink->streams;
    sink->streams = stream;
    sink->changed = sink_changed;
    return TRI_OK;
}

tri_status trii_stream_open_direct(trii_stream *stream, const char *path, int *fd_out)
{
    tri_status status;

    memset(stream, 0, sizeof(*stream));
    stream->fd = -1;
    status = trii_log_file_create(path, fd_out);
    if (status != TRI_OK)
        return status;
    snprintf(stream->direct, sizeof(stream->direct), "%s", path);
    return TRI_OK;
}

void trii_stream_drain(trii_stream *stream)
{
    if (stream->line == NULL)
        return;
    for (int i = 0; i < DRAIN_READS && stream_read(stream); i++)
        ;
}

void trii_stream_close(trii_stream *stream)
{
    trii_sink *sink = stream->sink;

    if (stream->line == NULL)
        return;
    trii_stream_drain(stream);
    trii_stream_show(stream, stream->used);
    trii_loop_timer_stop(sink->loop, &stream->flush);
    close_pipe(stream);
    for (trii_stream **link = &sink->streams; *link != NULL; link = &(*link)->next) {
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    }
    if (sink->open == stream)
        sink->open = &closed_stream; /* the next to print ends the line */
    trii_free(stream->line);
    stream->line = NULL;
    trii_background_close(stream->log);
    stream->log = NULL;
}

/* What the worker itself wrote last, and how much in all. */
static void load_file(trii_stream *stream)
{
    FILE *file = stream->direct[0] != '\0' ? fopen(stream->direct, "r") : NULL;
    long end = 0, room = (long)sizeof(stream->tail) - 1;

    if (stream->direct[0] == '\0')
        return;
    stream->tail_used = 0;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) > 0 &&
        fseek(file, end > room ? end - room : 0, SEEK_SET) == 0)
        stream->tail_used = fread(stream->tail, 1, (size_t)room, file);
    stream->tail[stream->tail_used] = '\0';
    stream->total = end > 0 ? (uint64_t)end : 0;
    if (file != NULL)
        fclose(file);
}

bool trii_stream_is_in_view(const trii_stream *stream, const trii_sink *sink)
{
    return stream->sink == sink && stream->shown > 0 && sink->total - stream->shown <= VIEW_BYTES;
}

uint64_t trii_stream_total(trii_stream *stream)
{
    load_file(stream);
    return stream->total;
}

/* Whether the text is whole lines, all of them warnings of our library. */
static bool is_only_warnings(const char *text, size_t bytes)
{
    static const char begin[] = "trireme warn ";

    while (bytes > 0) {
        const char *end = memchr(text, '\n', bytes);

        if (end == NULL || strncmp(text, begin, strlen(begin)) != 0)
            return false;
        bytes -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    return true;
}

uint64_t trii_stream_progress(trii_stream *stream)
{
    uint64_t total = trii_stream_total(stream), more = total - stream->progress_total;

    if (more <= stream->tail_used &&
        is_only_warnings(stream->tail + stream->tail_used - more, (size_t)more))
        stream->no_progress += more;
    stream->progress_total = total;
    return total - stream->no_progress;
}

const char *trii_stream_tail(trii_stream *stream, int n_lines)
{
    size_t at;

    load_file(stream);
    for (at = 0; at < stream->tail_used; at++) {
        if (stream->tail[at] == '\0') /* it would end the text */
            stream->tail[at] = '?';
    }
    while (at > 0 && stream->tail[at - 1] == '\n')
        stream->tail[--at] = '\0';
    stream->tail_used = at;
    for (; at > 0; at--) {
        if (stream->tail[at - 1] == '\n' && --n_lines == 0)
            break;
    }
    return stream->tail + at;
}
