/*
 * tensor_entries.c - see tensor_entries.h. Called by torch_write.c and
 * checkpoint/safetensors_write.c.
 */
#include "train/torch/tensor_entries.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/option.h"
#include "base/utf8.h"

static tri_status check_name(const char *name, int64_t index)
{
    size_t bytes = 1;

    if (name == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "entry %" PRId64 " has no name", index);
    for (const char *at = name; *at != '\0' && bytes > 0; at += bytes)
        bytes = trii_utf8_character(at);
    if (bytes == 0 || strlen(name) > INT32_MAX)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the name of entry %" PRId64 " is not UTF-8", index);
    return TRI_OK;
}

static tri_status check_entry(const tri_safetensors_entry *e, int64_t index, bool has_data)
{
    tri_status status = TRII_CHECK_RESERVED(tri_safetensors_entry, e);
    size_t bytes;

    if (status == TRI_OK)
        status = check_name(e->name, index);
    if (status != TRI_OK)
        return status;
    if (e->dtype <= TRI_DTYPE_NONE || e->dtype >= TRII_TENSOR_DTYPES || e->ndim < 0 ||
        e->ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tensor %s: dtype %d, %d dimensions", e->name,
                         (int)e->dtype, e->ndim);
    bytes = tri_dtype_size(e->dtype);
    for (int d = 0; d < e->ndim; d++) {
        if (e->shape[d] < 0 || __builtin_mul_overflow(bytes, (size_t)e->shape[d], &bytes))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "tensor %s: size %" PRId64 " of dimension %d",
                             e->name, e->shape[d], d);
    }
    if (has_data && e->data == NULL && bytes > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tensor %s: data is NULL", e->name);
    if (bytes != e->bytes)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tensor %s: its shape is %zu bytes, not %zu", e->name,
                         bytes, e->bytes);
    return TRI_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tri_status check_unique(const tri_safetensors_entry *entries, int64_t n)
{
    const char **names = trii_alloc((size_t)n, sizeof(*names), "names");
    tri_status status = TRI_OK;

    if (names == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        names[i] = entries[i].name;
    qsort(names, (size_t)n, sizeof(*names), compare_names);
    for (int64_t i = 1; i < n && status == TRI_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "tensor %s occurs twice", names[i]);
    trii_free(names);
    return status;
}

tri_status trii_entries_check(const tri_safetensors_entry *entries, int64_t n, bool has_data)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        status = check_entry(&entries[i], i, has_data);
    return status == TRI_OK ? check_unique(entries, n) : status;
}
