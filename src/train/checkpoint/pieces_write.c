/*
 * pieces_write.c - the file that a rank writes of its pieces of tensors, and the lists of all ranks
 * in one manifest (pieces.h). Called by commit.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"
#include "train/tensor/elsewhere.h"

static tri_status no_memory(const char *dir)
{
    return TRII_FAIL(TRI_ERR_NO_MEMORY, "%s: list of pieces: out of memory", dir);
}

/* --- one rank ------------------------------------------------------------- */

static json_t *sizes_to_json(const int64_t *sizes, int n)
{
    json_t *list = json_array();

    for (int d = 0; d < n; d++) {
        if (json_array_append_new(list, json_integer(sizes[d])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *piece_to_json(const char *file, const trii_piece *piece,
                             const struct trii_written_entry *written)
{
    json_t *object = json_object();

    if (trii_json_put(object, "file", json_string(file)) &&
        trii_json_put(object, "at", json_integer((json_int_t)written->at)) &&
        trii_json_put(object, "offset", sizes_to_json(piece->offset, piece->ndim)) &&
        trii_json_put(object, "size", sizes_to_json(piece->size, piece->ndim)) &&
        trii_json_put(object, "xxh3", trii_manifest_hex(written->hash)))
        return object;
    json_decref(object);
    return NULL;
}

/* This rank's piece, whose boxes lie one after the other in the file. */
static bool list_boxes(const char *file, const tri_safetensors_entry *entry, const trii_box *box,
                       const struct trii_written_entry *written, json_t *pieces)
{
    int n = box->piece.parts > 1 ? box->piece.parts : 1;
    size_t bytes = entry->bytes / (size_t)n;
    bool ok = true;

    if (entry->bytes == 0)
        return true;
    for (int k = 0; k < n && ok; k++) {
        trii_piece one = trii_piece_part(&box->piece, box->shape, k);
        struct trii_written_entry at = *written;

        at.at += (size_t)k * bytes;
        if (n > 1)
            at.hash = trii_checksum_of((const char *)entry->data + (size_t)k * bytes, bytes);
        ok = json_array_append_new(pieces, piece_to_json(file, &one, &at)) == 0;
    }
    return ok;
}

/* A tensor with this rank's piece of it, if that is not empty. */
static bool list_tensor(const char *file, const tri_safetensors_entry *entry, const trii_box *box,
                        const struct trii_written_entry *written, json_t *list)
{
    json_t *object = json_object(), *pieces = json_array();
    bool ok = trii_json_put(object, "name", json_string(entry->name)) &&
              trii_json_put(object, "dtype", json_string(tri_dtype_name(entry->dtype))) &&
              trii_json_put(object, "shape", sizes_to_json(box->shape, box->ndim)) &&
              list_boxes(file, entry, box, written, pieces) &&
              json_object_set(object, "pieces", pieces) == 0 &&
              json_array_append(list, object) == 0;

    json_decref(pieces);
    json_decref(object);
    return ok;
}

static json_t *describe(const char *file, const trii_piece_list *list, const trii_written *written)
{
    json_t *object = json_object(), *tensors = json_array();
    bool ok =
        trii_json_put(object, "part", trii_manifest_part(file, written->bytes, written->hash));

    for (int64_t i = 0; i < list->n && ok; i++)
        ok = list_tensor(file, &list->entries[i], &list->boxes[i], &written->entries[i], tensors);
    ok = ok && json_object_set(object, "tensors", tensors) == 0;
    json_decref(tensors);
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

static tri_status write_own(const char *dir, const trii_piece_list *list, char **text_out)
{
    trii_written written = {
        .entries = trii_alloc((size_t)list->n, sizeof(*written.entries), "list of pieces")};
    char file[TRII_FILE_NAME], *path;
    tri_status status = TRI_ERR_NO_MEMORY;

    snprintf(file, sizeof(file), TRII_PIECES_FILE "%d" TRII_TENSORS_SUFFIX, list->rank);
    path = trii_path_join(dir, file);
    if (path != NULL && written.entries != NULL)
        status = trii_safetensors_write(path, list->entries, list->n,
                                        &(tri_metadata){"format", "pt"}, 1, &written);
    if (status == TRI_OK) {
        json_t *object = describe(file, list, &written);

        *text_out = object != NULL ? trii_json_text(object) : NULL;
        json_decref(object);
        if (*text_out == NULL)
            status = no_memory(dir);
    }
    trii_free(path);
    trii_free(written.entries);
    return status;
}

tri_status trii_pieces_tell(const char *dir, const trii_piece_list *list, tri_status status,
                            trii_pieces_told *told)
{
    tri_group *group = list->group;
    bool is_unseen = false;

    told->size = tri_group_size(group);
    if (status == TRI_OK) {
        status = write_own(dir, list, &told->own);
        is_unseen = status == TRI_ERR_NOT_FOUND; /* though rank 0 has made the folder */
    }
    if (is_unseen)
        status = TRII_FAIL(TRI_ERR_IO,
                           "%s: not seen by this rank: ranks that hold pieces of tensors save into "
                           "one folder, on a disk that all of them share",
                           dir);
    if (status == TRI_OK) {
        told->bytes = trii_alloc((size_t)told->size, sizeof(*told->bytes), "lists of pieces");
        if (told->bytes == NULL)
            status = TRI_ERR_NO_MEMORY;
    }
    status = trii_ranks_agree(group, status);
    if (is_unseen && tri_group_status(group) != TRI_OK) /* rank 0 was told first, and removed it */
        status = tri_group_status(group);
    if (status != TRI_OK) {
        told->has_failed = true;
        return status;
    }
    return tri_gather_object(group, told->own, strlen(told->own), 0, &told->all, told->bytes);
}

void trii_pieces_told_fini(trii_pieces_told *told)
{
    tri_object_free(told->all);
    trii_free(told->bytes);
    trii_free(told->own);
    *told = (trii_pieces_told){.own = NULL};
}

/* --- all ranks ------------------------------------------------------------ */

static bool has_piece(const json_t *pieces, const json_t *piece)
{
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        const json_t *other = json_array_get(pieces, i);

        if (json_equal(json_object_get(other, "offset"), json_object_get(piece, "offset")) &&
            json_equal(json_object_get(other, "size"), json_object_get(piece, "size")))
            return true;
    }
    return false;
}

/* The same piece of two ranks, which have replicas of it, is the first one's. */
static bool add_pieces(json_t *ours, const json_t *theirs)
{
    for (size_t i = 0; i < json_array_size(theirs); i++) {
        json_t *piece = json_array_get(theirs, i);

        if (!has_piece(ours, piece) && json_array_append(ours, piece) != 0)
            return false;
    }
    return true;
}

/* Adds a rank's pieces of a tensor to those that are known. */
static tri_status join_tensor(const char *dir, int rank, json_t *theirs, json_t *by_name,
                              json_t *tensors)
{
    const char *name = json_string_value(json_object_get(theirs, "name"));
    json_t *ours = json_object_get(by_name, name);
    bool ok;

    if (ours == NULL) {
        ok = json_object_set(by_name, name, theirs) == 0 && json_array_append(tensors, theirs) == 0;
        return ok ? TRI_OK : no_memory(dir);
    }
    if (!json_equal(json_object_get(ours, "dtype"), json_object_get(theirs, "dtype")) ||
        !json_equal(json_object_get(ours, "shape"), json_object_get(theirs, "shape"))) {
        char *shape = trii_json_text(json_object_get(ours, "shape"));
        char *shape_there = trii_json_text(json_object_get(theirs, "shape"));
        tri_status status = TRII_FAIL(
            TRI_ERR_INVALID_ARG, "tensor %s: rank %d has %s %s, ranks before it %s %s", name, rank,
            json_string_value(json_object_get(theirs, "dtype")),
            shape_there != NULL ? shape_there : "?",
            json_string_value(json_object_get(ours, "dtype")), shape != NULL ? shape : "?");

        trii_free(shape_there);
        trii_free(shape);
        return status;
    }
    return add_pieces(json_object_get(ours, "pieces"), json_object_get(theirs, "pieces"))
               ? TRI_OK
               : no_memory(dir);
}

/* The file's own size as rank 0 sees it: another host may have a folder of the same name. */
static tri_status check_seen(const char *dir, int rank, const json_t *part)
{
    const char *file = json_string_value(json_object_get(part, "file"));
    char *path = trii_path_join(dir, file);
    trii_mapping map = {0};
    tri_status status;

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_mapping_open(path, &map);
    if (status == TRI_ERR_NOT_FOUND ||
        (status == TRI_OK &&
         map.bytes != (size_t)json_integer_value(json_object_get(part, "bytes"))))
        status =
            TRII_FAIL(TRI_ERR_IO,
                      "%s, which rank %d has written, is not seen by rank 0: ranks that hold "
                      "pieces of tensors save into one folder, on a disk that all of them share",
                      path, rank);
    trii_mapping_close(&map);
    trii_free(path);
    return status;
}

static tri_status join_rank(const char *dir, int rank, json_t *text, json_t *by_name, json_t *parts,
                            json_t *tensors)
{
    json_t *part = json_object_get(text, "part"), *list = json_object_get(text, "tensors");
    tri_status status = check_seen(dir, rank, part);

    if (status == TRI_OK && json_array_append(parts, part) != 0)
        status = no_memory(dir);
    for (size_t i = 0; i < json_array_size(list) && status == TRI_OK; i++)
        status = join_tensor(dir, rank, json_array_get(list, i), by_name, tensors);
    return status;
}

/* As a reader will check it: what cannot be read is not saved. */
static tri_status check_joined(const char *dir, json_t *parts, json_t *tensors)
{
    size_t n = json_array_size(parts);
    trii_listed *files = trii_alloc(n, sizeof(*files), "files of a checkpoint");
    trii_stored stored = {.n = 0};
    tri_status status = files != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    int n_files = 0;

    for (size_t i = 0; i < n && status == TRI_OK; i++)
        status = trii_listed_read(dir, json_array_get(parts, i), files, &n_files);
    if (status == TRI_OK)
        status = trii_stored_read(dir, tensors, files, n_files, &stored);
    trii_stored_fini(&stored);
    trii_listed_free(files, n_files);
    return status;
}

tri_status trii_pieces_join(const char *dir, const trii_pieces_told *told, json_t *parts,
                            json_t *tensors)
{
    json_t *by_name = json_object();
    tri_status status = by_name != NULL ? TRI_OK : no_memory(dir);
    size_t at = 0;

    for (int r = 0; r < told->size && status == TRI_OK; r++) {
        json_t *text = json_loadb((const char *)told->all + at, told->bytes[r], 0, NULL);

        status = text != NULL ? join_rank(dir, r, text, by_name, parts, tensors) : no_memory(dir);
        json_decref(text);
        at += told->bytes[r];
    }
    json_decref(by_name);
    return status == TRI_OK ? check_joined(dir, parts, tensors) : status;
}
