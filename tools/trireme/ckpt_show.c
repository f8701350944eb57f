/*
 * ckpt_show.c - `trireme ckpt show PATH`: what a file of weights or a checkpoint holds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt.h"
#include "os/file.h"
#include "train/checkpoint/part_read.h"
#include "train/checkpoint/tensor_stream.h"
#include "train/torch/strided.h"

/* --- torch.save ----------------------------------------------------------- */

typedef struct by_storage {
    const tri_torch_tensor *tensor;
    int64_t index;
} by_storage;

static int compare(const void *a, const void *b)
{
    const by_storage *x = a, *y = b;
    int order = strcmp(x->tensor->storage, y->tensor->storage);

    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

static bool is_same_view(const tri_torch_tensor *a, const tri_torch_tensor *b)
{
    return a->offset == b->offset && a->ndim == b->ndim && a->dtype == b->dtype &&
           memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 &&
           memcmp(a->stride, b->stride, sizeof(a->stride)) == 0;
}

static void note_torch(ckpt_row *row, const tri_torch_tensor *t, const tri_torch_tensor *first)
{
    size_t used = strlen(row->note);
    const char *join = used > 0 ? ", " : "";

    if (t != first && is_same_view(t, first))
        snprintf(row->note + used, sizeof(row->note) - used, "%stied to %s", join, first->name);
    else if (t != first)
        snprintf(row->note + used, sizeof(row->note) - used, "%sshares its storage with %s", join,
                 first->name);
    else if (t->bytes != t->storage_bytes)
        snprintf(row->note + used, sizeof(row->note) - used,
                 "%sview of a storage of %" PRIu64 " bytes", join, t->storage_bytes);
    used = strlen(row->note);
    if (!trii_is_contiguous(t))
        snprintf(row->note + used, sizeof(row->note) - used, "%snot contiguous",
                 used > 0 ? ", " : "");
}

static tri_status note_storages(const tri_torch_file *file, ckpt_row *rows, int64_t n)
{
    by_storage *sorted = trii_alloc((size_t)n, sizeof(*sorted), "tensors");
    const tri_torch_tensor *first = NULL;

    if (sorted == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        sorted[i] = (by_storage){tri_torch_at(file, i), i};
    qsort(sorted, (size_t)n, sizeof(*sorted), compare);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(first->storage, sorted[i].tensor->storage) != 0)
            first = sorted[i].tensor;
        note_torch(&rows[sorted[i].index], sorted[i].tensor, first);
    }
    trii_free(sorted);
    return TRI_OK;
}

/* --- a checkpoint --------------------------------------------------------- */

static bool is_part(const char *file, char name_out[TRII_FILE_NAME])
{
    size_t n = strlen(file), suffix = strlen(TRII_TENSORS_SUFFIX);

    if (n <= suffix || n >= TRII_FILE_NAME || strcmp(file + n - suffix, TRII_TENSORS_SUFFIX) != 0 ||
        strncmp(file, TRII_PIECES_FILE, strlen(TRII_PIECES_FILE)) == 0)
        return false;
    snprintf(name_out, TRII_FILE_NAME, "%.*s", (int)(n - suffix), file);
    return true;
}

static tri_status show_part(const char *dir, const trii_manifest *manifest, const char *name)
{
    trii_part_reader reader;
    tri_status status = trii_part_open(dir, manifest, name, &reader);
    const int64_t n = status == TRI_OK ? trii_part_count(&reader) : 0;
    ckpt_row *rows = trii_alloc((size_t)n, sizeof(*rows), "tensors");

    if (status == TRI_OK && rows == NULL)
        status = TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        tri_safetensors_entry e = trii_part_at(&reader, i);
        int64_t stored = i - (n - reader.n_stored);

        e.bytes = tri_dtype_size(e.dtype);
        for (int d = 0; d < e.ndim; d++)
            e.bytes *= (size_t)e.shape[d];
        rows[i] = ckpt_row_of(&e);
        if (stored >= 0)
            snprintf(rows[i].note, sizeof(rows[i].note), "in %" PRId64 " piece%s",
                     reader.stored[stored].n, reader.stored[stored].n == 1 ? "" : "s");
    }
    if (status == TRI_OK) {
        printf("\n%s\n", name);
        ckpt_table_print(rows, n);
    }
    trii_free(rows);
    trii_part_close(&reader);
    return status;
}

static void print_texts(const tri_metadata *texts, int64_t n, const char *heading)
{
    if (n > 0)
        printf("%s:\n", heading);
    for (int64_t i = 0; i < n; i++) {
        fputs("  ", stdout);
        ckpt_print_text(texts[i].key, 0);
        fputs(": ", stdout);
        ckpt_print_text(texts[i].value, 72);
        putchar('\n');
    }
}

static tri_status show_checkpoint(const char *folder)
{
    trii_manifest manifest;
    char *dir = NULL, name[TRII_FILE_NAME];
    tri_status status = trii_checkpoint_find(folder, &dir, &manifest);

    if (status != TRI_OK)
        return status;
    ckpt_print_text(dir, 0);
    printf(": a checkpoint of Trireme, the newest that is whole\n"
           "step %" PRId64 ", epoch %" PRId64 ", save %" PRId64 " of its folder\n",
           manifest.info.step, manifest.info.epoch, manifest.sequence);
    print_texts(manifest.meta, manifest.info.n_meta, "metadata");
    print_texts(manifest.texts, manifest.n_texts, "texts");
    puts("files:");
    for (int i = 0; i < manifest.n_files; i++) {
        printf("  %s: ", manifest.files[i].name);
        ckpt_print_bytes(manifest.files[i].bytes);
        putchar('\n');
    }
    for (int i = 0; i < manifest.n_files && status == TRI_OK; i++)
        if (is_part(manifest.files[i].name, name))
            status = show_part(dir, &manifest, name);
    trii_manifest_fini(&manifest);
    trii_free(dir);
    return status;
}

/* --- a file --------------------------------------------------------------- */

static tri_status show_tensors(const trii_tensor_stream *stream)
{
    ckpt_row *rows = trii_alloc((size_t)stream->n, sizeof(*rows), "tensors");
    tri_status status = rows != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int64_t i = 0; i < stream->n && status == TRI_OK; i++)
        rows[i] = ckpt_row_of(&stream->entries[i]);
    if (status == TRI_OK && stream->torch != NULL)
        status = note_storages(stream->torch, rows, stream->n);
    if (status == TRI_OK)
        ckpt_table_print(rows, stream->n);
    trii_free(rows);
    return status;
}

static tri_status show_file(const char *path)
{
    trii_tensor_stream stream;
    tri_status status = trii_tensor_stream_open(path, &stream);
    const tri_metadata *texts;
    int64_t n;

    if (status == TRI_OK) {
        ckpt_print_text(path, 0);
        printf(": a file of %s\n", trii_tensor_stream_kind(&stream));
    }
    if (status == TRI_OK && stream.torch != NULL)
        ckpt_values_print(tri_torch_root(stream.torch));
    if (status == TRI_OK && stream.safetensors != NULL) {
        texts = trii_safetensors_texts(stream.safetensors, &n);
        print_texts(texts, n, "metadata");
    }
    if (status == TRI_OK)
        status = show_tensors(&stream);
    trii_tensor_stream_close(&stream);
    return status;
}

tri_status ckpt_show(const char *path)
{
    bool is_folder;
    tri_status status = trii_path_leads_to_folder(path, &is_folder);

    if (status != TRI_OK)
        return status;
    return is_folder ? show_checkpoint(path) : show_file(path);
}
