/*
 * collate.c - makes batches of samples: samples of one size as they are, others with padding.
 */
#include "train/data/collate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/data/dataset.h"

tri_status trii_collate(tri_dataset *dataset, const tri_request *request, tri_sample *samples,
                        tri_collate collate, void *arg, tri_sample *batch)
{
    tri_request one = *request;
    unsigned n_lines;
    tri_status status;

    one.n = 1;
    for (int64_t i = 0; i < request->n; i++) {
        one.indices = request->indices + i;
        status = tri_dataset_sample(dataset, &one, &samples[i]);
        if (status != TRI_OK)
            return status;
    }
    status = trii_sample_begin(batch);
    if (status != TRI_OK)
        return status;
    n_lines = trii_err_lines();
    status = collate(samples, request->n, batch, arg);
    return trii_sample_end(batch, status, "collate", "", n_lines);
}

/* "[3, 224, 224]" */
static const char *shape_text(const tri_field *field, char text[static 200])
{
    int at = snprintf(text, 200, "%s [", tri_dtype_name(field->dtype));

    for (int d = 0; d < field->ndim; d++)
        at += snprintf(text + at, (size_t)(200 - at), "%s%" PRId64, d > 0 ? ", " : "",
                       field->shape[d]);
    snprintf(text + at, (size_t)(200 - at), "]");
    return text;
}

static tri_status check_samples(const tri_sample *samples, int64_t n, const tri_sample *batch,
                                const char *call)
{
    tri_status status = trii_need(samples, call, "samples");

    if (status == TRI_OK)
        status = trii_need(batch, call, "batch");
    if (status != TRI_OK)
        return status;
    if (n < 1 || samples[0].n_fields < 1 || samples[0].n_fields > TRI_MAX_FIELDS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %" PRId64 " samples of %d fields: both must be at least 1", call, n,
                         n < 1 ? 0 : samples[0].n_fields);
    for (int64_t i = 0; i < n; i++) {
        status = TRII_CHECK_RESERVED(tri_sample, &samples[i]);
        if (status != TRI_OK)
            return status;
        for (int f = 0; f < samples[0].n_fields; f++) {
            const tri_field *a = &samples[0].fields[f], *b = &samples[i].fields[f];
            char first[200], other[200];

            if (samples[i].n_fields == samples[0].n_fields && b->dtype == a->dtype &&
                b->ndim == a->ndim && b->ndim < TRI_MAX_DIMS)
                continue;
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: sample %" PRId64 " has %d fields, of which field %d is %s; in "
                             "sample 0 it is %s, of %d fields",
                             call, i, samples[i].n_fields, f, shape_text(b, other),
                             shape_text(a, first), samples[0].n_fields);
        }
    }
    return TRI_OK;
}

static void *batch_room(tri_sample *batch, int f, int64_t n, const tri_field *field)
{
    int64_t shape[TRI_MAX_DIMS];

    shape[0] = n;
    for (int d = 0; d < field->ndim; d++)
        shape[d + 1] = field->shape[d];
    return tri_sample_room(batch, f, field->dtype, shape, field->ndim + 1);
}

tri_status tri_collate_default(const tri_sample *samples, int64_t n, tri_sample *batch, void *arg)
{
    tri_status status = check_samples(samples, n, batch, "tri_collate_default");

    (void)arg;
    for (int f = 0; status == TRI_OK && f < samples[0].n_fields; f++) {
        const tri_field *field = &samples[0].fields[f];
        size_t bytes = trii_field_bytes(field);
        char first[200], other[200], *to;

        for (int64_t i = 1; i < n; i++) {
            if (memcmp(field->shape, samples[i].fields[f].shape,
                       (size_t)field->ndim * sizeof(*field->shape)) != 0)
                return TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "collate: field %d of sample %" PRId64 " is %s, of sample 0 %s: "
                                 "samples of different sizes need a collate function, such as "
                                 "tri_collate_pad",
                                 f, i, shape_text(&samples[i].fields[f], other),
                                 shape_text(field, first));
        }
        to = batch_room(batch, f, n, field);
        if (to == NULL)
            return TRI_ERR_NO_MEMORY;
        for (int64_t i = 0; i < n; i++)
            memcpy(to + (size_t)i * bytes, samples[i].data[f], bytes);
    }
    return status;
}

/* --- padding -------------------------------------------------------------- */

/* One element as bytes; false if this type cannot hold such a number. */
static bool element_of(tri_dtype dtype, double value, unsigned char out[8])
{
    union {
        float f32;
        double f64;
        int64_t i64;
    } number = {.f64 = value};

    memset(out, 0, 8);
    if (value == 0)
        return true;
    switch (dtype) {
    case TRI_DTYPE_F64:
        break;
    case TRI_DTYPE_F32:
        number.f32 = (float)value;
        break;
    case TRI_DTYPE_BOOL:
        number.i64 = 1;
        break;
    case TRI_DTYPE_U8:
    case TRI_DTYPE_I8:
    case TRI_DTYPE_I16:
    case TRI_DTYPE_I32:
    case TRI_DTYPE_I64: {
        int bits = 8 * (int)tri_dtype_size(dtype);
        double high = (double)(UINT64_C(1) << (bits - 1)), low = -high;

        if (dtype == TRI_DTYPE_U8) {
            low = 0;
            high = 256;
        }
        if (!(value >= low && value < high) || (double)(int64_t)value != value)
            return false;
        number.i64 = (int64_t)value; /* little-endian: the low bytes are the number */
        break;
    }
    default:
        return false;
    }
    memcpy(out, &number, tri_dtype_size(dtype));
    return true;
}

static void fill(char *to, size_t n, const unsigned char *element, size_t size)
{
    bool zero = true;

    for (size_t b = 0; b < size; b++)
        zero = zero && element[b] == 0;
    if (zero) {
        memset(to, 0, n * size);
        return;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * size, element, size);
}

/* `from` into the corner of the larger `to`. */
static void place(const tri_field *small, const char *from, const tri_field *large, char *to)
{
    size_t size = tri_dtype_size(small->dtype);
    size_t row = small->ndim > 0 ? (size_t)small->shape[small->ndim - 1] * size : size;
    int64_t at[TRI_MAX_DIMS] = {0};
    size_t left = 1;

    for (int d = 0; d + 1 < small->ndim; d++)
        left *= (size_t)small->shape[d];
    for (; left > 0; left--, from += row) {
        size_t offset = 0;

        for (int d = 0; d < small->ndim; d++)
            offset = offset * (size_t)large->shape[d] + (size_t)at[d];
        memcpy(to + offset * size, from, row);
        for (int d = small->ndim - 2; d >= 0 && ++at[d] == small->shape[d]; d--)
            at[d] = 0;
    }
}

/* The smallest shape that every sample's field fits in. */
static tri_status common_shape(const tri_sample *samples, int64_t n, int f,
                               const tri_collate_pad_options *opt, tri_field *field_out)
{
    tri_field field = samples[0].fields[f];

    for (int d = 0; d < field.ndim; d++) {
        int64_t step = opt->multiple[d] > 1 ? opt->multiple[d] : 1;

        for (int64_t i = 1; i < n; i++) {
            if (samples[i].fields[f].shape[d] > field.shape[d])
                field.shape[d] = samples[i].fields[f].shape[d];
        }
        if (opt->multiple[d] < 0 || step > INT64_MAX / 4 || field.shape[d] > INT64_MAX / 4)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "tri_collate_pad: size %" PRId64 " of dimension %d in multiples of "
                             "%" PRId64,
                             field.shape[d], d, opt->multiple[d]);
        field.shape[d] = (field.shape[d] + step - 1) / step * step;
    }
    *field_out = field;
    return TRI_OK;
}

tri_status tri_collate_pad(const tri_sample *samples, int64_t n, tri_sample *batch, void *arg)
{
    static const tri_collate_pad_options defaults;
    const tri_collate_pad_options *opt = arg != NULL ? arg : &defaults;
    tri_status status = check_samples(samples, n, batch, "tri_collate_pad");

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_collate_pad_options, opt);
    for (int f = 0; status == TRI_OK && f < samples[0].n_fields; f++) {
        unsigned char element[8];
        size_t size, bytes;
        tri_field field;
        char *to;

        status = common_shape(samples, n, f, opt, &field);
        if (status != TRI_OK)
            return status;
        if (!element_of(field.dtype, opt->value[f], element))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "tri_collate_pad: %s cannot be padded with %g (value[%d])",
                             tri_dtype_name(field.dtype), opt->value[f], f);
        to = batch_room(batch, f, n, &field);
        if (to == NULL)
            return TRI_ERR_NO_MEMORY;
        size = tri_dtype_size(field.dtype);
        bytes = trii_field_bytes(&field);
        for (int64_t i = 0; i < n; i++, to += bytes) {
            if (trii_field_bytes(&samples[i].fields[f]) != bytes)
                fill(to, bytes / size, element, size);
            place(&samples[i].fields[f], samples[i].data[f], &field, to);
        }
    }
    return status;
}
