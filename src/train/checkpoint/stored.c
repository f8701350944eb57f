/*
 * stored.c - the list of tensors in pieces that a manifest has (pieces.h): read, checked, searched.
 * Called by manifest.c, and before a manifest is written by pieces_write.c.
 *
 * Nothing in the list is trusted: every number is checked against the tensor's shape and the file's
 * size before anybody reads by it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"

static tri_dtype dtype_named(const char *name)
{
    for (int d = TRI_DTYPE_NONE + 1; name != NULL && d < TRII_TENSOR_DTYPES; d++) {
        if (strcmp(tri_dtype_name((tri_dtype)d), name) == 0)
            return (tri_dtype)d;
    }
    return TRI_DTYPE_NONE;
}

/* Up to TRI_MAX_DIMS sizes; false: it is something else. */
static bool read_sizes(const json_t *list, int64_t *sizes, int *n_out)
{
    if (!json_is_array(list) || json_array_size(list) > TRI_MAX_DIMS)
        return false;
    *n_out = (int)json_array_size(list);
    for (int d = 0; d < *n_out; d++) {
        uint64_t size;

        if (!trii_json_size(json_array_get(list, (size_t)d), &size))
            return false;
        sizes[d] = (int64_t)size;
    }
    return true;
}

/* What is wrong with the list: where it was, and in which tensor. */
typedef struct reading {
    const char *path;
    const trii_listed *files;
    int n_files;
    int file;      /* of the last piece: the next one is often in that after it */
    uint64_t left; /* bytes of the files that no piece read so far has */
} reading;

static tri_status read_piece(reading *r, const json_t *object, const trii_stored_tensor *t,
                             trii_stored_piece *p)
{
    const char *file = json_string_value(json_object_get(object, "file"));
    uint64_t bytes;
    int n = 0;

    p->file = -1;
    for (int i = 0; file != NULL && i < r->n_files && p->file < 0; i++) {
        int at = (r->file + 1 + i) % r->n_files;

        p->file = strcmp(r->files[at].name, file) == 0 ? at : -1;
    }
    if (p->file < 0)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: tensor %s: a piece in %s, which its parts do not "
                         "list",
                         r->path, t->name, file != NULL ? file : "(none)");
    if (!read_sizes(json_object_get(object, "offset"), p->piece.offset, &p->piece.ndim) ||
        !read_sizes(json_object_get(object, "size"), p->piece.size, &n) || n != p->piece.ndim ||
        !trii_json_size(json_object_get(object, "at"), &p->at) ||
        !trii_manifest_checksum(object, &p->checksum))
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: tensor %s: a piece in %s without offset, size, at or xxh3", r->path,
                         t->name, file);
    if (!trii_piece_fits(&p->piece, t->shape, t->ndim) || trii_piece_count(&p->piece) == 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s: piece %s in %s lies outside of its shape",
                         r->path, t->name, trii_piece_text(&p->piece, (char[TRII_PIECE_TEXT]){""}),
                         file);
    if (__builtin_mul_overflow((uint64_t)trii_piece_count(&p->piece), tri_dtype_size(t->dtype),
                               &bytes) ||
        bytes > r->files[p->file].bytes || p->at > r->files[p->file].bytes - bytes)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: tensor %s: piece %s from byte %" PRIu64
                         " on does not lie in the %" PRIu64 " bytes of %s",
                         r->path, t->name, trii_piece_text(&p->piece, (char[TRII_PIECE_TEXT]){""}),
                         p->at, r->files[p->file].bytes, file);
    /* What limits the memory that checking takes, too. */
    if (bytes > r->left)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s: the pieces are more than the files have",
                         r->path, t->name);
    r->left -= bytes;
    r->file = p->file;
    return TRI_OK;
}

/* --- all of the tensor, and nothing twice --------------------------------- */

typedef struct span {
    int64_t start, end;
    const trii_stored_piece *piece;
} span;

static int compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* Spans in order: the first hole or overlap is named. */
static tri_status check_spans(const reading *r, const trii_stored_tensor *t, const span *spans,
                              int64_t n, int64_t elems)
{
    const span *last = NULL;
    int64_t at = 0;

    for (int64_t i = 0; i <= n; i++) {
        int64_t start = i < n ? spans[i].start : elems;

        if (start > at)
            return TRII_FAIL(TRI_ERR_FORMAT,
                             "%s: tensor %s: no piece has elements %" PRId64 " to %" PRId64
                             " of %" PRId64,
                             r->path, t->name, at, start - 1, elems);
        if (i < n && start < at && last != NULL)
            return TRII_FAIL(TRI_ERR_FORMAT,
                             "%s: tensor %s: pieces %s in %s and %s in %s both have element "
                             "%" PRId64,
                             r->path, t->name,
                             trii_piece_text(&last->piece->piece, (char[TRII_PIECE_TEXT]){""}),
                             r->files[last->piece->file].name,
                             trii_piece_text(&spans[i].piece->piece, (char[TRII_PIECE_TEXT]){""}),
                             r->files[spans[i].piece->file].name, start);
        if (i < n) {
            last = &spans[i];
            at = last->end;
        }
    }
    return TRI_OK;
}

static tri_status check_cover(const reading *r, const trii_stored_tensor *t)
{
    int64_t n = 0, k = 0, elems = 1;
    tri_status status;
    span *spans;

    for (int d = 0; d < t->ndim; d++)
        elems *= t->shape[d];
    for (int64_t i = 0; i < t->n; i++)
        n += trii_piece_runs(&t->pieces[i].piece, t->shape, t->ndim).n;
    spans = trii_alloc((size_t)n, sizeof(*spans), "pieces of a tensor");
    if (spans == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < t->n; i++) {
        trii_runs runs = trii_piece_runs(&t->pieces[i].piece, t->shape, t->ndim);

        for (int64_t j = 0; j < runs.n; j++) {
            int64_t start = trii_runs_start(&runs, j);

            spans[k++] = (span){start, start + runs.length, &t->pieces[i]};
        }
    }
    qsort(spans, (size_t)n, sizeof(*spans), compare_spans);
    status = check_spans(r, t, spans, n, elems);
    trii_free(spans);
    return status;
}

/* --- the list ------------------------------------------------------------- */

static tri_status read_tensor(reading *r, const json_t *object, trii_stored_tensor *t)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *type = json_string_value(json_object_get(object, "dtype"));
    const json_t *pieces = json_object_get(object, "pieces");
    tri_status status = TRI_OK;

    if (name == NULL || strchr(name, '/') == NULL)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: a tensor that is not named PART/NAME", r->path);
    t->name = trii_strdup(name, "name of a tensor");
    if (t->name == NULL)
        return TRI_ERR_NO_MEMORY;
    t->dtype = dtype_named(type);
    if (t->dtype == TRI_DTYPE_NONE)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s: unknown dtype %s", r->path, name,
                         type != NULL ? type : "(none)");
    /* An empty range lies in every shape, and in nothing else. */
    if (!read_sizes(json_object_get(object, "shape"), t->shape, &t->ndim) ||
        !trii_piece_fits(&(trii_piece){.ndim = 1}, t->shape, t->ndim) || !json_is_array(pieces))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s: no shape, or no list of pieces", r->path,
                         name);
    t->pieces = trii_alloc(json_array_size(pieces), sizeof(*t->pieces), "pieces of a tensor");
    if (t->pieces == NULL)
        return TRI_ERR_NO_MEMORY;
    for (; t->n < (int64_t)json_array_size(pieces) && status == TRI_OK; t->n++)
        status = read_piece(r, json_array_get(pieces, (size_t)t->n), t, &t->pieces[t->n]);
    return status == TRI_OK ? check_cover(r, t) : status;
}

static int compare_tensors(const void *a, const void *b)
{
    const trii_stored_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

tri_status trii_stored_read(const char *path, const json_t *list, const trii_listed *files,
                            int n_files, trii_stored *stored_out)
{
    reading r = {.path = path, .files = files, .n_files = n_files};
    trii_stored stored = {.n = 0};
    tri_status status = TRI_OK;

    for (int i = 0; i < n_files; i++)
        r.left = files[i].bytes < UINT64_MAX - r.left ? r.left + files[i].bytes : UINT64_MAX;
    if (!json_is_array(list))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: its tensors are not a list", path);
    stored.tensors = trii_alloc(json_array_size(list), sizeof(*stored.tensors), "stored tensors");
    if (stored.tensors == NULL)
        return TRI_ERR_NO_MEMORY;
    for (; stored.n < (int64_t)json_array_size(list) && status == TRI_OK; stored.n++)
        status = read_tensor(&r, json_array_get(list, (size_t)stored.n), &stored.tensors[stored.n]);
    if (status == TRI_OK)
        qsort(stored.tensors, (size_t)stored.n, sizeof(*stored.tensors), compare_tensors);
    for (int64_t i = 1; i < stored.n && status == TRI_OK; i++) {
        if (strcmp(stored.tensors[i - 1].name, stored.tensors[i].name) == 0)
            status = TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s occurs twice", path,
                               stored.tensors[i].name);
    }
    if (status == TRI_OK)
        *stored_out = stored;
    else
        trii_stored_fini(&stored);
    return status;
}

void trii_stored_fini(trii_stored *stored)
{
    for (int64_t i = 0; i < stored->n; i++) {
        trii_free(stored->tensors[i].name);
        trii_free(stored->tensors[i].pieces);
    }
    trii_free(stored->tensors);
    *stored = (trii_stored){.n = 0};
}

const trii_stored_tensor *trii_stored_part(const trii_stored *stored, const char *part,
                                           int64_t *n_out)
{
    const trii_stored_tensor *first = NULL;
    size_t length = strlen(part);

    *n_out = 0;
    for (int64_t i = 0; i < stored->n; i++) {
        const char *name = stored->tensors[i].name;

        if (strncmp(name, part, length) == 0 && name[length] == '/') {
            first = first != NULL ? first : &stored->tensors[i];
            ++*n_out;
        }
    }
    return first;
}

const trii_stored_tensor *trii_stored_damaged(const trii_stored *stored, int file,
                                              const trii_mapping *map,
                                              const trii_stored_piece **piece_out)
{
    for (int64_t i = 0; i < stored->n; i++) {
        const trii_stored_tensor *t = &stored->tensors[i];

        for (int64_t k = 0; k < t->n; k++) {
            const trii_stored_piece *p = &t->pieces[k];
            size_t bytes = (size_t)trii_piece_count(&p->piece) * tri_dtype_size(t->dtype);

            if (p->file != file ||
                trii_checksum_of((const char *)map->data + p->at, bytes) == p->checksum)
                continue;
            *piece_out = p;
            return t;
        }
    }
    return NULL;
}
