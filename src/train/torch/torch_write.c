/*
 * torch_write.c - tri_torch_write: a state dictionary as torch.save would write it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/torch_file.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/torch/tensor_entries.h"
#include "train/torch/pickle_write.h"
#include "train/torch/torch_write.h"
#include "train/torch/zip_write.h"

#define FOLDER "archive/"

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

/* The same elements under two names, such as tied weights, are one storage, as in torch.save. */
static int64_t storage_of(const tri_safetensors_entry *entries, int64_t i)
{
    const tri_safetensors_entry *e = &entries[i];

    for (int64_t k = 0; k < i && e->data != NULL && e->bytes > 0; k++)
        if (entries[k].data == e->data && entries[k].bytes == e->bytes &&
            entries[k].dtype == e->dtype)
            return k;
    return i;
}

static tri_status put_pickle(trii_zip_writer *zip, const tri_safetensors_entry *entries, int64_t n,
                             const int64_t *storages)
{
    char *pickle = NULL;
    size_t bytes = 0;
    tri_status status = trii_pickle_write(entries, n, storages, &pickle, &bytes);

    if (status == TRI_OK)
        status = put_entry(zip, FOLDER "data.pkl", pickle, bytes);
    trii_free(pickle);
    return status;
}

static tri_status put_all(trii_zip_writer *zip, const tri_safetensors_entry *entries, int64_t n,
                          const trii_feed *feed)
{
    int64_t *storages = trii_alloc((size_t)n + 1, sizeof(*storages), "torch file");
    tri_status status;

    if (storages == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        storages[i] = feed == NULL ? storage_of(entries, i) : i;
    status = put_pickle(zip, entries, n, storages);
    if (status == TRI_OK)
        status = put_entry(zip, FOLDER "byteorder", "little", 6);
    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        if (storages[i] == i)
            status = put_elements(zip, &entries[i], i, feed);
    trii_free(storages);
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
    if (status == TRI_OK) {
        status = trii_entries_check(entries, n, feed == NULL);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "tri_torch_write");
    }
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
