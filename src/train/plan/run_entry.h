/*
 * run_entry.h - runs one entry of a plan; for run.c and queue_run.c. Inline, since a step of a
 * small network is a few dozen entries of less than a microsecond each.
 */
#ifndef TRII_RUN_ENTRY_H
#define TRII_RUN_ENTRY_H

#include <string.h>

#include "base/compiler.h"
#include "os/clock.h"
#include "train/plan/plan.h"
#include "train/plan/trace.h"

/* Prepends which operation failed; returns `status`. */
tri_status trii_kernel_failed(const trii_entry *entry, const trii_step *step,
                              const trii_segment *segment, tri_status status);
void trii_note_times(struct trii_entry_times *times, int64_t begin);
/* Before a run's first entry on the queue, by the thread that runs them. */
static inline tri_status trii_queue_begin(const trii_plan_queue *queue)
{
    return queue->ops->begin != NULL ? queue->ops->begin(queue->queue) : TRI_OK;
}
/* Waits until everything on the queue is complete. Returns `status` if it is a failure, and keeps
 * its line. For devices with `synchronise`. */
tri_status trii_queue_synchronise(const trii_plan_queue *queue, tri_status status) TRI_MUST_CHECK;

/* Runs an entry of kind TRII_ENTRY_MOVE, after all that is on the queue. */
tri_status trii_run_move(const trii_entry *entry, trii_queue *queue) TRI_MUST_CHECK;

/* Runs entry e on the calling thread, and progresses communication. n_running counts what is under
 * way, or will start as soon as it may. */
static inline tri_status trii_run_entry(trii_plan *plan, int32_t e, const trii_step *step,
                                        const trii_segment *segment, const trii_run *run,
                                        int32_t *n_running)
{
    const trii_entry *entry = &plan->entries[e];
    int64_t begin = TRII_UNLIKELY(plan->times != NULL) ? trii_now_ns() : 0;
    tri_status status = TRI_OK;

    switch (entry->kind) {
    case TRII_ENTRY_KERNEL:
    case TRII_ENTRY_PACK:
        if (entry->kind == TRII_ENTRY_PACK && !plan->packed[entry->host].runs)
            break;
        status = entry->kernel->run(entry->kernel, entry->args, run);
        if (TRII_UNLIKELY(status != TRI_OK))
            status = trii_kernel_failed(entry, step, segment, status);
        else if (*n_running > 0)
            status = trii_hosts_poll(plan, step, segment, n_running);
        break;
    case TRII_ENTRY_COPY:
        memcpy(entry->args[1], entry->args[0], entry->bytes);
        break;
    case TRII_ENTRY_MOVE:
        status = trii_run_move(entry, run->queue);
        break;
    case TRII_ENTRY_START:
        status = trii_host_arrives(plan, entry->host, step, segment, n_running);
        break;
    case TRII_ENTRY_WAIT:
        status = trii_host_wait(plan, entry->host, step, segment, n_running);
        break;
    }
    if (TRII_UNLIKELY(plan->times != NULL))
        trii_note_times(&plan->times[e], begin);
    return status;
}

#endif
