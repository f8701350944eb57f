/*
 * function_check.c - see function_check.h.
 */
#include "train/graph/ops/function_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"

/* Quiet NaNs; their low bits say whose they are. */
static const uint32_t unwritten_f32 = 0x7fd5a5e1;
static const uint64_t unwritten_f64 = UINT64_C(0x7ffd5a5e15a5e1a5);

static int64_t numel(const tri_function_array *array)
{
    int64_t n = 1;

    for (int d = 0; d < array->ndim; d++)
        n *= array->shape[d];
    return n;
}

/* The bytes of an unwritten element, or NULL: integers have no value to spare. */
static const void *unwritten(const tri_function_array *array)
{
    if (array->data == NULL)
        return NULL;
    return array->dtype == TRI_DTYPE_F32   ? (const void *)&unwritten_f32
           : array->dtype == TRI_DTYPE_F64 ? (const void *)&unwritten_f64
                                           : NULL;
}

void trii_function_prepare(const tri_function_array *results, int n)
{
    for (int k = 0; k < n; k++) {
        const void *with = unwritten(&results[k]);
        size_t size = tri_dtype_size(results[k].dtype);

        for (int64_t i = 0; with != NULL && i < numel(&results[k]); i++)
            memcpy((char *)results[k].data + (size_t)i * size, with, size);
    }
}

tri_status trii_function_written(const tri_function_array *results, int n, const char *name)
{
    for (int k = 0; k < n; k++) {
        const void *with = unwritten(&results[k]);
        size_t size = tri_dtype_size(results[k].dtype);

        for (int64_t i = 0; with != NULL && i < numel(&results[k]); i++) {
            if (memcmp((const char *)results[k].data + (size_t)i * size, with, size) == 0)
                return TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "element %" PRId64 " of the %" PRId64 " of %s[%d] was not written",
                                 i, numel(&results[k]), name, k);
        }
    }
    return TRI_OK;
}

uint64_t trii_function_digest(const tri_function_array *operands, int n)
{
    uint64_t digest = TRII_HASH_SEED;

    for (int k = 0; k < n; k++) {
        size_t bytes = (size_t)numel(&operands[k]) * tri_dtype_size(operands[k].dtype);

        if (operands[k].data != NULL)
            digest = trii_hash(digest, operands[k].data, bytes);
    }
    return digest;
}
