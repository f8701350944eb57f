/*
 * worker.c - see worker.h. attempt.c owns the workers; the reports (report/) read their state and
 * how they ended.
 */
#include "launch/worker/worker.h"

#include <stdio.h>

#include "os/signal.h"

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
