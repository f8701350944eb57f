/*
 * dataset.c - data sets in general, arrays in memory.
 */
#include "train/data/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/data/sample.h"

size_t trii_field_bytes(const tri_field *field)
{
    size_t bytes = tri_dtype_size(field->dtype);

    for (int d = 0; d < field->ndim; d++)
        bytes *= (size_t)field->shape[d];
    return bytes;
}

tri_status trii_field_check(const tri_field *field, const char *what, int index)
{
    size_t bytes = tri_dtype_size(field->dtype);

    if (bytes == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: field %d has no element type", what, index);
    if (field->ndim < 0 || field->ndim >= TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: field %d has %d dimensions: must be 0 to %d",
                         what, index, field->ndim, TRI_MAX_DIMS - 1);
    for (int d = 0; d < field->ndim; d++) {
        if (field->shape[d] < 0 || __builtin_mul_overflow(bytes, (size_t)field->shape[d], &bytes))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: field %d: size %" PRId64
                             " of dimension %d is negative or too large",
                             what, index, field->shape[d], d);
    }
    return TRI_OK;
}

/* Sizes of -1 can be. */
static tri_status check_varying(const tri_field *field, const char *what, int index)
{
    tri_field known = *field;

    for (int d = 0; d < field->ndim && d < TRI_MAX_DIMS; d++) {
        if (known.shape[d] == -1)
            known.shape[d] = 1;
    }
    return trii_field_check(&known, what, index);
}

tri_status trii_dataset_check(const tri_dataset *dataset, const char *call)
{
    tri_status status = trii_need(dataset, call, "dataset");

    if (status == TRI_OK)
        status = trii_need(dataset->cls, call, "dataset->cls");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_dataset, dataset);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_dataset_class, dataset->cls);
    if (status != TRI_OK)
        return status;
    if (dataset->cls->read == NULL && dataset->cls->peek == NULL && dataset->cls->sample == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: data set %s has neither read nor peek nor sample: one is required",
                         call, dataset->cls->name);
    if (dataset->n_fields < 1 || dataset->n_fields > TRI_MAX_FIELDS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: data set %s has %d fields: must be 1 to %d",
                         call, dataset->cls->name, dataset->n_fields, TRI_MAX_FIELDS);
    if (dataset->length < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: data set %s has %" PRId64 " samples", call,
                         dataset->cls->name, dataset->length);
    for (int f = 0; f < dataset->n_fields && status == TRI_OK; f++)
        status = dataset->cls->sample != NULL ? check_varying(&dataset->fields[f], call, f)
                                              : trii_field_check(&dataset->fields[f], call, f);
    return status;
}

int64_t tri_dataset_length(const tri_dataset *dataset)
{
    return dataset != NULL ? dataset->length : 0;
}

void tri_dataset_destroy(tri_dataset *dataset)
{
    if (dataset != NULL && dataset->cls != NULL && dataset->cls->destroy != NULL)
        dataset->cls->destroy(dataset);
}

void trii_dataset_copy_field(const tri_dataset *dataset, const tri_request *request, int f,
                             void *slot)
{
    size_t bytes = trii_field_bytes(&dataset->fields[f]);

    for (int64_t i = 0; i < request->n; i++)
        memcpy((char *)slot + (size_t)i * bytes,
               dataset->cls->peek(dataset, request->indices[i], f), bytes);
}

static tri_status check_request(const tri_dataset *dataset, const tri_request *request,
                                const char *call)
{
    tri_status status = trii_need(dataset, call, "dataset");

    if (status == TRI_OK)
        status = trii_need(dataset->cls, call, "dataset->cls");
    if (status == TRI_OK)
        status = trii_need(request, call, "request");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_request, request);
    if (status == TRI_OK && request->n > 0)
        status = trii_need(request->indices, call, "request->indices");
    if (status != TRI_OK)
        return status;
    if (request->n < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %" PRId64 " samples", call, request->n);
    for (int64_t i = 0; i < request->n; i++) {
        if (request->indices[i] < 0 || request->indices[i] >= dataset->length)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "data set %s: sample %" PRId64 " of %" PRId64 " was asked for",
                             dataset->cls->name, request->indices[i], dataset->length);
    }
    return TRI_OK;
}

tri_status tri_dataset_read(tri_dataset *dataset, const tri_request *request, void *const *slots)
{
    tri_status status = check_request(dataset, request, "tri_dataset_read");
    int n_fields;

    if (status == TRI_OK)
        status = trii_need(slots, "tri_dataset_read", "slots");
    if (status != TRI_OK)
        return status;
    if (dataset->cls->sample != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "data set %s: its samples vary in size: tri_dataset_sample gives them",
                         dataset->cls->name);
    if (dataset->cls->read != NULL) {
        unsigned n_lines = trii_err_lines();

        status = dataset->cls->read(dataset, request, slots);
        if (status > 0) /* a positive status would hide that the samples were not written */
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "data set %s: its read returned %s: it must return TRI_OK or an error "
                             "(length says how many samples there are)",
                             dataset->cls->name, tri_status_name(status));
        if (status < 0 && trii_err_lines() == n_lines)
            return TRII_FAIL(status, "data set %s: its read returned %s without a message",
                             dataset->cls->name, tri_status_name(status));
        return status;
    }
    n_fields = dataset->n_fields;
    for (int f = 0; f < n_fields; f++)
        trii_dataset_copy_field(dataset, request, f, slots[f]);
    return TRI_OK;
}

/* --- single samples ------------------------------------------------------- */

tri_status trii_sample_check(const tri_dataset *dataset, int64_t index, const tri_sample *sample)
{
    if (sample->n_fields != dataset->n_fields)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "data set %s: sample %" PRId64 " has %d fields, the data set says %d",
                         dataset->cls->name, index, sample->n_fields, dataset->n_fields);
    for (int f = 0; f < dataset->n_fields; f++) {
        const tri_field *says = &dataset->fields[f], *is = &sample->fields[f];

        if (is->dtype != says->dtype || is->ndim != says->ndim)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "data set %s: field %d of sample %" PRId64
                             " is %s with %d dimensions, "
                             "the data set says %s with %d",
                             dataset->cls->name, f, index, tri_dtype_name(is->dtype), is->ndim,
                             tri_dtype_name(says->dtype), says->ndim);
        for (int d = 0; d < says->ndim; d++) {
            if (says->shape[d] >= 0 && is->shape[d] != says->shape[d])
                return TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "data set %s: dimension %d of field %d of sample %" PRId64
                                 " is %" PRId64 ", the data set says %" PRId64,
                                 dataset->cls->name, d, f, index, is->shape[d], says->shape[d]);
        }
    }
    return TRI_OK;
}

tri_status tri_dataset_sample(tri_dataset *dataset, const tri_request *request,
                              tri_sample *sample_out)
{
    tri_status status = check_request(dataset, request, "tri_dataset_sample");
    unsigned n_lines = trii_err_lines();
    char name[64];

    if (status == TRI_OK)
        status = trii_need(sample_out, "tri_dataset_sample", "sample_out");
    if (status != TRI_OK)
        return status;
    if (request->n != 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_dataset_sample: a request of %" PRId64 " samples: must be 1",
                         request->n);
    status = trii_sample_begin(sample_out);
    if (status != TRI_OK)
        return status;
    if (dataset->cls->sample != NULL) {
        snprintf(name, sizeof(name), "%.40s: its sample", dataset->cls->name);
        status = dataset->cls->sample(dataset, request, sample_out);
        status = trii_sample_end(sample_out, status, "data set ", name, n_lines);
        return status != TRI_OK ? status
                                : trii_sample_check(dataset, request->indices[0], sample_out);
    }
    for (int f = 0; f < dataset->n_fields; f++) {
        const tri_field *field = &dataset->fields[f];

        if (tri_sample_room(sample_out, f, field->dtype, field->shape, field->ndim) == NULL)
            return trii_sample_end(sample_out, TRI_ERR_NO_MEMORY, "data set ", dataset->cls->name,
                                   n_lines);
    }
    return tri_dataset_read(dataset, request, sample_out->data);
}

/* --- arrays --------------------------------------------------------------- */

typedef struct array_set {
    tri_dataset base;
    const char *data[TRI_MAX_FIELDS];
    size_t bytes[TRI_MAX_FIELDS]; /* of one sample */
    void *owned[TRI_MAX_FIELDS];  /* NULL = borrowed */
} array_set;

static const void *array_peek(const tri_dataset *self, int64_t index, int field)
{
    const array_set *set = (const array_set *)self;

    return set->data[field] + (size_t)index * set->bytes[field];
}

static void array_destroy(tri_dataset *self)
{
    array_set *set = (array_set *)self;

    for (int f = 0; f < self->n_fields; f++)
        trii_free(set->owned[f]);
    trii_free(set);
}

static const tri_dataset_class array_class = {
    .name = "arrays",
    .peek = array_peek,
    .destroy = array_destroy,
};

tri_status tri_dataset_arrays(int64_t length, const tri_field *fields, const void *const *data,
                              int n_fields, tri_dataset **dataset_out)
{
    array_set *set;
    tri_status given = trii_need(fields, "tri_dataset_arrays", "fields");

    if (given == TRI_OK)
        given = trii_need(data, "tri_dataset_arrays", "data");
    if (given == TRI_OK)
        given = trii_need(dataset_out, "tri_dataset_arrays", "dataset_out");
    if (given != TRI_OK)
        return given;
    if (length < 0 || n_fields < 1 || n_fields > TRI_MAX_FIELDS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "dataset_arrays: data set of %" PRId64
                         " samples with %d fields: must be 1 to %d",
                         length, n_fields, TRI_MAX_FIELDS);
    for (int f = 0; f < n_fields; f++) {
        tri_status status = trii_field_check(&fields[f], "dataset_arrays", f);

        if (status != TRI_OK)
            return status;
        if (data[f] == NULL && length > 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "dataset_arrays: field %d has no data", f);
    }
    set = trii_alloc(1, sizeof(*set), "data set");
    if (set == NULL)
        return TRI_ERR_NO_MEMORY;
    set->base = (tri_dataset){.cls = &array_class, .length = length, .n_fields = n_fields};
    for (int f = 0; f < n_fields; f++) {
        set->base.fields[f] = fields[f];
        set->data[f] = data[f];
        set->bytes[f] = trii_field_bytes(&fields[f]);
    }
    *dataset_out = &set->base;
    return TRI_OK;
}

tri_status trii_dataset_take_arrays(int64_t length, const tri_field *fields, void *const *own_data,
                                    int n_fields, tri_dataset **dataset_out)
{
    const void *data[TRI_MAX_FIELDS] = {NULL};
    tri_dataset *dataset = NULL;
    tri_status status;

    for (int f = 0; f < n_fields; f++)
        data[f] = own_data[f];
    status = tri_dataset_arrays(length, fields, data, n_fields, &dataset);
    for (int f = 0; f < n_fields; f++) {
        if (status == TRI_OK)
            ((array_set *)dataset)->owned[f] = own_data[f];
        else
            trii_free(own_data[f]);
    }
    if (status == TRI_OK)
        *dataset_out = dataset;
    return status;
}

/* --- made of others ------------------------------------------------------- */

void trii_derived_destroy(tri_dataset *self)
{
    trii_derived *derived = (trii_derived *)self;

    tri_dataset_destroy(derived->parent);
    if (derived->fini != NULL)
        derived->fini(derived);
    trii_free(derived);
}

trii_derived *trii_derived_of(tri_dataset *dataset)
{
    return dataset != NULL && dataset->cls->destroy == trii_derived_destroy
               ? (trii_derived *)dataset
               : NULL;
}
