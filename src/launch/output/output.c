/*
 * output.c - see output.h: the workers' streams. attempt.c adds them as workers start and drains
 * them as they end; what a line looks like is decided in output_lines.c, where it goes in
 * output_sink.c. report/ asks here for the last lines of a stream.
 */
#include "launch/output/output_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "launch/os/pipe.h"
#include "os/clock.h"
#include "os/descriptor.h"

#define READ_BYTES ((size_t)65536)
#define LINE_BYTES ((size_t)65536) /* a longer line is shown in pieces */
/* While a sink is full, a stream waits if it has put more than this into it since it had room. */
#define SHARE_BYTES ((size_t)1 << 16)
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

static int64_t flush_due_ns(const trii_stream *stream)
{
    return stream->grown_ns + stream->sink->flush_ns;
}

static void flush_later(trii_stream *stream)
{
    if (stream->used == 0 || stream->flushing)
        return;
    stream->flushing = true;
    trii_loop_timer(stream->sink->loop, &stream->flush, flush_due_ns(stream), flush_fired);
}

static bool is_log_behind(const trii_stream *stream)
{
    return trii_log_file_is_behind(&stream->log) ||
           (stream->options.filtered != NULL && trii_log_file_is_behind(stream->options.filtered));
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
        trii_loop_unwatch(&stream->watch);
        trii_fd_close(stream->fd);
        stream->fd = -1;
        return false;
    }
    stream->total += got;
    append_tail(stream, stream->line + stream->used, got);
    if (stream->log.path[0] != '\0')
        trii_log_file_put(&stream->log, stream->line + stream->used, got);
    from = stream->used > 0 && stream->line[stream->used - 1] == '\r' ? stream->used - 1
                                                                      : stream->used;
    stream->used += got;
    ready = find_line_end(stream->line + from, stream->used - from);
    ready += ready > 0 ? from : 0;
    if (stream->options.immediate || stream->used - ready >= LINE_BYTES)
        ready = stream->used;
    trii_stream_show(stream, ready);
    stream->grown_ns = trii_now_ns();
    flush_later(stream);
    if (is_log_behind(stream)) {
        stream->log_is_behind = true;
        trii_loop_unwatch(&stream->watch);
    }
    return true;
}

static void flush_fired(trii_timer *timer)
{
    trii_stream *stream = TRII_CONTAINER(timer, trii_stream, flush);

    int64_t now_ns = trii_now_ns();

    stream->flushing = false;
    if (stream->held || stream->log_is_behind)
        stream->grown_ns = now_ns; /* its end may lie in the pipe, which we do not read now */
    /* The timer may have been set for an earlier line, or we were too busy to read on: only a
     * line that the worker itself left unfinished is shown. */
    if (now_ns < flush_due_ns(stream))
        flush_later(stream);
    else if (!stream_read(stream))
        trii_stream_show(stream, stream->used);
}

static void stream_ready(trii_watch *watch, unsigned events)
{
    trii_stream *stream = TRII_CONTAINER(watch, trii_stream, watch);

    (void)events;
    stream_read(stream);
}

static void stream_hold(trii_stream *stream)
{
    if (stream->held || stream->options.hidden || stream->share < SHARE_BYTES)
        return;
    stream->held = true;
    trii_loop_unwatch(&stream->watch);
}

static void stream_watch(trii_stream *stream)
{
    if (stream->fd < 0 || stream->held || stream->log_is_behind)
        return;
    if (trii_loop_watch(stream->sink->loop, &stream->watch, stream->fd, TRII_READABLE,
                        stream_ready) != TRI_OK)
        trii_stream_close(stream); /* out of descriptors: the worker sees a closed pipe */
}

static void stream_resume(trii_stream *stream)
{
    stream->share = 0;
    if (!stream->held)
        return;
    stream->held = false;
    stream_watch(stream);
}

static void stream_catch_up(trii_stream *stream)
{
    if (!stream->log_is_behind || is_log_behind(stream))
        return;
    stream->log_is_behind = false;
    stream_watch(stream);
}

/* --- what sinks ask of their streams -------------------------------------- */

/* Nobody reads the sink: close the workers' pipes too, so that they learn it as if they had written
 * themselves. */
static void close_pipes(trii_sink *sink)
{
    for (trii_stream *s = sink->streams; s != NULL; s = s->next) {
        if (s->log.path[0] != '\0' || s->options.hidden) { /* it has another reader */
            s->options.hidden = true;
            stream_resume(s);
            continue;
        }
        trii_loop_unwatch(&s->watch);
        trii_fd_close(s->fd);
        s->fd = -1;
    }
}

static void resume_all(trii_sink *sink)
{
    for (trii_stream *s = sink->streams; s != NULL; s = s->next)
        stream_resume(s);
}

static void hold_all(trii_sink *sink)
{
    for (trii_stream *s = sink->streams; s != NULL; s = s->next)
        stream_hold(s);
}

static const trii_sink_feeders feeders = {
    .broken = close_pipes, .has_room = resume_all, .full = hold_all};

void trii_sink_go_on(trii_sink *sink)
{
    if (sink->file != NULL)
        trii_sink_flush(sink);
    for (trii_stream *s = sink->streams; s != NULL; s = s->next)
        stream_catch_up(s);
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
    if (options->log_path != NULL)
        status = trii_log_file_open(&stream->log, options->files, options->log_path,
                                    options->log_max_bytes);
    if (status != TRI_OK)
        goto err_close;
    stream->capacity = LINE_BYTES + READ_BYTES;
    stream->line = trii_alloc_aligned(64, stream->capacity, "output line");
    status = stream->line == NULL ? TRI_ERR_NO_MEMORY : TRI_OK;
    if (status != TRI_OK)
        goto err_close;
    status = trii_loop_watch(sink->loop, &stream->watch, own_fd, TRII_READABLE, stream_ready);
    if (status != TRI_OK)
        goto err_free;
    stream->next = sink->streams;
    sink->streams = stream;
    sink->feeders = &feeders;
    return TRI_OK;

err_free:
    trii_free(stream->line);
    stream->line = NULL;
err_close:
    trii_log_file_close(&stream->log);
    trii_fd_close(own_fd);
    stream->fd = -1;
    return status;
}

tri_status trii_stream_open_direct(trii_stream *stream, const char *path, int *fd_out)
{
    tri_status status;

    memset(stream, 0, sizeof(*stream));
    stream->fd = -1;
    status = trii_log_file_create(path, fd_out);
    if (status != TRI_OK)
        return status;
    snprintf(stream->log.path, sizeof(stream->log.path), "%s", path);
    stream->direct = true;
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
    trii_loop_unwatch(&stream->watch);
    trii_fd_close(stream->fd);
    stream->fd = -1;
    for (trii_stream **link = &sink->streams; *link != NULL; link = &(*link)->next) {
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    }
    if (sink->open == stream)
        sink->open = &closed_stream; /* whoever prints next ends the line */
    trii_free(stream->line);
    stream->line = NULL;
    trii_log_file_close(&stream->log);
}

/* What the worker itself wrote last. */
static void load_tail(trii_stream *stream)
{
    FILE *file = fopen(stream->log.path, "r");

    stream->tail_used = 0;
    stream->tail[0] = '\0';
    if (file == NULL)
        return;
    if (fseek(file, -(long)(sizeof(stream->tail) - 1), SEEK_END) != 0)
        rewind(file); /* it is shorter */
    stream->tail_used = fread(stream->tail, 1, sizeof(stream->tail) - 1, file);
    stream->tail[stream->tail_used] = '\0';
    fclose(file);
}

bool trii_stream_is_in_view(const trii_stream *stream, const trii_sink *sink)
{
    return stream->sink == sink && stream->shown > 0 && sink->total - stream->shown <= VIEW_BYTES;
}

uint64_t trii_stream_total(const trii_stream *stream)
{
    FILE *file = stream->direct ? fopen(stream->log.path, "r") : NULL;
    long bytes = 0;

    if (file == NULL)
        return stream->total;
    if (fseek(file, 0, SEEK_END) == 0)
        bytes = ftell(file);
    fclose(file);
    return bytes > 0 ? (uint64_t)bytes : 0;
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

    if (more > 0 && stream->direct)
        load_tail(stream);
    if (more <= stream->tail_used &&
        is_only_warnings(stream->tail + stream->tail_used - more, (size_t)more))
        stream->no_progress += more;
    stream->progress_total = total;
    return total - stream->no_progress;
}

const char *trii_stream_tail(trii_stream *stream, int n_lines)
{
    size_t at;

    if (stream->direct)
        load_tail(stream);
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
