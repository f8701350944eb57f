/*
 * run_entry.c - the rare cases of run_entry.h: failures, and waiting for a device.
 */
#include "train/plan/run_entry.h"

#include <stdio.h>

#include "base/err.h"
#include "train/tensor/device_list.h"
#include "train/tensor/device_memory.h"

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

TRII_NOINLINE tri_status trii_run_move(const trii_entry *entry, trii_queue *queue)
{
    const trii_device_ops *ops = trii_device_kinds[trii_device_kind_of(queue->device)]->ops;
    tri_status status = TRI_OK;

    if (ops->copy != NULL && (trii_is_host(entry->from) || trii_device_kind_of(entry->from) ==
                                                               trii_device_kind_of(queue->device)))
        return ops->copy(queue, entry->args[1], entry->from, entry->args[0], entry->bytes);
    if (ops->synchronise != NULL)
        status = ops->synchronise(queue);
    if (status != TRI_OK)
        return status;
    return trii_memory_copy(entry->to, entry->args[1], entry->from, entry->args[0], entry->bytes);
}

tri_status trii_queue_synchronise(const trii_plan_queue *queue, tri_status status)
{
    char line[TRII_ERR_BYTES];
    tri_status done;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    done = queue->ops->synchronise(queue->queue);
    if (status == TRI_OK)
        return done;
    trii_err_set("%s", line); /* the first failure is the cause */
    return status;
}
