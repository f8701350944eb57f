/*
 * type.h - small functions of a value's shape and type.
 */
#ifndef TRII_TYPE_H
#define TRII_TYPE_H

#include <string.h>

#include "base/compiler.h"
#include "train/graph/step/op.h"
#include "train/tensor/persistent.h"

static inline int64_t trii_type_numel(const trii_type *type)
{
    int64_t n = 1;

    for (int d = 0; d < type->ndim; d++)
        n *= type->shape[d];
    return n;
}

static inline size_t trii_type_bytes(const trii_type *type)
{
    return (size_t)trii_type_numel(type) * tri_dtype_size(type->dtype);
}

static inline bool trii_type_same_shape(const trii_type *a, const trii_type *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++) {
        if (a->shape[d] != b->shape[d])
            return false;
    }
    return true;
}

/* Whether the tensor has this dtype and these sizes, on whatever device. */
static inline bool trii_type_is_of(const trii_type *type, const tri_tensor *tensor)
{
    if (type->dtype != tensor->dtype || type->ndim != tensor->ndim)
        return false;
    for (int d = 0; d < type->ndim; d++) {
        if (type->shape[d] != tensor->shape[d])
            return false;
    }
    return true;
}

static inline bool trii_type_equal(const trii_type *a, const trii_type *b)
{
    return a->dtype == b->dtype && a->device == b->device && trii_type_same_shape(a, b);
}

/* Copies only the sizes that exist. */
static inline void trii_type_copy(trii_type *dst, const trii_type *src)
{
    dst->dtype = src->dtype;
    dst->ndim = src->ndim;
    dst->device = src->device;
    for (int d = 0; d < src->ndim; d++)
        dst->shape[d] = src->shape[d];
}

static inline void trii_type_of_tensor(const tri_tensor *tensor, trii_type *type)
{
    type->dtype = tensor->dtype;
    type->ndim = tensor->ndim;
    type->device = tensor->device;
    for (int d = 0; d < tensor->ndim; d++)
        type->shape[d] = tensor->shape[d];
}

/* No address space holds more elements; with fewer no number of bytes overflows, neither widened
 * nor padded by a layout. */
#define TRII_TYPE_ELEMENTS (INT64_C(1) << 48)

tri_status trii_type_refuse_large(const trii_type *type) TRI_MUST_CHECK;

/* Whether such a value can exist: INVALID_ARG if it has too many elements, or would have without
 * its sizes of 0: then no product of sizes overflows, whichever are left out. */
static inline tri_status trii_type_check(const trii_type *type)
{
    int64_t n = 1;

    for (int d = 0; d < type->ndim; d++) {
        int64_t size = type->shape[d] > 0 ? type->shape[d] : 1;

        if (TRII_UNLIKELY(__builtin_mul_overflow(n, size, &n) || n > TRII_TYPE_ELEMENTS))
            return trii_type_refuse_large(type);
    }
    return TRI_OK;
}

#define TRII_TYPE_TEXT 128
/* "f32 [20, 10]"; returns text. */
const char *trii_type_text(const trii_type *type, char text[TRII_TYPE_TEXT]);
/* "[20, 10]"; returns text. */
const char *trii_shape_text(const trii_type *type, char text[TRII_TYPE_TEXT]);

#endif
