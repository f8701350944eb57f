/*
 * output_sink.c - the sinks of output.h: a queue in front of a descriptor that may be slow, full, a
 * plain file, or without a reader.
 */
#include "launch/output/output_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "launch/os/pipe.h"
#include "os/clock.h"
#include "os/terminal.h"

/* An unfinished line is shown after so long. A user may look at a terminal and wait for a
 * prompt; elsewhere whole lines matter more, and a busy machine may stop a worker within one. */
#define FLUSH_TERMINAL_NS (INT64_C(100) * TRII_NS_PER_MS)
#define FLUSH_NS (INT64_C(1000) * TRII_NS_PER_MS)

static tri_status put_in_file(void *target, const char *data, size_t bytes)
{
    int fd = (int)(intptr_t)target;
    size_t put;

    while (bytes > 0) {
        if (trii_fd_write(fd, data, bytes, &put) != TRI_OK)
            return TRII_FAIL(TRI_ERR_IO, "%s; lines are lost", tri_last_error());
        data += put;
        bytes -= put;
    }
    return TRI_OK;
}

static void leave_open(void *target)
{
    (void)target;
}

tri_status trii_sink_init(trii_sink *sink, trii_loop *loop, trii_background *files, int fd,
                          const char *name)
{
    static const trii_background_kind kind = {.put = put_in_file, .release = leave_open};
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    bool terminal = trii_fd_is_terminal(fd);
    tri_status status = TRI_OK;

    memset(sink, 0, sizeof(*sink));
    sink->loop = loop;
    sink->fd = fd;
    sink->name = name;
    if (trii_fd_is_file(fd))
        status = trii_background_open(files, &kind, name, (void *)(intptr_t)fd, &sink->file);
    sink->flush_ns = terminal ? FLUSH_TERMINAL_NS : FLUSH_NS;
    sink->colour = terminal && (no_colour == NULL || *no_colour == '\0') &&
                   (term == NULL || strcmp(term, "dumb") != 0);
    return status;
}

void trii_sink_fini(trii_sink *sink)
{
    trii_loop_unwatch(&sink->watch);
    trii_free(sink->queue);
    sink->queue = NULL;
    sink->used = 0;
}

bool trii_sink_is_empty(const trii_sink *sink)
{
    return (sink->used == 0 && trii_background_left(sink->file) == 0) || sink->broken;
}

static void sink_break(trii_sink *sink)
{
    sink->broken = true;
    sink->used = 0;
    sink->behind = false;
    if (sink->changed != NULL)
        sink->changed(sink);
}

static bool sink_is_writable(const trii_sink *sink)
{
    const unsigned events = TRII_WRITABLE;
    unsigned ready = 0;

    return trii_socket_poll(&sink->fd, &events, &ready, 1, trii_now_ns()) == 1 && ready != 0;
}

/* As trii_fd_write; never waits. What goes to a file has left the queue already. */
static tri_status sink_write(trii_sink *sink, size_t *put_out)
{
    const char *data = sink->queue + sink->start;
    size_t bytes = sink->used;

    if (sink->file != NULL) {
        if (trii_background_left(sink->file) > 0)
            return TRI_INPROGRESS;
        sink->start = sink->used = 0; /* the warning of a loss may be printed here */
        trii_background_put(sink->file, data, bytes);
        *put_out = 0;
        return TRI_OK;
    }
    if (!sink_is_writable(sink))
        return TRI_INPROGRESS;
    if (bytes > TRII_PIPE_ATOMIC_BYTES)
        bytes = TRII_PIPE_ATOMIC_BYTES;
    return trii_fd_write(sink->fd, data, bytes, put_out);
}

/* No room, or a device that fails: it may still have a reader, so the workers' pipes stay open. */
static void sink_lose(trii_sink *sink)
{
    sink->used = 0;
    if (!sink->lost && sink->complaints != NULL)
        trii_sink_print(sink->complaints, "trirun: %s: %s; lines are lost\n", sink->name,
                        tri_last_error());
    sink->lost = true;
}

void trii_sink_flush(trii_sink *sink)
{
    /* A bounded number of pieces, so that a fast reader does not keep us from the workers. */
    for (int i = 0; i < 64 && sink->used > 0; i++) {
        size_t put;
        tri_status status = sink_write(sink, &put);

        if (status == TRI_INPROGRESS)
            break;
        if (status == TRI_ERR_PEER_LOST) {
            sink_break(sink);
            return;
        }
        if (status != TRI_OK) {
            sink_lose(sink);
            break;
        }
        sink->start += put;
        sink->used -= put;
    }
    if (sink->used == 0)
        sink->start = 0;
    if (!sink->behind || sink->used >= TRII_QUEUE_ROOM)
        return;
    sink->behind = false;
    if (sink->changed != NULL)
        sink->changed(sink);
}

static void sink_ready(trii_watch *watch, unsigned events)
{
    trii_sink *sink = TRII_CONTAINER(watch, trii_sink, watch);

    (void)events;
    trii_sink_flush(sink);
    if (sink->used == 0 || sink->broken)
        trii_loop_unwatch(watch);
}

/* Room after what is queued. False: there is none, or it has no reader any more. */
static bool sink_reserve(trii_sink *sink, size_t bytes)
{
    if (sink->broken)
        return false;
    if (sink->start + sink->used + bytes > sink->capacity) {
        size_t capacity = sink->used + bytes < 32768 ? 65536 : 2 * (sink->used + bytes);
        char *queue;

        /* The room is twice what is used or more, so a byte is moved once on average. */
        if (sink->start > 0)
            memmove(sink->queue, sink->queue + sink->start, sink->used);
        sink->start = 0;
        if (capacity > sink->capacity) {
            queue = trii_realloc(sink->queue, capacity, 1, "output queue");
            if (queue == NULL)
                return false; /* a line is lost, which is no reason to end the job */
            sink->queue = queue;
            sink->capacity = capacity;
        }
    }
    return true;
}

void trii_sink_put(trii_sink *sink, const char *data, size_t bytes)
{
    if (bytes == 0 || !sink_reserve(sink, bytes))
        return;
    memcpy(sink->queue + sink->start + sink->used, data, bytes);
    sink->used += bytes;
    sink->total += bytes;
}

void trii_sink_commit(trii_sink *sink)
{
    trii_sink_flush(sink);
    if (sink->file == NULL && sink->used > 0 && !sink->broken && sink->watch.loop == NULL &&
        trii_loop_watch(sink->loop, &sink->watch, sink->fd, TRII_WRITABLE, sink_ready) != TRI_OK)
        sink_break(sink);
}

void trii_sink_begin(trii_sink *sink, const trii_stream *stream)
{
    bool over = sink->open != NULL && sink->open->bar && stream != NULL && stream->bar;

    if (sink->open == NULL || sink->open == stream)
        return;
    trii_sink_put(sink, over ? "\r" : "\n", 1);
    sink->open = NULL;
}

void trii_sink_print(trii_sink *sink, const char *format, ...)
{
    va_list args;
    size_t length;

    va_start(args, format);
    length = (size_t)vsnprintf(NULL, 0, format, args);
    va_end(args);
    trii_sink_begin(sink, NULL);
    if (!sink_reserve(sink, length + 1))
        return;
    va_start(args, format);
    vsnprintf(sink->queue + sink->start + sink->used, length + 1, format, args);
    va_end(args);
    sink->used += length;
    sink->total += length;
    trii_sink_commit(sink);
}
