/*
 * sample.c - see sample.h.
 */
#include "train/data/sample.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "train/tensor/persistent.h"

static tri_sample_memory *memory_of(tri_sample *sample)
{
    if (sample->memory == NULL)
        sample->memory = trii_alloc(1, sizeof(*sample->memory), "sample");
    return sample->memory;
}

tri_status trii_sample_begin(tri_sample *sample)
{
    tri_sample_memory *memory = memory_of(sample);

    sample->n_fields = 0;
    if (memory == NULL)
        return TRI_ERR_NO_MEMORY;
    memory->failed = TRI_OK;
    memset(memory->given, 0, sizeof(memory->given));
    return TRI_OK;
}

tri_status trii_sample_init_tensors(tri_sample *sample, tri_device device)
{
    tri_sample_memory *memory;

    *sample = (tri_sample){0};
    memory = memory_of(sample);
    if (memory == NULL)
        return TRI_ERR_NO_MEMORY;
    memory->as_tensors = true;
    memory->device = device;
    return TRI_OK;
}

bool trii_tensor_is_free(tri_tensor *tensor)
{
    return atomic_load(&tensor->refs) == 1 && atomic_load(&tensor->storage->refs) == 1 &&
           tensor->layout == NULL && !tensor->requires_grad && tensor->grad == NULL;
}

void trii_sample_give_back(tri_sample *sample)
{
    for (int f = 0; f < TRI_MAX_FIELDS; f++) {
        tri_tensor **tensor = &sample->memory->tensors[f];

        if (*tensor == NULL || (f < sample->n_fields && trii_tensor_is_free(*tensor)))
            continue;
        trii_tensor_release(*tensor);
        *tensor = NULL;
    }
}

static tri_status check_room(int field, tri_dtype dtype, const int64_t *shape, int ndim,
                             size_t *bytes_out)
{
    size_t bytes = dtype < TRII_TENSOR_DTYPES ? tri_dtype_size(dtype) : 0;

    if (field < 0 || field >= TRI_MAX_FIELDS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "sample: field %d is out of range (0 to %d)", field,
                         TRI_MAX_FIELDS - 1);
    if (bytes == 0 || ndim < 0 || ndim > TRI_MAX_DIMS || (ndim > 0 && shape == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "sample: field %d of dtype %d with %d dimensions%s: dtype must exist, "
                         "dimensions be 0 to %d",
                         field, (int)dtype, ndim, ndim > 0 && shape == NULL ? " and no shape" : "",
                         TRI_MAX_DIMS);
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0 || __builtin_mul_overflow(bytes, (size_t)shape[d], &bytes) ||
            bytes > PTRDIFF_MAX)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "sample: field %d: size %" PRId64
                             " of dimension %d is negative or too large",
                             field, shape[d], d);
    }
    *bytes_out = bytes;
    return TRI_OK;
}

/* The same shape as last time is the usual case. */
static tri_status tensor_room(tri_sample_memory *memory, int field, tri_dtype dtype,
                              const int64_t *shape, int ndim, void **data_out)
{
    tri_tensor *tensor = memory->tensors[field];
    tri_status status = TRI_OK;

    if (tensor != NULL &&
        (tensor->dtype != dtype || tensor->ndim != ndim ||
         (ndim > 0 && memcmp(tensor->shape, shape, (size_t)ndim * sizeof(*shape)) != 0))) {
        trii_tensor_release(tensor);
        memory->tensors[field] = tensor = NULL;
    }
    if (tensor == NULL) {
        status = trii_tensor_create(dtype, shape, ndim, memory->device, &tensor);
        if (status != TRI_OK)
            return status;
        atomic_store_explicit(&tensor->lent, true, memory_order_relaxed);
        memory->tensors[field] = tensor;
    }
    *data_out = trii_tensor_data(tensor);
    return TRI_OK;
}

static tri_status plain_room(tri_sample_memory *memory, int field, size_t bytes, void **data_out)
{
    size_t room = bytes > 0 ? bytes : 1;

    if (room > memory->bytes[field]) {
        void *block = trii_alloc_aligned(64, room, "sample");

        if (block == NULL)
            return TRI_ERR_NO_MEMORY;
        trii_free(memory->blocks[field]);
        memory->blocks[field] = block;
        memory->bytes[field] = room;
    }
    *data_out = memory->blocks[field];
    return TRI_OK;
}

void *tri_sample_room(tri_sample *sample, int field, tri_dtype dtype, const int64_t *shape,
                      int ndim)
{
    tri_status status = trii_need(sample, "tri_sample_room", "sample");
    tri_sample_memory *memory;
    tri_field *f;
    size_t bytes = 0;
    void *data = NULL;

    if (status != TRI_OK)
        return NULL;
    memory = memory_of(sample);
    if (memory == NULL)
        return NULL;
    status = check_room(field, dtype, shape, ndim, &bytes);
    if (status == TRI_OK && memory->as_tensors)
        status = tensor_room(memory, field, dtype, shape, ndim, &data);
    else if (status == TRI_OK)
        status = plain_room(memory, field, bytes, &data);
    if (status != TRI_OK) {
        memory->failed = status;
        return NULL;
    }
    memory->given[field] = true;
    f = &sample->fields[field];
    *f = (tri_field){.dtype = dtype, .ndim = ndim};
    for (int d = 0; d < ndim; d++)
        f->shape[d] = shape[d];
    sample->data[field] = data;
    if (sample->n_fields <= field)
        sample->n_fields = field + 1;
    return data;
}

void trii_sample_swap(tri_sample *a, int fa, tri_sample *b, int fb)
{
    tri_field field = a->fields[fa];
    void *data = a->data[fa], *block = a->memory->blocks[fa];
    size_t bytes = a->memory->bytes[fa];

    a->fields[fa] = b->fields[fb];
    a->data[fa] = b->data[fb];
    a->memory->blocks[fa] = b->memory->blocks[fb];
    a->memory->bytes[fa] = b->memory->bytes[fb];
    b->fields[fb] = field;
    b->data[fb] = data;
    b->memory->blocks[fb] = block;
    b->memory->bytes[fb] = bytes;
}

void tri_sample_clear(tri_sample *sample)
{
    if (sample == NULL)
        return;
    for (int f = 0; f < TRI_MAX_FIELDS && sample->memory != NULL; f++) {
        trii_free(sample->memory->blocks[f]);
        trii_tensor_release(sample->memory->tensors[f]);
    }
    trii_free(sample->memory);
    *sample = (tri_sample){0};
}

tri_status trii_sample_end(const tri_sample *sample, tri_status status, const char *what,
                           const char *name, unsigned n_lines)
{
    if (sample->memory->failed != TRI_OK)
        return sample->memory->failed; /* the line is the last one, unless more lines followed */
    if (status > 0)                    /* a positive status would hide that nothing was written */
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s%s returned %s: it must return TRI_OK or an error",
                         what, name, tri_status_name(status));
    if (status < 0 && trii_err_lines() == n_lines)
        return TRII_FAIL(status, "%s%s returned %s without a message", what, name,
                         tri_status_name(status));
    if (status != TRI_OK)
        return status;
    if (sample->n_fields == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s%s gave no field (tri_sample_room)", what, name);
    for (int f = 0; f < sample->n_fields; f++) {
        if (!sample->memory->given[f])
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s%s gave no field %d (tri_sample_room)", what,
                             name, f);
    }
    return TRI_OK;
}
