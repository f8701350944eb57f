/*
 * torch_write.c - tri_torch_write: a state dictionary as torch.save would write it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/torch_file.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "base/utf8.h"
#include "train/torch/pickle_write.h"
#include "train/torch/torch_dtype.h"
#include "train/torch/torch_write.h"
#include "train/torch/zip_write.h"

#define FOLDER "archive/"

static tri_status check_name(const char *name, int64_t index)
{
    size_t bytes = 1;

    if (name == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_torch_write: entry %" PRId64 " has no name",
                         index);
    for (const char *at = name; *at != '\0' && bytes > 0; at += bytes)
        bytes = trii_utf8_character(at);
    if (bytes == 0 || strlen(name) > INT32_MAX)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_torch_write: the name of entry %" PRId64 " is not UTF-8", index);
    return TRI_OK;
}

static tri_status check_entry(const tri_safetensors_entry *e, int64_t index, bool has_data)
{
    tri_status status = TRII_CHECK_RESERVED(tri_safetensors_entry, e);
    size_t bytes = tri_dtype_size(e->dtype);

    if (status == TRI_OK)
        status = check_name(e->name, index);
    if (status != TRI_OK)
        return status;
    if (trii_torch_dtype_of(e->dtype) == NULL || e->ndim < 0 || e->ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_torch_write: tensor %s: dtype %d, %d dimensions",
                         e->name, (int)e->dtype, e->ndim);
    for (int d = 0; d < e->ndim; d++) {
        if (e->shape[d] < 0 || __builtin_mul_overflow(bytes, (size_t)e->shape[d], &bytes))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "tri_torch_write: tensor %s: size %" PRId64 " of dimension %d",
                             e->name, e->shape[d], d);
    }
    has_data = !has_data || e->data != NULL || bytes == 0;
    if (bytes != e->bytes || !has_data)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_torch_write: tensor %s: its shape is %zu bytes, not %zu", e->name,
                         bytes, has_data ? e->bytes : 0);
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
            status =
                TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_torch_write: tensor %s occurs twice", names[i]);
    trii_free(names);
    return status;
}

static tri_status put_entry(trii_zip_writer *zip, const char *name, const void *data, size_t bytes)
{
    tri_status status = trii_zip_writer_begin(zip, name, bytes);

    return status == TRI_OK && bytes > 0 ? trii_zip_writer_put(zip, data, bytes) : status;
}

static tri_status put_piece(void *arg, const void *data, size_t bytes)
{
    return trii_zip_writer_put(arg, data, bytes);
}

static tri_status put_elements(trii_zip_writer *zip, const tri_safetensors_entry *e, int64_t index,
                               const trii_feed *feed)
{
    char name[64];
    tri_status status;

    snprintf(name, sizeof(name), FOLDER "data/%" PRId64, index);
    if (feed == NULL || e->bytes == 0)
        return put_entry(zip, name, e->data, e->bytes);
    status = trii_zip_writer_begin(zip, name, e->bytes);
    return status == TRI_OK ? feed->give(feed->arg, index, &(trii_sink){put_piece, zip}) : status;
}

static tri_status put_all(trii_zip_writer *zip, const tri_safetensors_entry *entries, int64_t n,
                          const trii_feed *feed)
{
    char *pickle = NULL;
    size_t bytes = 0;
    tri_status status = trii_pickle_write(entries, n, &pickle, &bytes);

    if (status == TRI_OK)
        status = put_entry(zip, FOLDER "data.pkl", pickle, bytes);
    trii_free(pickle);
    if (status == TRI_OK)
        status = put_entry(zip, FOLDER "byteorder", "little", 6);
    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        status = put_elements(zip, &entries[i], i, feed);
    return status == TRI_OK ? put_entry(zip, FOLDER "version", "3\n", 2) : status;
}

tri_status trii_torch_write(const char *path, const tri_safetensors_entry *entries, int64_t n,
                            const trii_feed *feed)
{
    trii_zip_writer zip;
    tri_status status = trii_need_text(path, "tri_torch_write", "path");

    if (status == TRI_OK && n < 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_torch_write: %" PRId64 " entries", n);
    if (status == TRI_OK && n > 0)
        status = trii_need(entries, "tri_torch_write", "entries");
    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        status = check_entry(&entries[i], i, feed == NULL);
    if (status == TRI_OK)
        status = check_unique(entries, n);
    if (status == TRI_OK)
        status = trii_zip_writer_open(path, &zip);
    if (status != TRI_OK)
        return status;
    status = put_all(&zip, entries, n, feed);
    if (status == TRI_OK)
        return trii_zip_writer_commit(&zip);
    trii_zip_writer_abort(&zip);
    return status;
}

tri_status tri_torch_write(const char *path, const tri_safetensors_entry *entries, int64_t n)
{
    return trii_torch_write(path, entries, n, NULL);
}
