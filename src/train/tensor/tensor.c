/*
 * tensor.c - persistent tensors: counted objects over a storage. The contents of a tensor in the
 * middle of a step are handled by the recorder (train/graph/values/contents.c).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/log.h"
#include "base/site.h"
#include "train/tensor/device_memory.h"
#include "train/tensor/packed.h"
#include "train/tensor/persistent.h"
#include "train/tensor/sharing.h"

/* Stands for every failure that finds no memory to say what failed. */
static tri_tensor no_memory = {
    .status = TRI_ERR_NO_MEMORY,
    .why = (char[]){"out of memory"},
    .ndim = -1,
};

tri_tensor *trii_tensor_no_memory(void)
{
    return &no_memory;
}

tri_tensor *trii_tensor_failed(tri_status status)
{
    const char *line = tri_last_error();
    tri_tensor *tensor = trii_alloc(1, sizeof(*tensor), "failed tensor");

    if (tensor == NULL)
        return &no_memory;
    tensor->why = trii_strdup(line, "failed tensor");
    if (tensor->why == NULL) {
        trii_free(tensor);
        return &no_memory;
    }
    atomic_init(&tensor->refs, 1);
    tensor->status = status;
    tensor->ndim = -1;
    return tensor;
}

static tri_status check_shape(tri_dtype dtype, const int64_t *shape, int ndim, size_t *bytes_out)
{
    size_t bytes = tri_dtype_size(dtype);

    if (bytes == 0 || dtype >= TRII_TENSOR_DTYPES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "dtype %d does not exist", (int)dtype);
    if (ndim < 0 || ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d dimensions (ndim), 0 to %d are allowed", ndim,
                         TRI_MAX_DIMS);
    if (ndim > 0 && shape == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "shape is NULL, with %d dimensions", ndim);
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "size %lld of dimension %d is negative",
                             (long long)shape[d], d);
    }
    /* counted without sizes of 0 first, so that no product of some of them overflows either */
    for (int d = 0; d < ndim; d++) {
        size_t size = shape[d] > 0 ? (size_t)shape[d] : 1;

        if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > PTRDIFF_MAX)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "the sizes of the shape exceed the address space");
    }
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 0)
            bytes = 0;
    }
    *bytes_out = bytes;
    return TRI_OK;
}

static tri_status does_not_fit(size_t bytes, size_t offset, const trii_storage *storage)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%zu bytes at %zu do not fit a storage of %zu", bytes,
                     offset, storage->bytes);
}

/* Takes the storage, even on failure. */
static tri_status over_storage(tri_dtype dtype, const int64_t *shape, int ndim,
                               trii_storage *own_storage, tri_device device,
                               tri_tensor **tensor_out)
{
    tri_tensor *tensor = trii_alloc(1, sizeof(*tensor), "tensor");

    if (tensor == NULL) {
        trii_storage_unref(own_storage);
        return TRI_ERR_NO_MEMORY;
    }
    atomic_init(&tensor->refs, 1);
    tensor->storage = own_storage;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    tensor->device = device;
    if (ndim > 0)
        memcpy(tensor->shape, shape, (size_t)ndim * sizeof(*shape));
    *tensor_out = tensor;
    return TRI_OK;
}

tri_status trii_tensor_over(trii_storage *storage, size_t offset, tri_dtype dtype,
                            const int64_t *shape, int ndim, tri_device device,
                            tri_tensor **tensor_out)
{
    size_t bytes = 0;
    tri_status status = check_shape(dtype, shape, ndim, &bytes);

    if (status == TRI_OK && (offset > storage->bytes || storage->bytes - offset < bytes))
        status = does_not_fit(bytes, offset, storage);
    if (status == TRI_OK)
        status = over_storage(dtype, shape, ndim, trii_storage_ref(storage), device, tensor_out);
    if (status == TRI_OK)
        (*tensor_out)->offset = offset;
    return status;
}

tri_status trii_tensor_create(tri_dtype dtype, const int64_t *shape, int ndim, tri_device device,
                              tri_tensor **tensor_out)
{
    trii_storage *storage = NULL;
    size_t bytes = 0;
    tri_status status = check_shape(dtype, shape, ndim, &bytes);

    if (status == TRI_OK)
        status = trii_storage_create_on(device, bytes, &storage);
    if (status == TRI_OK)
        status = over_storage(dtype, shape, ndim, storage, device, tensor_out);
    return status;
}

static tri_status wrap(tri_dtype dtype, const int64_t *shape, int ndim, void *data,
                       void (*release)(void *arg), void *arg, tri_tensor **tensor_out)
{
    trii_storage *storage = NULL;
    size_t bytes = 0;
    tri_status status = check_shape(dtype, shape, ndim, &bytes);

    if (status != TRI_OK)
        return status;
    if (data == NULL && bytes > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "data is NULL, for %zu bytes", bytes);
    if ((uintptr_t)data % tri_dtype_size(dtype) != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "data is not aligned: %s wants a multiple of %zu bytes",
                         tri_dtype_name(dtype), tri_dtype_size(dtype));
    if (!trii_is_host(tri_current_device()))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "memory of the host cannot lie on %s, the current device: "
                         "tri_tensor_from copies it there",
                         tri_device_text(tri_current_device()));
    status = trii_storage_wrap(data, bytes, &storage);
    if (status == TRI_OK)
        status = over_storage(dtype, shape, ndim, storage, tri_current_device(), tensor_out);
    if (status == TRI_OK) {
        (*tensor_out)->stays_plain = true;
        trii_storage_on_release(storage, release, arg);
    }
    return status;
}

/* Failed, with the call site in its line. */
static tri_tensor *refused(tri_status status, const char *call)
{
    trii_site site = trii_site_last();

    if (site.file != NULL)
        return trii_tensor_failed(TRII_FAIL_CTX(status, "%s at %s:%d", call, site.file, site.line));
    return trii_tensor_failed(TRII_FAIL_CTX(status, "%s", call));
}

tri_tensor *tri_tensor_wrap(const int64_t *shape, int ndim, tri_dtype dtype, void *data,
                            void (*release)(void *arg), void *arg)
{
    tri_tensor *tensor = NULL;
    tri_status status = wrap(dtype, shape, ndim, data, release, arg, &tensor);

    return status == TRI_OK ? tensor : refused(status, "tri_tensor_wrap");
}

static tri_tensor *create(tri_dtype dtype, const int64_t *shape, int ndim, const char *call)
{
    tri_tensor *tensor = NULL;
    tri_status status = trii_tensor_create(dtype, shape, ndim, tri_current_device(), &tensor);

    return status == TRI_OK ? tensor : refused(status, call);
}

tri_tensor *tri_tensor_create(const int64_t *shape, int ndim, tri_dtype dtype)
{
    return create(dtype, shape, ndim, "tri_tensor_create");
}

tri_tensor *tri_tensor_from(const int64_t *shape, int ndim, tri_dtype dtype, const void *data)
{
    tri_tensor *tensor = create(dtype, shape, ndim, "tri_tensor_from");
    tri_status status;

    if (tensor->status != TRI_OK || tensor->storage->bytes == 0)
        return tensor;
    if (data == NULL) {
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "data is NULL, for %zu bytes", tensor->storage->bytes);
        tri_tensor_unref(tensor);
        return refused(status, "tri_tensor_from");
    }
    status = trii_memory_copy(tensor->device, tensor->storage->data, TRI_CPU(0), data,
                              tensor->storage->bytes);
    if (status == TRI_OK)
        return tensor;
    tri_tensor_unref(tensor);
    return trii_tensor_failed(status);
}

tri_tensor *tri_tensor_ref(tri_tensor *tensor)
{
    if (tensor != NULL && !trii_is_handle(tensor))
        atomic_fetch_add_explicit(&tensor->refs, 1, memory_order_relaxed);
    return tensor;
}

/* tri_grad or a loader lends the same tensor again when asked: it must still exist. */
static TRII_NOINLINE void warn_of_borrowed(const tri_tensor *tensor)
{
    static atomic_bool warned;

    if (!atomic_exchange(&warned, true))
        TRII_LOG(TRII_LOG_ERROR, "tensor",
                 "tri_tensor_unref of a borrowed tensor (%s): ignored; release only what "
                 "tri_tensor_ref or a function that makes tensors gave you",
                 tensor->is_grad ? "tri_grad lends it" : "it is of a loader's batch");
}

void trii_tensor_release(tri_tensor *tensor)
{
    if (tensor == NULL)
        return;
    atomic_store_explicit(&tensor->lent, false, memory_order_relaxed);
    tri_tensor_unref(tensor);
}

void tri_tensor_unref(tri_tensor *tensor)
{
    if (tensor == NULL || trii_is_handle(tensor) || tensor == &no_memory)
        return;
    if (TRII_UNLIKELY(atomic_load_explicit(&tensor->lent, memory_order_relaxed) &&
                      atomic_load_explicit(&tensor->refs, memory_order_relaxed) == 1)) {
        warn_of_borrowed(tensor);
        return;
    }
    if (atomic_fetch_sub_explicit(&tensor->refs, 1, memory_order_acq_rel) > 1)
        return;
    trii_tensor_release(tensor->grad);
    trii_sharing_leave(tensor);
    trii_storage_unref(tensor->storage);
    trii_packed_free(tensor->packed);
    trii_free(tensor->why);
    trii_free(tensor->name);
    trii_free(tensor);
}

void *trii_tensor_data(const tri_tensor *tensor)
{
    return (char *)tensor->storage->data + tensor->offset;
}

/* Plain contents get to `to`, which may overlap with where they are. */
static tri_status move_contents(const tri_tensor *tensor, void *to)
{
    size_t bytes = trii_tensor_bytes(tensor);

    if (tensor->layout != NULL && trii_is_host(tensor->device))
        return tensor->layout->to_plain(tensor->layout, trii_tensor_data(tensor), to);
    if (tensor->layout != NULL)
        return TRII_FAIL(TRI_ERR_STATE, "a tensor on %s in the order of a kernel (%s) stays there",
                         tri_device_text(tensor->device), tensor->layout->name);
    if (bytes > 0 && trii_is_host(tensor->device))
        memmove(to, trii_tensor_data(tensor), bytes);
    else if (bytes > 0)
        return trii_memory_copy(tensor->device, to, tensor->device, trii_tensor_data(tensor),
                                bytes);
    return TRI_OK;
}

tri_status trii_tensor_move(tri_tensor *tensor, trii_storage *storage, size_t offset)
{
    size_t bytes = trii_tensor_bytes(tensor);
    tri_status status;

    if (offset > storage->bytes || storage->bytes - offset < bytes)
        return does_not_fit(bytes, offset, storage);
    if (tensor->storage->device != storage->device)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "a tensor on %s cannot move into memory of %s",
                         tri_device_text(tensor->device), tri_device_text(storage->device));
    if (storage->sharers != NULL && storage->sharers->device != tensor->device)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG, "a tensor on %s cannot share memory with others on %s",
            tri_device_text(tensor->device), tri_device_text(storage->sharers->device));
    status = move_contents(tensor, (char *)storage->data + offset);
    if (status != TRI_OK)
        return status;
    trii_storage_ref(storage);
    trii_sharing_leave(tensor);
    trii_storage_unref(tensor->storage);
    tensor->storage = storage;
    tensor->offset = offset;
    tensor->layout = NULL;
    if (storage->sharers != NULL)
        trii_sharing_enter(tensor);
    return TRI_OK;
}

void trii_tensor_become(tri_tensor *tensor, const int64_t *shape, trii_storage *storage)
{
    trii_storage_ref(storage);
    trii_storage_unref(tensor->storage);
    trii_packed_free(tensor->packed);
    tensor->packed = NULL;
    tensor->storage = storage;
    tensor->offset = 0;
    tensor->layout = NULL;
    memcpy(tensor->shape, shape, (size_t)tensor->ndim * sizeof(*shape));
}
