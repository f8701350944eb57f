/*
 * worker.c - see worker.h.
 */
#include "launch/worker.h"

#include <string.h>
#include <time.h>

#include "os/clock.h"
#include "os/signal.h"

enum { REPORT_LINES = 12 };

void trii_worker_describe(const trii_worker *worker, char *text_out, size_t bytes)
{
    if (worker->live)
        snprintf(text_out, bytes, "is running");
    else if (worker->exit.signal != 0)
        snprintf(text_out, bytes, "was killed by %s%s", trii_signal_name(worker->exit.signal),
                 worker->exit.core_dumped ? " (core dumped)" : "");
    else if (worker->exit.code != 0)
        snprintf(text_out, bytes, "exited with code %d", worker->exit.code);
    else
        snprintf(text_out, bytes, "succeeded");
}

int trii_worker_blame(trii_worker *worker)
{
    /* What our library, gloo and plain sockets say when the other end is gone. */
    static const char *const words[] = {"PEER_LOST", "onnection closed by peer",
                                        "onnection reset by peer"};
    const char *tail = trii_stream_tail(&worker->err, REPORT_LINES);

    if (worker->exit.signal != 0)
        return 2;
    for (size_t i = 0; i < TRII_COUNT_OF(words); i++) {
        if (strstr(tail, words[i]) != NULL)
            return 0;
    }
    return 1;
}

/* ISO, as torchrun prints it; local time. */
static void describe_time(int64_t wall_ns, char *text_out, size_t bytes)
{
    time_t seconds = (time_t)(wall_ns / TRII_NS_PER_S);
    const struct tm *local = localtime(&seconds);

    text_out[0] = '\0';
    if (local != NULL)
        strftime(text_out, bytes, "%Y-%m-%d_%H:%M:%S", local);
}

void trii_worker_report(trii_worker *worker, const char *program, trii_sink *sink)
{
    char what[80], when[40], host[256];
    const char *line = trii_stream_tail(&worker->err, REPORT_LINES);

    trii_worker_describe(worker, what, sizeof(what));
    describe_time(worker->ended_wall_ns, when, sizeof(when));
    trii_process_host(host, sizeof(host));
    trii_sink_print(sink,
                    "trirun: %s failed: rank %d %s\n"
                    "  time     : %s\n"
                    "  host     : %s\n"
                    "  rank     : %d (local_rank: %d)\n"
                    "  exitcode : %d (pid: %d)%s%s%s\n",
                    program, worker->rank, what, when, host, worker->rank, worker->local_rank,
                    worker->exit.signal != 0 ? -worker->exit.signal : worker->exit.code,
                    worker->process.pid, worker->exit.signal != 0 ? " (" : "",
                    worker->exit.signal != 0 ? trii_signal_name(worker->exit.signal) : "",
                    worker->exit.signal != 0 ? ")" : "");
    if (*line == '\0') {
        trii_sink_print(sink, "  it printed nothing to stderr\n");
        return;
    }
    trii_sink_print(sink, "  its last lines on stderr:\n");
    while (*line != '\0') {
        int length = (int)strcspn(line, "\n");

        trii_sink_print(sink, "    | %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}
