/*
 * output.h - what the workers print, line by line, to trirun's own stdout and stderr.
 *
 * A stream is the reading end of a worker's pipe, a sink is where lines go. A line of one
 * worker is not cut by another's, unless it stays unfinished (a prompt): then it is shown after a
 * moment, and ends where another's follows.
 * Progress bars of several workers are drawn over each other: output_lines.c. A sink that takes
 * nothing stops the streams that fill its queue, so that their workers wait as they would for a
 * slow terminal; trirun itself never does, and a worker that prints little does not wait for one
 * that prints much. A sink whose reader has gone closes the workers' pipes; one that cannot be
 * written for another reason, such as a full disk, loses lines.
 */
#ifndef TRII_LAUNCH_OUTPUT_H
#define TRII_LAUNCH_OUTPUT_H

#include "base/compiler.h"
#include "launch/output/background.h"
#include "launch/output/log_file.h"
#include "os/loop.h"

#define TRII_STREAM_TAIL_BYTES 8192
#define TRII_STREAM_LABEL_BYTES 96

typedef struct trii_stream trii_stream;

typedef struct trii_sink trii_sink;

struct trii_sink {
    trii_loop *loop;
    trii_watch watch; /* while something is queued and the descriptor is full */
    int fd;
    const char *name;             /* "stdout" */
    trii_background_file *file;   /* a plain file is written there; NULL: by the loop */
    struct trii_sink *complaints; /* where a warning goes that lines were lost; NULL = nowhere */
    bool lost;                    /* that warning was given */
    int64_t flush_ns;             /* an unfinished line is shown after so long */
    bool broken;                  /* it has no reader any more: what comes is dropped */
    bool behind;                  /* much is queued: streams that put more than their share wait */
    bool colour;                  /* labels are coloured */
    char *queue;                  /* from start, `used` bytes */
    size_t start, used, capacity;
    uint64_t total;          /* bytes that were put */
    const trii_stream *open; /* whose unfinished line is the last thing that was put, or NULL */
    trii_stream *streams;
    /* Called from the loop when it is no longer behind, or broken; NULL: it had no stream yet. */
    void (*changed)(trii_sink *sink);
};

/* What is asked of a stream; zero: a pipe whose lines are shown as they are. */
typedef struct trii_stream_options {
    const char *label;              /* before each line; NULL = none */
    int colour;                     /* of the label, a number that differs from others' */
    bool hidden;                    /* lines are not shown */
    bool immediate;                 /* show unfinished lines at once: no other stream prints */
    const char *log_path;           /* every byte goes there too; NULL = nowhere */
    trii_background *files;         /* writes it */
    int64_t log_max_bytes;          /* 0 = it grows as it likes */
    const char *filters;            /* comma list of texts, ",," is a comma; NULL = none */
    trii_background_file *filtered; /* where lines go that contain one; borrowed */
} trii_stream_options;

struct trii_stream {
    trii_watch watch;
    trii_timer flush;
    trii_sink *sink;
    trii_stream *next;
    trii_stream_options options; /* what label and log_path point to is gone */
    trii_background_file *log;   /* NULL = none */
    char label[TRII_STREAM_LABEL_BYTES];
    char direct[TRII_LOG_PATH_BYTES]; /* the file that the worker writes to by itself; "" = none */
    int fd;                           /* -1: closed */
    uint64_t total;                   /* bytes that came */
    uint64_t progress_total;          /* the total at the last trii_stream_progress, and ... */
    uint64_t no_progress;             /* ... how much of it was trirun's own warnings */
    uint64_t shown;                   /* the sink's total when it last showed some; 0 = none */
    bool paused;                      /* not read until its sink or its log file has caught up */
    size_t share;                     /* bytes put since the sink fell behind */
    char *line;                       /* unfinished */
    size_t used;
    bool bar;      /* its unfinished line, as shown, is a progress bar: there was a \r in it */
    bool returned; /* ... and that was the last that was shown */
    char tail[TRII_STREAM_TAIL_BYTES]; /* the last bytes that came */
    size_t tail_used;
};

/* files: writes fd where it is a plain file. name: static. Errors: NO_MEMORY. */
tri_status trii_sink_init(trii_sink *sink, trii_loop *loop, trii_background *files, int fd,
                          const char *name) TRI_MUST_CHECK;
void trii_sink_fini(trii_sink *sink);
/* Whole lines of trirun itself. */
void trii_sink_print(trii_sink *sink, const char *format, ...) TRII_PRINTF(2, 3);
/* A file in the background has less left to write: continues what waited for that. */
void trii_sink_go_on(trii_sink *sink);
/* Nothing is queued, or never will be taken. */
bool trii_sink_is_empty(const trii_sink *sink);

/* own_fd: reading end of a pipe, closed with the stream, also after a failure. sink: borrowed,
 * outlives the stream. Errors: NO_MEMORY, IO. */
tri_status trii_stream_open(trii_stream *stream, trii_sink *sink, int own_fd,
                            const trii_stream_options *options) TRI_MUST_CHECK;
/* A stream without a pipe: the worker writes to the file by itself. fd_out is for its process;
 * the caller closes it. Errors: IO. */
tri_status trii_stream_open_direct(trii_stream *stream, const char *path,
                                   int *fd_out) TRI_MUST_CHECK;
/* Takes what the pipe holds now, without waiting. */
void trii_stream_drain(trii_stream *stream);
/* Drains, shows an unfinished line; never opened: nothing. The tail stays. */
void trii_stream_close(trii_stream *stream);
/* Whether its last lines were shown on this sink so shortly before that a reader still sees
 * them. */
bool trii_stream_is_in_view(const trii_stream *stream, const trii_sink *sink);
/* Bytes that the worker wrote so far. */
uint64_t trii_stream_total(trii_stream *stream);
/* Those of them that show progress: not the warnings that our library repeats about ranks that
 * wait. Checks what came since the last call. */
uint64_t trii_stream_progress(trii_stream *stream);
/* Start of the last n_lines lines that came (a text inside the stream). */
const char *trii_stream_tail(trii_stream *stream, int n_lines);

#endif
