/*
 * device_memory.h - memory that only the kernels of its device may touch, and copies into and out
 * of it.
 *
 * The host's memory, which all cpu devices share, needs no table: code that holds contents calls
 * trii_is_host first, and only devices and these functions touch other memory.
 */
#ifndef TRII_DEVICE_MEMORY_H
#define TRII_DEVICE_MEMORY_H

#include <stdbool.h>

#include "train/tensor/device_list.h"
#include "train/tensor/storage.h"

/* Required: all. Any thread calls them. A copy is complete when it returns, comes after everything
 * that the calling thread has put on its current queue of its devices (trireme/device_queue.h), and
 * may block; its errors name the device. Queues of plans have been synchronised before. */
typedef struct trii_memory {
    tri_status (*alloc)(int index, size_t bytes, void **data_out); /* zeroed, 64-byte aligned */
    void (*free)(int index, void *data, size_t bytes);             /* NULL allowed */
    tri_status (*write)(int index, void *dst, const void *host, size_t bytes);
    tri_status (*read)(int index, void *host, const void *src, size_t bytes);
    /* Within a device, or between two of the kind. */
    tri_status (*copy)(int dst_index, void *dst, int src_index, const void *src, size_t bytes);
} trii_memory;

/* NULL: the host's memory. The device must exist. */
static inline const trii_memory *trii_memory_of(tri_device device)
{
    return trii_device_kinds[trii_device_kind_of(device)]->memory;
}
/* Whether the contents may be accessed directly. */
static inline bool trii_is_host(tri_device device)
{
    return trii_device_kind_of(device) == TRI_DEVICE_CPU || trii_memory_of(device) == NULL;
}

/* Bytes from anywhere to anywhere; must not overlap. */
tri_status trii_memory_copy(tri_device dst_device, void *dst, tri_device src_device,
                            const void *src, size_t bytes) TRI_MUST_CHECK;
/* Contents in a layout (NULL = plain) to plain bytes of the host, and back. `bytes` is the size of
 * the plain ones. */
tri_status trii_memory_read(tri_device device, const trii_layout *layout, const void *src,
                            void *plain, size_t bytes) TRI_MUST_CHECK;
tri_status trii_memory_write(tri_device device, const trii_layout *layout, const void *plain,
                             void *dst, size_t bytes) TRI_MUST_CHECK;

#endif
