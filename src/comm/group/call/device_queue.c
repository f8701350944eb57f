/*
 * device_queue.c - see trireme/device_queue.h: the queues that this thread has named. Calls of an
 * engine for the memory of a device carry theirs (post.c).
 */
/* build: leaf */
#include <trireme/device_queue.h>

#include "base/compiler.h"
#include "base/err.h"

#define NAMED_QUEUES 32

/* Those that are not NULL, in no order. */
static _Thread_local struct {
    tri_device device;
    void *queue;
} named[NAMED_QUEUES];
static _Thread_local int n_named;

static int find(tri_device device)
{
    int i = 0;

    while (i < n_named && named[i].device != device)
        i++;
    return i;
}

tri_status tri_device_set_queue(tri_device device, void *queue)
{
    int kind = device >> 16, i;

    if (kind < TRI_DEVICE_CPU || kind > TRI_DEVICE_CUDA || (device & 0xffff) >= TRI_MAX_DEVICES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "device_set_queue: %d is not a device: TRI_CUDA(0) to TRI_CUDA(%d) are",
                         (int)device, TRI_MAX_DEVICES - 1);
    if (kind == TRI_DEVICE_CPU && queue != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "device_set_queue: cpu:%d has no queue: give NULL",
                         (int)device);
    i = find(device);
    if (queue == NULL) {
        if (i < n_named)
            named[i] = named[--n_named];
        return TRI_OK;
    }
    if (i == NAMED_QUEUES)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "device_set_queue: this thread has named queues of %d devices, the most "
                         "that it can: set one of them to NULL",
                         NAMED_QUEUES);
    named[i].device = device;
    named[i].queue = queue;
    n_named += i == n_named;
    return TRI_OK;
}

void *tri_device_queue(tri_device device)
{
    int i = find(device);

    return i < n_named ? named[i].queue : NULL;
}
