/*
 * run_entry.c - the rare cases of run_entry.h: failures, and waiting for a device.
 */
#include "train/plan/run_entry.h"

#include <stdio.h>

#include "base/err.h"

TRII_NOINLINE tri_status trii_kernel_failed(const trii_entry *entry, const trii_step *step,
                                            const trii_segment *segment, tri_status status)
{
    if (entry->node < 0)
        return status; /* a change of layout */
    return trii_node_failed(step, segment->first_node + entry->node, status);
}

TRII_NOINLINE void trii_note_times(struct trii_entry_times *times, int64_t begin)
{
    times->begin = begin;
    times->end = trii_now_ns();
    times->sum += times->end - begin;
}

tri_status trii_queue_synchronise(const trii_plan_queue *queue, tri_status status)
{
    char line[TRII_ERR_BYTES];
    tri_status done;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    done = queue->ops->synchronise();
    if (status == TRI_OK)
        return done;
    trii_err_set("%s", line); /* the first failure is the cause */
    return status;
}
