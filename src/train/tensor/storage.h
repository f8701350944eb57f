/*
 * storage.h - memory of tensors: counted, with an owner that knows how to free it.
 *
 * A tensor's elements lie in plain (row-major) order, or in a device's own layout (oneDNN's blocked
 * ones), which the device converts to plain bytes and back.
 */
#ifndef TRII_STORAGE_H
#define TRII_STORAGE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <trireme/device.h>
#include <trireme/status.h>
#include <trireme/types.h>

/* A device's order of a tensor's elements. Immutable and interned by the device: two pointers are
 * equal exactly if the layouts are. NULL stands for plain. Its functions see memory of the host:
 * contents of another device's memory are copied before and after. */
typedef struct trii_layout {
    const char *name; /* e.g. "aBcd16b", for logs and for comparing ranks */
    size_t bytes;     /* with padding */
    tri_status (*to_plain)(const struct trii_layout *layout, const void *src, void *dst);
    tri_status (*from_plain)(const struct trii_layout *layout, const void *src, void *dst);
    /* Not NULL: the layout of a value that lies within another one in a plan, never of a tensor:
     * element [i, j, ..] is i strides[0] + j strides[1] + .. elements from the first. */
    const int64_t *strides;
} trii_layout;

/* Where storage comes from: the heap, a group's arena, a device. */
typedef struct trii_storage_ops {
    const char *name;
    tri_status (*alloc)(void *ctx, size_t bytes, void **data_out); /* zeroed, 64-byte aligned */
    void (*free)(void *ctx, void *data, size_t bytes);
} trii_storage_ops;

typedef struct trii_storage {
    atomic_int refs;
    /* the device whose memory it is; TRI_CPU(0): the host's, which all cpu devices share */
    tri_device device;
    const trii_storage_ops *ops;
    void *ctx; /* owned by ops; borrowed, must outlive the storage */
    void *data;
    size_t bytes;
    struct tri_tensor *sharers; /* sharing.c's */
    atomic_bool sharers_busy;
    struct trii_storage *next; /* of a list of those that will be released */
} trii_storage;

/* Zeros in the memory of the device. One reference. */
tri_status trii_storage_create_on(tri_device device, size_t bytes,
                                  trii_storage **storage_out) TRI_MUST_CHECK;
/* Memory of the host; NULL ops = heap. One reference. */
tri_status trii_storage_create(const trii_storage_ops *ops, void *ctx, size_t bytes,
                               trii_storage **storage_out) TRI_MUST_CHECK;
/* Memory of the user, which stays plain, since the user reads it. */
tri_status trii_storage_wrap(void *data, size_t bytes, trii_storage **storage_out) TRI_MUST_CHECK;
/* For such storage: called once nobody needs the memory any more. NULL: nothing is called. */
void trii_storage_on_release(trii_storage *storage, void (*release)(void *arg), void *arg);
trii_storage *trii_storage_ref(trii_storage *storage);
void trii_storage_unref(trii_storage *storage); /* NULL allowed */
/* Whether it is from trii_storage_create_on: memory that nobody knows by its address, so that
 * contents may lie in other such memory as well. */
bool trii_storage_is_movable(const trii_storage *storage);

#endif
