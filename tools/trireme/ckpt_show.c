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

/* --- storages of torch.save ----------------------------------------------- */

typedef struct by_storage {
    const tri_torch_file *file;
    const tri_torch_tensor *tensor;
    int64_t index;
} by_storage;

static bool is_same_storage(const by_storage *a, const by_storage *b)
{
    return a->file == b->file && strcmp(a->tensor->storage, b->tensor->storage) == 0;
}

static int compare(const void *a, const void *b)
{
    const by_storage *x = a, *y = b;
    int order = x->file != y->file ? (x->file > y->file) - (x->file < y->file)
                                   : strcmp(x->tensor->storage, y->tensor->storage);

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

static tri_status note_storages(trii_weights *weights, ckpt_row *rows)
{
    by_storage *sorted = trii_alloc((size_t)weights->n, sizeof(*sorted), "tensors");
    const by_storage *first = NULL;
    size_t n = 0;
    tri_status status = sorted != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int64_t i = 0; i < weights->n && status == TRI_OK; i++) {
        trii_weights_run run;

        status = weights->kind->run(weights, i, 0, &run);
        if (status == TRI_OK && run.tensor != NULL && run.tensor->refused != NULL)
            snprintf(rows[i].note, sizeof(rows[i].note), "%s", run.tensor->refused);
        else if (status == TRI_OK && run.torch != NULL)
            sorted[n++] = (by_storage){run.torch, run.tensor, i};
    }
    if (status == TRI_OK && n > 0)
        qsort(sorted, n, sizeof(*sorted), compare);
    for (size_t i = 0; i < n && status == TRI_OK; i++) {
        if (i == 0 || !is_same_storage(first, &sorted[i]))
            first = &sorted[i];
        note_torch(&rows[sorted[i].index], sorted[i].tensor, first->tensor);
    }
    trii_free(sorted);
    return status;
}

/* --- folders -------------------------------------------------------------- */

static void note(ckpt_row *row, const char *text)
{
    size_t used = strlen(row->note);

    snprintf(row->note + used, sizeof(row->note) - used, "%s%s", used > 0 ? ", " : "", text);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* In which file, or in how many pieces. */
static tri_status note_runs(trii_weights *weights, int64_t index, bool names_file, ckpt_row *row)
{
    trii_weights_run run = {.bytes = 1};
    char text[128] = "";
    int64_t n = 0;
    tri_status status = TRI_OK;

    for (; status == TRI_OK && run.bytes > 0; n++) {
        status = weights->kind->run(weights, index, n, &run);
        if (status == TRI_OK && n == 0 && run.path != NULL && names_file)
            snprintf(text, sizeof(text), "in %s", last_part(run.path));
        if (status == TRI_OK && n == 0 && run.path == NULL && run.bytes > 0)
            snprintf(text, sizeof(text), "in pieces, by columns");
    }
    if (n > 2)
        snprintf(text, sizeof(text), "in %" PRId64 " pieces", n - 1);
    if (text[0] != '\0')
        note(row, text);
    return status;
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

/* --- weights -------------------------------------------------------------- */

static tri_status show_tensors(trii_tensor_stream *stream)
{
    trii_weights *weights = &stream->weights;
    const bool is_index = strcmp(weights->kind->name, "index") == 0,
               is_file = strcmp(weights->kind->name, "safetensors") == 0 ||
                         strcmp(weights->kind->name, "torch.save") == 0;
    ckpt_row *rows = trii_alloc((size_t)stream->n, sizeof(*rows), "tensors");
    tri_status status = rows != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int64_t i = 0; i < stream->n && status == TRI_OK; i++) {
        rows[i] = ckpt_row_of(&stream->entries[i]);
        if (!is_file)
            status = note_runs(weights, i, is_index, &rows[i]);
    }
    if (status == TRI_OK && (is_file || is_index))
        status = note_storages(weights, rows);
    if (status == TRI_OK)
        ckpt_table_print(rows, stream->n);
    if (status == TRI_OK && is_index && weights->n_left_out > 0)
        printf("%" PRId64 " more in its files, which the index does not list\n",
               weights->n_left_out);
    trii_free(rows);
    return status;
}

static tri_status show_weights(const char *path)
{
    trii_tensor_stream stream;
    tri_status status = trii_tensor_stream_open(path, TRII_WEIGHTS_ALL, &stream);
    const tri_metadata *texts;
    const tri_torch_value *root;
    int64_t n = 0;

    if (status == TRI_OK) {
        ckpt_print_text(path, 0);
        printf(": %s\n", ckpt_kind_of(&stream).text);
        root = trii_weights_root(&stream.weights);
        if (root != NULL)
            ckpt_values_print(root);
        texts = trii_weights_texts(&stream.weights, &n);
        print_texts(texts, n, "metadata");
        status = show_tensors(&stream);
    }
    trii_tensor_stream_close(&stream);
    return status;
}

tri_status ckpt_show(const char *path)
{
    ckpt_place place;
    tri_status status = ckpt_place_of(path, &place);

    if (status == TRI_OK)
        status =
            place.has_checkpoints ? show_checkpoint(place.own_path) : show_weights(place.own_path);
    trii_free(place.own_path);
    return status;
}
