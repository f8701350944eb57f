/*
 * part_read.c - see part_read.h. Called by checkpoint.c.
 *
 * Whole tensors come first in the order of the indices, then those in pieces.
 */
#include "train/checkpoint/part_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/persistent.h"

tri_status trii_part_open(const char *dir, const trii_manifest *manifest, const char *name,
                          trii_part_reader *reader_out)
{
    trii_part_reader *r = reader_out;
    char file[TRII_FILE_NAME];
    tri_status status;

    snprintf(file, sizeof(file), "%s" TRII_TENSORS_SUFFIX, name);
    *r = (trii_part_reader){
        .dir = dir,
        .name = name,
        .manifest = manifest,
        .path = trii_path_join(dir, file),
        .maps = trii_alloc((size_t)manifest->n_files, sizeof(*r->maps), "files of a checkpoint")};
    if (r->path == NULL || r->maps == NULL)
        return TRI_ERR_NO_MEMORY;
    r->stored = trii_stored_part(&manifest->stored, name, &r->n_stored);
    status = tri_safetensors_open(r->path, &r->file);
    /* It was there when the checkpoint was opened. */
    return status == TRI_ERR_NOT_FOUND ? TRI_ERR_FORMAT : status;
}

void trii_part_close(trii_part_reader *reader)
{
    for (int i = 0; reader->maps != NULL && i < reader->manifest->n_files; i++)
        trii_mapping_close(&reader->maps[i]);
    trii_free(reader->maps);
    trii_free(reader->room);
    tri_safetensors_close(reader->file);
    trii_free(reader->path);
    *reader = (trii_part_reader){.path = NULL};
}

int64_t trii_part_count(const trii_part_reader *reader)
{
    return tri_safetensors_count(reader->file) + reader->n_stored;
}

/* NULL: it is whole. */
static const trii_stored_tensor *stored_at(const trii_part_reader *r, int64_t index)
{
    int64_t whole = tri_safetensors_count(r->file);

    return index >= whole ? &r->stored[index - whole] : NULL;
}

/* Its name without the part's. */
static const char *name_of(const trii_part_reader *r, const trii_stored_tensor *t)
{
    return t->name + strlen(r->name) + 1;
}

tri_safetensors_entry trii_part_at(const trii_part_reader *reader, int64_t index)
{
    const trii_stored_tensor *t = stored_at(reader, index);
    tri_safetensors_entry entry;

    if (t == NULL) {
        entry = *tri_safetensors_at(reader->file, index);
        entry.data = NULL;
        return entry;
    }
    entry = (tri_safetensors_entry){
        .name = name_of(reader, t), .dtype = t->dtype, .ndim = t->ndim, .type_name = ""};
    memcpy(entry.shape, t->shape, sizeof(entry.shape));
    return entry;
}

bool trii_part_is_one_piece(const trii_part_reader *reader, int64_t index)
{
    const trii_stored_tensor *t = stored_at(reader, index);

    return t != NULL && t->n == 1;
}

/* What bsearch looks for. */
typedef struct wanted {
    const trii_part_reader *reader;
    const char *name;
} wanted;

static int compare(const void *key, const void *tensor)
{
    const wanted *w = key;

    return strcmp(w->name, name_of(w->reader, tensor));
}

int64_t trii_part_find(const trii_part_reader *reader, const char *name)
{
    const tri_safetensors_entry *entry = tri_safetensors_find(reader->file, name);
    const trii_stored_tensor *t;

    if (entry != NULL)
        return entry - tri_safetensors_at(reader->file, 0);
    if (reader->n_stored == 0)
        return -1;
    t = bsearch(&(wanted){reader, name}, reader->stored, (size_t)reader->n_stored,
                sizeof(*reader->stored), compare);
    return t != NULL ? tri_safetensors_count(reader->file) + (t - reader->stored) : -1;
}

/* --- contents ------------------------------------------------------------- */

/* A whole tensor is one piece, in the part's own file. */
#define OWN_FILE (-1)

static tri_status piece_data(trii_part_reader *r, int64_t index, const trii_stored_piece *p,
                             const void **data_out)
{
    tri_status status = TRI_OK;
    const trii_listed *file;
    trii_mapping *map;

    if (p->file == OWN_FILE) {
        *data_out = tri_safetensors_at(r->file, index)->data;
        return TRI_OK;
    }
    map = &r->maps[p->file];
    file = &r->manifest->files[p->file];
    if (map->data == NULL) {
        char *path = trii_path_join(r->dir, file->name);

        status = path != NULL ? trii_mapping_open(path, map) : TRI_ERR_NO_MEMORY;
        if (status == TRI_ERR_NOT_FOUND)
            status = TRI_ERR_FORMAT;
        /* The pieces were held against the file's size when the checkpoint was opened. */
        if (status == TRI_OK && map->bytes != file->bytes)
            status = TRII_FAIL(TRI_ERR_FORMAT, "%s: has changed since it was verified", path);
        trii_free(path);
    }
    if (status == TRI_OK)
        *data_out = (const char *)map->data + p->at;
    return status;
}

static tri_status make_room(trii_part_reader *r, size_t bytes)
{
    if (r->room != NULL && bytes <= r->room_bytes)
        return TRI_OK;
    trii_free(r->room);
    r->room_bytes = bytes;
    r->room = trii_alloc_aligned(64, bytes, "a tensor of a checkpoint");
    return r->room != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* Puts the wanted elements together, unless one file has them in a row. Only files that have some
 * of them are read. */
static tri_status collect(trii_part_reader *r, int64_t index, const trii_stored_tensor *t,
                          const trii_piece *want, const void **data_out)
{
    size_t element = tri_dtype_size(t->dtype);
    trii_runs to = trii_piece_runs(want, t->shape, t->ndim);
    tri_status status = TRI_OK;

    *data_out = ""; /* there may be nothing to copy */
    for (int64_t i = 0; i < t->n && status == TRI_OK; i++) {
        trii_runs from = trii_piece_runs(&t->pieces[i].piece, t->shape, t->ndim);
        int64_t at = trii_piece_within(&from, &to);
        const void *data;

        if (!trii_piece_meets(&from, &to))
            continue;
        status = piece_data(r, index, &t->pieces[i], &data);
        if (status == TRI_OK && at >= 0) {
            *data_out = (const char *)data + (size_t)at * element;
            return TRI_OK;
        }
        if (status == TRI_OK)
            status = make_room(r, element * (size_t)trii_piece_count(want));
        if (status == TRI_OK) {
            trii_piece_copy(&from, data, &to, r->room, element);
            *data_out = r->room;
        }
    }
    return status;
}

/* What is wanted of a tensor: a piece, or all of it (NULL). */
static tri_status fetch(trii_part_reader *r, int64_t index, const trii_piece *piece,
                        const void **data_out, size_t *bytes_out)
{
    const trii_stored_tensor *t = stored_at(r, index);
    const tri_safetensors_entry entry = trii_part_at(r, index);
    trii_stored_piece all = {.piece = trii_piece_range(0, 1), .file = OWN_FILE};
    trii_stored_tensor whole = {.dtype = entry.dtype, .ndim = entry.ndim, .pieces = &all, .n = 1};

    memcpy(whole.shape, entry.shape, sizeof(whole.shape));
    for (int d = 0; d < entry.ndim; d++)
        all.piece.size[0] *= entry.shape[d];
    piece = piece != NULL ? piece : &all.piece;
    *bytes_out = tri_dtype_size(entry.dtype) * (size_t)trii_piece_count(piece);
    return collect(r, index, t != NULL ? t : &whole, piece, data_out);
}

tri_status trii_part_range(trii_part_reader *reader, int64_t index, int64_t first, int64_t n,
                           const void **data_out)
{
    const trii_piece range = trii_piece_range(first, n);
    size_t bytes;

    return fetch(reader, index, &range, data_out, &bytes);
}

tri_status trii_part_load(trii_part_reader *reader, int64_t index, tri_tensor *tensor)
{
    const trii_held *held = trii_held_of(tensor);
    tri_tensor *target = held != NULL && held->tensor != NULL ? held->tensor : tensor;
    const void *data;
    size_t bytes;
    tri_status status = fetch(reader, index, held != NULL ? &held->piece : NULL, &data, &bytes);

    if (status == TRI_OK && held != NULL && held->shared_by != NULL) {
        bytes = trii_tensor_bytes(target);
        data = (const char *)data + (size_t)held->from * tri_dtype_size(target->dtype);
    }
    if (status == TRI_OK)
        status = tri_tensor_copy_in(target, data, bytes);
    if (status == TRI_OK && tensor->elsewhere != NULL)
        tensor->elsewhere->changed(tensor);
    return status == TRI_OK ? status
                            : TRII_FAIL_CTX(status, "tensor %s", trii_part_at(reader, index).name);
}
