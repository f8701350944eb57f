/*
 * worker.c - see worker.h.
 */
#include "launch/worker/worker.h"

#include <string.h>

#include "inspect/why.h"
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
    /* What our library, gloo and plain sockets say when the other end is gone, and TRI_CHECK=nan
     * of a NaN that is another rank's. */
    static const char *const words[] = {"PEER_LOST", "onnection closed by peer",
                                        "onnection reset by peer", "NaN came in through "};
    const char *tail = trii_stream_tail(&worker->err, REPORT_LINES);
    int aborter = trii_why_aborter(tail);

    if (worker->exit.signal != 0)
        return 2;
    for (size_t i = 0; i < TRII_COUNT_OF(words); i++) {
        if (strstr(tail, words[i]) != NULL)
            return 0;
    }
    return aborter < 0 || aborter == worker->rank;
}

bool trii_worker_made_nan(trii_worker *worker)
{
    return strstr(trii_stream_tail(&worker->err, REPORT_LINES), "NaN made by ") != NULL;
}
