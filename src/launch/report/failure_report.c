/*
 * failure_report.c - see failure_report.h. Called by attempt.c when the workers of a failed attempt
 * have ended. Puts together what culprit.c, error_file.c and memory_kills.c found.
 */
#include "launch/report/failure_report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "launch/output/escape.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/host.h"
#include "os/read_whole.h"
#include "os/signal.h"

enum { MAX_LEAVERS = 8 };

/* ISO, as torchrun prints it; local time. */
static void describe_time(int64_t wall_ns, char *text_out, size_t bytes)
{
    time_t seconds = (time_t)(wall_ns / TRII_NS_PER_S);
    const struct tm *local = localtime(&seconds);

    text_out[0] = '\0';
    if (local != NULL)
        strftime(text_out, bytes, "%Y-%m-%d_%H:%M:%S", local);
}

static void print_lines(const char *line, trii_sink *sink)
{
    while (*line != '\0') {
        int length = (int)strcspn(line, "\n"), end = length, begin;

        while (end > 0 && line[end - 1] == '\r')
            end--;
        for (begin = end; begin > 0 && line[begin - 1] != '\r';) /* of a bar its last state */
            begin--;
        trii_sink_print(sink, "    | %.*s\n", end - begin, line + begin);
        line += length + (line[length] == '\n');
    }
}

/* Where a core went, or how to get one. */
static void print_core_hint(const trii_worker *worker, trii_sink *sink)
{
    static const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
    char pattern[256];
    bool crashed = false;

    for (size_t i = 0; i < TRII_COUNT_OF(fatal); i++)
        crashed = crashed || worker->exit.signal == fatal[i];
    if (!crashed)
        return;
    (void)trii_read_whole("/proc/sys/kernel/core_pattern", pattern, sizeof(pattern));
    pattern[strcspn(pattern, "\n")] = '\0';
    if (!worker->exit.core_dumped)
        trii_sink_print(sink,
                        "  core     : none (run ulimit -c unlimited before trirun to get one)\n");
    else if (strstr(pattern, "systemd-coredump") != NULL)
        trii_sink_print(sink, "  core     : coredumpctl debug %d\n", worker->process.pid);
    else if (pattern[0] == '|')
        trii_sink_print(sink, "  core     : piped to %.*s\n", (int)strcspn(pattern + 1, " "),
                        pattern + 1);
    else
        trii_sink_print(sink, "  core     : \"%s\", in the worker's folder unless it has a /\n",
                        pattern);
}

static void print_memory_hint(const trii_failure *f, trii_sink *sink)
{
    trii_memory_kills now;
    const char *why;

    if (f->cause->exit.signal != SIGKILL || f->before == NULL || f->culprit.rank >= 0)
        return;
    trii_memory_kills_read(&now);
    why = trii_memory_kills_explain(f->before, &now);
    trii_sink_print(sink, "  reason   : %s\n",
                    why != NULL ? why
                                : "another process sent SIGKILL: trirun did not, and the kernel "
                                  "counts no out-of-memory kill");
}

/* What the ranks whose group was aborted noted of it. */
static void print_culprit_hint(const trii_failure *f, trii_sink *sink)
{
    char why[TRII_RECORD_FAILURE_BYTES];

    if (f->early[0] == '\0' && f->culprit.rank >= 0 && f->culprit.why[0] != '\0')
        trii_sink_print(sink, "  reason   : %s\n",
                        trii_text_plain(f->culprit.why, why, sizeof(why)));
}

/* What the worker writes to its log by itself fails there, as Python's print does by an
 * exception. */
static void print_disk_hint(const trii_worker *worker, trii_sink *sink)
{
    const trii_stream *streams[] = {&worker->out, &worker->err};

    for (int i = 0; i < 2; i++) {
        if (streams[i]->direct[0] == '\0' || !trii_path_is_full(streams[i]->direct))
            continue;
        trii_sink_print(
            sink,
            "  disk     : the disk of %s is full: the worker's writes to it failed (with -t "
            "or --log-max-size trirun writes the file, and drops what does not fit)\n",
            streams[i]->direct);
        return;
    }
}

/* Python prints its traceback also where it writes an error file: whether the traceback's last line
 * is among the last lines of the worker, and still in view. */
static bool is_shown_above(trii_worker *worker, const char *traceback, const trii_sink *sink)
{
    size_t end = strlen(traceback), begin, length;

    while (end > 0 && traceback[end - 1] == '\n')
        end--;
    for (begin = end; begin > 0 && traceback[begin - 1] != '\n';)
        begin--;
    length = end - begin;
    if (length == 0 || !trii_stream_is_in_view(&worker->err, sink))
        return false;
    for (const char *at = trii_stream_tail(&worker->err, TRII_REPORT_LINES);
         (at = memmem(at, strlen(at), traceback + begin, length)) != NULL; at++) {
        if (at[length] == '\n' || at[length] == '\0') /* PyTorch puts [rank1]: before the line */
            return true;
    }
    return false;
}

/* What the worker itself wrote down, and its copy for our parent. */
static bool print_error_file(const trii_failure *f, trii_sink *sink)
{
    const char *ours = getenv("TORCHELASTIC_ERROR_FILE");
    char path[TRII_LOG_PATH_BYTES], message[2048];
    trii_error_file error;

    if (!trii_failure_read_error(f, f->cause, path, sizeof(path), &error)) {
        if (error.too_large)
            trii_sink_print(sink, "  error_file: %s is not read: it has more than %d bytes\n", path,
                            TRII_ERROR_FILE_BYTES);
        return false;
    }
    trii_sink_print(sink, "  message  : %s\n  error_file: %s\n",
                    trii_text_plain(error.message, message, sizeof(message)), path);
    if (error.traceback[0] != '\0' && is_shown_above(f->cause, error.traceback, sink)) {
        trii_sink_print(sink, "  traceback: shown above\n");
    } else if (error.traceback[0] != '\0') {
        trii_sink_print(sink, "  traceback:\n");
        print_lines(error.traceback, sink);
    }
    if (ours != NULL && *ours != '\0' &&
        trii_error_file_copy(path, ours,
                             f->cause->exit.signal != 0 ? -f->cause->exit.signal
                                                        : f->cause->exit.code) != TRI_OK)
        trii_sink_print(sink, "  cannot copy its error file: %s\n", tri_last_error());
    return error.traceback[0] != '\0';
}

static void print_words(trii_worker *worker, trii_sink *sink)
{
    const char *line = trii_stream_tail(&worker->err, TRII_REPORT_LINES);

    if (*line == '\0') {
        trii_sink_print(sink, "  it printed nothing to stderr\n");
        return;
    }
    if (trii_stream_is_in_view(&worker->err, sink)) {
        trii_sink_print(sink, "  its last lines on stderr are shown above\n");
        return;
    }
    trii_sink_print(sink, "  its last lines on stderr:\n");
    print_lines(line, sink);
}

static void print_victims(const trii_failure *f, trii_sink *sink)
{
    int stopped = 0, failed = 0;

    for (int i = 0; i < f->n_workers; i++) {
        const trii_worker *w = &f->workers[i];

        if (w == f->cause || !trii_worker_failed(w))
            continue;
        if (w->signalled && !w->was_ending)
            stopped++;
        else
            failed++;
    }
    if (stopped + failed > 0)
        trii_sink_print(sink, "  victims  : %d stopped because of it, %d failed after it\n",
                        stopped, failed);
}

/* The others may have failed only because a rank had left early. */
static void print_left_before(const trii_failure *f, trii_sink *sink)
{
    int shown = 0;

    for (int i = 0; i < f->n_workers && shown < MAX_LEAVERS; i++) {
        const trii_worker *w = &f->workers[i];
        double seconds = (double)(f->cause->ended_ns - w->ended_ns) / TRII_NS_PER_S;
        char when[24];

        if (w == f->cause || !trii_failure_has_left(f, w))
            continue;
        snprintf(when, sizeof(when), seconds >= 0.05 ? "%.1f s" : "just", seconds);
        trii_sink_print(sink, "  left     : rank %d had ended with status 0 %s before\n", w->rank,
                        when);
        shown++;
    }
}

void trii_failure_report_leavers(const trii_worker *workers, int n_workers, trii_sink *sink)
{
    int shown = 0, others = 0;

    for (int i = 0; i < n_workers; i++)
        others += workers[i].signalled;
    for (int i = 0; i < n_workers && others > 0 && shown < MAX_LEAVERS; i++) {
        if (workers[i].live || trii_worker_failed(&workers[i]) || workers[i].signalled)
            continue;
        trii_sink_print(sink, "trirun: rank %d had left with status 0 %.1f s before, %d %s\n",
                        workers[i].rank,
                        (double)(trii_now_ns() - workers[i].ended_ns) / TRII_NS_PER_S, others,
                        others == 1 ? "other continued" : "others continued");
        shown++;
    }
}

void trii_failure_report(const trii_failure *f, trii_sink *sink)
{
    const trii_worker *worker = f->cause;
    int signal = worker->exit.signal;
    char what[120], when[40], host[256], program[4096];

    trii_failure_describe(f, what, sizeof(what));
    describe_time(trii_wall_ns() - (trii_now_ns() - worker->ended_ns), when, sizeof(when));
    trii_host_name(host, sizeof(host));
    trii_sink_print(sink,
                    "trirun: %s failed: rank %d %s%s%s\n"
                    "  time     : %s\n"
                    "  host     : %s\n"
                    "  rank     : %d (local_rank: %d)\n"
                    "  exitcode : %d (pid: %d)%s%s%s\n",
                    trii_text_plain(f->program, program, sizeof(program)), worker->rank, what,
                    f->early[0] != '\0' ? " while " : "", f->early, when, host, worker->rank,
                    (int)(worker - f->workers), signal != 0 ? -signal : worker->exit.code,
                    worker->process.pid, signal != 0 ? " (" : "",
                    signal != 0 ? trii_signal_name(signal) : "", signal != 0 ? ")" : "");
    print_culprit_hint(f, sink);
    print_memory_hint(f, sink);
    print_core_hint(worker, sink);
    print_disk_hint(worker, sink);
    print_left_before(f, sink);
    if (!print_error_file(f, sink))
        print_words(f->cause, sink);
    print_victims(f, sink);
}
