/*
 * storage.c - see storage.h.
 */
#include "train/tensor/storage.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/device_memory.h"

static tri_status heap_alloc(void *ctx, size_t bytes, void **data_out)
{
    void *data = trii_alloc_aligned(TRII_CACHE_LINE, bytes, "storage");

    (void)ctx;
    if (data == NULL)
        return TRI_ERR_NO_MEMORY;
    memset(data, 0, bytes);
    *data_out = data;
    return TRI_OK;
}

static void heap_free(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    trii_free(data);
}

static const trii_storage_ops heap = {"heap", heap_alloc, heap_free};

tri_status trii_storage_create(const trii_storage_ops *ops, void *ctx, size_t bytes,
                               trii_storage **storage_out)
{
    trii_storage *storage = trii_alloc(1, sizeof(*storage), "storage");
    tri_status status;

    if (storage == NULL)
        return TRI_ERR_NO_MEMORY;
    storage->device = TRI_CPU(0);
    storage->ops = ops != NULL ? ops : &heap;
    storage->ctx = ctx;
    storage->bytes = bytes;
    atomic_init(&storage->refs, 1);
    status = storage->ops->alloc(ctx, bytes, &storage->data);
    if (status != TRI_OK) {
        trii_free(storage);
        return TRII_FAIL_CTX(status, "storage of %zu bytes from %s", bytes,
                             ops != NULL ? ops->name : heap.name);
    }
    *storage_out = storage;
    return TRI_OK;
}

/* --- memory of devices ---------------------------------------------------- */

static tri_device device_of(const void *ctx)
{
    return (tri_device)(intptr_t)ctx;
}

static tri_status device_alloc(void *ctx, size_t bytes, void **data_out)
{
    tri_device device = device_of(ctx);

    return trii_memory_of(device)->alloc(trii_device_index_of(device), bytes, data_out);
}

static void device_free(void *ctx, void *data, size_t bytes)
{
    tri_device device = device_of(ctx);

    trii_memory_of(device)->free(trii_device_index_of(device), data, bytes);
}

static const trii_storage_ops of_device = {"a device", device_alloc, device_free};

tri_status trii_storage_create_on(tri_device device, size_t bytes, trii_storage **storage_out)
{
    tri_status status;

    if (TRII_LIKELY(trii_is_host(device)))
        return trii_storage_create(NULL, NULL, bytes, storage_out);
    status = trii_storage_create(&of_device, (void *)(intptr_t)device, bytes, storage_out);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", tri_device_text(device));
    (*storage_out)->device = device;
    return TRI_OK;
}

bool trii_storage_is_movable(const trii_storage *storage)
{
    return storage->ops == &heap || storage->ops == &of_device;
}

/* --- memory of the user's ------------------------------------------------- */

typedef struct wrapped {
    void (*release)(void *arg);
    void *arg;
} wrapped;

static tri_status wrapped_alloc(void *ctx, size_t bytes, void **data_out)
{
    (void)ctx;
    (void)bytes;
    (void)data_out;
    return TRII_FAIL(TRI_ERR_INTERNAL, "wrapped storage has its memory from the user");
}

static void wrapped_free(void *ctx, void *data, size_t bytes)
{
    wrapped *w = ctx;

    (void)data;
    (void)bytes;
    if (w->release != NULL)
        w->release(w->arg);
    trii_free(w);
}

static const trii_storage_ops wrapped_ops = {"the user", wrapped_alloc, wrapped_free};

void trii_storage_on_release(trii_storage *storage, void (*release)(void *arg), void *arg)
{
    *(wrapped *)storage->ctx = (wrapped){release, arg};
}

tri_status trii_storage_wrap(void *data, size_t bytes, trii_storage **storage_out)
{
    trii_storage *storage = trii_alloc(1, sizeof(*storage), "storage");
    wrapped *w = trii_alloc(1, sizeof(*w), "storage");

    if (storage == NULL || w == NULL) {
        trii_free(storage);
        trii_free(w);
        return TRI_ERR_NO_MEMORY;
    }
    storage->device = TRI_CPU(0);
    storage->ops = &wrapped_ops;
    storage->ctx = w;
    storage->data = data;
    storage->bytes = bytes;
    atomic_init(&storage->refs, 1);
    *storage_out = storage;
    return TRI_OK;
}

trii_storage *trii_storage_ref(trii_storage *storage)
{
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}

void trii_storage_unref(trii_storage *storage)
{
    if (storage == NULL || atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) > 1)
        return;
    storage->ops->free(storage->ctx, storage->data, storage->bytes);
    trii_free(storage);
}
