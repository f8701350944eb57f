/*
 * progress.c - a bar on a terminal, plain lines elsewhere.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <trireme/records.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "os/clock.h"
#include "os/terminal.h"

#define REDRAW_NS (100 * TRII_NS_PER_MS)
#define MAX_BAR 30
#define MIN_BAR 8
#define LINE_BYTES 512

struct tri_progress {
    FILE *stream; /* NULL = quiet */
    bool terminal;
    int columns;
    char *unit;
    int64_t total, done, done_at_start;
    int64_t interval_ns, next_ns;   /* of drawing */
    int64_t started_ns, counted_ns; /* counted: what ran before the last pause */
    bool paused;
    bool open_line; /* the terminal's line holds a bar */
};

tri_status tri_progress_create(int64_t total, int64_t done, const char *unit,
                               const tri_progress_options *opt, tri_progress **progress_out)
{
    static const tri_progress_options defaults;
    double seconds = opt != NULL ? trii_option(opt->plain_seconds, 10) : 10;
    tri_progress *p;
    tri_status status = trii_need(progress_out, "tri_progress_create", "progress_out");

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_progress_options, opt);
    if (status != TRI_OK)
        return status;
    if (opt == NULL)
        opt = &defaults;
    if (total < 1 || done < 0 || done > total || !(seconds >= 0 && seconds <= 1e9))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "progress_create: %" PRId64 " of %" PRId64 " done, a line every %g s; "
                         "needs 0 <= done <= total, total >= 1, 0 <= seconds <= 1e9",
                         done, total, seconds);
    p = trii_alloc(1, sizeof(*p), "progress");
    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    p->unit = trii_strdup(unit != NULL ? unit : "steps", "progress");
    if (p->unit == NULL) {
        trii_free(p);
        return TRI_ERR_NO_MEMORY;
    }
    if (!opt->quiet) {
        p->stream = opt->stream != NULL ? opt->stream : stderr;
        p->terminal = trii_terminal(p->stream, &p->columns);
    }
    p->total = total;
    p->done = p->done_at_start = done;
    p->interval_ns = p->terminal ? REDRAW_NS : (int64_t)(seconds * (double)TRII_NS_PER_S);
    p->started_ns = trii_now_ns();
    p->next_ns = p->started_ns + (p->terminal ? 0 : p->interval_ns);
    *progress_out = p;
    return TRI_OK;
}

static void end_line(tri_progress *p)
{
    if (!p->open_line)
        return;
    fputc('\n', p->stream);
    fflush(p->stream);
    p->open_line = false;
}

void tri_progress_destroy(tri_progress *progress)
{
    if (progress == NULL)
        return;
    end_line(progress);
    trii_free(progress->unit);
    trii_free(progress);
}

bool tri_progress_is_due(const tri_progress *progress)
{
    return progress != NULL && progress->stream != NULL && trii_now_ns() >= progress->next_ns;
}

void tri_progress_pause(tri_progress *progress)
{
    if (progress == NULL)
        return;
    if (!progress->paused)
        progress->counted_ns += trii_now_ns() - progress->started_ns;
    progress->paused = true;
}

void tri_progress_resume(tri_progress *progress)
{
    if (progress == NULL)
        return;
    if (progress->paused)
        progress->started_ns = trii_now_ns();
    progress->paused = false;
}

double tri_progress_seconds(const tri_progress *progress)
{
    int64_t ns = progress != NULL ? progress->counted_ns : 0;

    if (progress != NULL && !progress->paused)
        ns += trii_now_ns() - progress->started_ns;
    return (double)ns / (double)TRII_NS_PER_S;
}

double tri_progress_rate(const tri_progress *progress)
{
    double seconds = tri_progress_seconds(progress);

    return seconds > 0 ? (double)(progress->done - progress->done_at_start) / seconds : 0;
}

/* 12345 -> "12,345" */
static void format_rate(double rate, char *out, size_t bytes)
{
    long long n = rate < 1e15 ? (long long)(rate + 0.5) : 0;

    if (n < 100 && rate < 99.95)
        snprintf(out, bytes, "%.1f", rate);
    else if (n < 1000)
        snprintf(out, bytes, "%lld", n);
    else if (n < 1000000)
        snprintf(out, bytes, "%lld,%03lld", n / 1000, n % 1000);
    else
        snprintf(out, bytes, "%lld,%03lld,%03lld", n / 1000000, n / 1000 % 1000, n % 1000);
}

static void format_left(const tri_progress *p, double rate, char *out, size_t bytes)
{
    double seconds = rate > 0 ? (double)(p->total - p->done) / rate : INFINITY;
    long long s = seconds < 1e9 ? (long long)(seconds + 0.5) : -1;

    if (s < 0)
        snprintf(out, bytes, "-:--");
    else if (s < 3600)
        snprintf(out, bytes, "%lld:%02lld", s / 60, s % 60);
    else
        snprintf(out, bytes, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

/* "[=====>    ] ", as wide as asked for, or nothing where there is no room. */
static void format_bar(const tri_progress *p, int width, char *out)
{
    int inside = width - 3, full;

    *out = '\0';
    if (inside < MIN_BAR)
        return;
    full = (int)((double)inside * (double)p->done / (double)p->total);
    *out++ = '[';
    for (int i = 0; i < inside; i++)
        *out++ = i < full ? '=' : i == full ? '>' : ' ';
    memcpy(out, "] ", 3);
}

static void draw(tri_progress *p, const char *text)
{
    double rate = tri_progress_rate(p);
    char rate_text[32], left[32], tail[128], bar[MAX_BAR + 8] = "";

    format_rate(rate, rate_text, sizeof(rate_text));
    format_left(p, rate, left, sizeof(left));
    snprintf(tail, sizeof(tail), "%3d %% of all  %s %s/s  %s left",
             (int)(100.0 * (double)p->done / (double)p->total), rate_text, p->unit, left);
    if (!p->terminal) {
        fprintf(p->stream, "%s  %s\n", text, tail);
        fflush(p->stream);
        return;
    }
    {
        int room = p->columns - 1 - (int)strlen(text) - 2 - (int)strlen(tail);
        char line[LINE_BYTES];

        format_bar(p, room < MAX_BAR ? room : MAX_BAR, bar);
        snprintf(line, sizeof(line), "%s  %s%s", text, bar, tail);
        if (p->columns - 1 < (int)strlen(line))
            line[p->columns - 1] = '\0';
        fprintf(p->stream, "\r%s\033[K", line);
        fflush(p->stream);
        p->open_line = true;
    }
}

void tri_progress_update(tri_progress *progress, int64_t done, const char *format, ...)
{
    tri_progress *p = progress;
    char text[LINE_BYTES / 2];
    va_list args;

    if (p == NULL || format == NULL)
        return;
    p->done = done < 0 ? 0 : done < p->total ? done : p->total;
    if (p->stream == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    p->next_ns = trii_now_ns() + p->interval_ns;
    draw(p, text);
}

void tri_progress_text(tri_progress *progress, const char *format, ...)
{
    tri_progress *p = progress;
    char text[LINE_BYTES / 2];
    va_list args;

    if (p == NULL || p->stream == NULL || format == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (p->terminal)
        fprintf(p->stream, "\r%.*s\033[K", p->columns - 1, text);
    else
        fprintf(p->stream, "%s\n", text);
    fflush(p->stream);
    p->open_line = p->terminal;
}

void tri_progress_line(tri_progress *progress, const char *format, ...)
{
    tri_progress *p = progress;
    va_list args;

    if (p == NULL || p->stream == NULL || format == NULL)
        return;
    if (p->open_line)
        fputs("\r\033[K", p->stream);
    p->open_line = false;
    va_start(args, format);
    vfprintf(p->stream, format, args);
    va_end(args);
    fputc('\n', p->stream);
    fflush(p->stream);
    if (p->terminal)
        p->next_ns = 0; /* draw the bar again soon */
}
