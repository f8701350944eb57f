/*
 * weights_dcp.c - the tensors of a folder of torch.distributed.checkpoint: `.metadata`, a pickle
 * that says which pieces each tensor has and where they lie, and files __RANK_N.distcp, in which
 * each piece is a whole file of torch.save. torch/distributed/checkpoint/{metadata,filesystem}.py.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/weights.h"
#include "train/torch/pickle.h"
#include "train/torch/strided.h"
#include "train/torch/torch_dtype.h"

typedef struct piece {
    int64_t offset[TRI_MAX_DIMS], size[TRI_MAX_DIMS];
    int64_t numel;
    const char *file; /* NULL: none has it */
    uint64_t at, bytes;
} piece;

typedef struct whole {
    const char *name;
    const trii_torch_dtype *dtype;
    int64_t shape[TRI_MAX_DIMS];
    int ndim;
    int64_t numel;
    piece *pieces; /* [n] */
    int64_t n;
} whole;

typedef struct dcp_weights {
    char *path; /* of .metadata */
    trii_arena arena;
    whole *wholes; /* [n_wholes], by name */
    int64_t n_wholes;
    const whole **chosen; /* [n]: of each source */
    char *file;           /* the one that is mapped */
    trii_mapping map;
    char *file_path;
    tri_torch_file *item; /* of the last run */
    void *room;           /* for one tensor */
    size_t room_bytes;
} dcp_weights;

/* --- pieces --------------------------------------------------------------- */

static tri_status map_file(dcp_weights *w, const char *name)
{
    char *path;
    tri_status status;

    if (w->file != NULL && strcmp(w->file, name) == 0)
        return TRI_OK;
    trii_mapping_close(&w->map);
    w->map = (trii_mapping){.data = NULL};
    trii_free(w->file);
    trii_free(w->file_path);
    w->file = NULL;
    w->file_path = path = trii_path_beside(w->path, name);
    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_mapping_open(path, &w->map);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status == TRI_ERR_NOT_FOUND ? TRI_ERR_FORMAT : status, "%s", w->path);
    w->file = trii_strdup(name, "name of a file");
    return w->file != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* Close *file_out if it is not NULL. */
static tri_status open_piece(dcp_weights *w, const whole *t, const piece *p,
                             tri_torch_file **file_out, const tri_torch_tensor **tensor_out)
{
    char label[TRI_STATE_NAME_MAX];
    trii_mapping part;
    const tri_torch_tensor *tensor;
    tri_status status = map_file(w, p->file);

    *file_out = NULL;
    if (status != TRI_OK)
        return status;
    snprintf(label, sizeof(label), "%s: tensor %.200s: item at %" PRIu64 " of %.80s", w->path,
             t->name, p->at, p->file);
    if (p->at > w->map.bytes || p->bytes > w->map.bytes - p->at)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: it has %" PRIu64 " bytes, the file %zu: is it cut short?", label,
                         p->bytes, w->map.bytes);
    part = (trii_mapping){(const char *)w->map.data + p->at, (size_t)p->bytes};
    status = trii_torch_open_within(label, &part, file_out);
    if (status != TRI_OK)
        return status;
    tensor = tri_torch_at(*file_out, 0);
    if (tri_torch_count(*file_out) != 1 || strcmp(tensor->type_name, t->dtype->name) != 0 ||
        tensor->ndim != t->ndim ||
        memcmp(tensor->shape, p->size, (size_t)t->ndim * sizeof(p->size[0])) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: another dtype or shape than .metadata says", label);
    *tensor_out = tensor;
    return TRI_OK;
}

/* Elements of a piece to their places in the whole. */
static void place(char *to, const whole *t, const piece *p, const tri_torch_tensor *from,
                  const char *data)
{
    size_t element = t->dtype->size;
    int64_t at[TRI_MAX_DIMS] = {0}, row = t->ndim > 0 ? p->size[t->ndim - 1] : 1;

    for (int64_t left = p->numel / row; left > 0; left--) {
        int64_t target = 0, source = 0;

        for (int d = 0; d < t->ndim; d++) {
            target = target * t->shape[d] + p->offset[d] + at[d];
            source += at[d] * from->stride[d];
        }
        if (t->ndim == 0 || from->stride[t->ndim - 1] == 1)
            memcpy(to + (size_t)target * element, data + (size_t)source * element,
                   (size_t)row * element);
        else
            for (int64_t i = 0; i < row; i++)
                memcpy(to + (size_t)(target + i) * element,
                       data + (size_t)(source + i * from->stride[t->ndim - 1]) * element, element);
        for (int d = t->ndim - 2; d >= 0; d--) { /* the next row */
            if (++at[d] < p->size[d])
                break;
            at[d] = 0;
        }
    }
}

/* to: NULL compares the checksums only. */
static tri_status read_pieces(dcp_weights *w, const whole *t, char *to)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < t->n && status == TRI_OK; i++) {
        const tri_torch_tensor *tensor = NULL;
        tri_torch_file *file = NULL;
        const void *data = NULL;

        if (t->pieces[i].numel == 0)
            continue;
        status = open_piece(w, t, &t->pieces[i], &file, &tensor);
        if (status == TRI_OK)
            status = trii_torch_data(file, tensor, &data);
        if (status == TRI_OK && to != NULL)
            place(to, t, &t->pieces[i], tensor, data);
        tri_torch_close(file);
    }
    return status;
}

static tri_status data(trii_weights *weights, int64_t index, const void **data_out)
{
    dcp_weights *w = weights->file;
    const whole *t = w->chosen[index];
    size_t bytes = (size_t)t->numel * t->dtype->size;

    if (bytes > w->room_bytes) {
        trii_free(w->room);
        w->room = trii_alloc_aligned(64, bytes, "elements of a tensor");
        w->room_bytes = w->room != NULL ? bytes : 0;
        if (w->room == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    *data_out = w->room;
    return read_pieces(w, t, w->room);
}

static tri_status check(trii_weights *weights, int64_t index)
{
    dcp_weights *w = weights->file;

    return read_pieces(w, w->chosen[index], NULL);
}

/* Whether each of its pieces is some of the whole's rows, which are in order. */
static bool lies_in_rows(const whole *t)
{
    for (int64_t i = 0; i < t->n; i++)
        for (int d = 1; d < t->ndim && t->pieces[i].numel > 0; d++)
            if (t->pieces[i].size[d] != t->shape[d])
                return false;
    return true;
}

static tri_status run(trii_weights *weights, int64_t index, int64_t k, trii_weights_run *run_out)
{
    dcp_weights *w = weights->file;
    const whole *t = w->chosen[index];
    int64_t i = 0;
    tri_status status;

    *run_out = (trii_weights_run){.type_name = t->dtype->name};
    if (!lies_in_rows(t)) {
        run_out->bytes = k == 0 ? (uint64_t)t->numel * t->dtype->size : 0;
        return TRI_OK;
    }
    for (; i < t->n && (t->pieces[i].numel == 0 || k > 0); i++)
        k -= t->pieces[i].numel > 0;
    if (i == t->n)
        return TRI_OK;
    tri_torch_close(w->item);
    status = open_piece(w, t, &t->pieces[i], &w->item, &run_out->tensor);
    if (status != TRI_OK)
        return status;
    run_out->path = w->file_path;
    run_out->bytes = run_out->tensor->bytes;
    run_out->torch = w->item;
    run_out->base = t->pieces[i].at;
    return TRI_OK;
}

static void close_folder(trii_weights *weights)
{
    dcp_weights *w = weights->file;

    tri_torch_close(w->item);
    trii_mapping_close(&w->map);
    trii_arena_fini(&w->arena);
    trii_free(w->chosen);
    trii_free(w->file);
    trii_free(w->file_path);
    trii_free(w->room);
    trii_free(w->path);
    trii_free(w);
}

static const trii_weights_kind kind = {"torch.distributed.checkpoint", data, check, run,
                                       close_folder};

/* --- .metadata ------------------------------------------------------------ */

static tri_status damaged(const dcp_weights *w, const char *name, const char *what)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %.200s: %s", w->path, name, what);
}

/* A field of an object that was made of a data class; NULL: it has none. */
static const tri_torch_value *field(const tri_torch_value *object, const char *name)
{
    return object->kind == TRI_TORCH_OBJECT ? tri_torch_item(object->state, name) : NULL;
}

static bool is_kind(const tri_torch_value *value, tri_torch_kind wanted)
{
    return value != NULL && value->kind == wanted;
}

/* A torch.Size, and how many elements it stands for. */
static bool read_size(const tri_torch_value *value, int64_t *sizes, int *ndim_out,
                      int64_t *numel_out)
{
    if (!is_kind(value, TRI_TORCH_TUPLE) || value->n > TRI_MAX_DIMS)
        return false;
    *numel_out = 1;
    for (int64_t d = 0; d < value->n; d++) {
        if (value->items[d]->kind != TRI_TORCH_INT || value->items[d]->integer < 0)
            return false;
        sizes[d] = value->items[d]->integer;
    }
    for (int64_t d = 0; d < value->n; d++)
        if (sizes[d] == 0)
            *numel_out = 0;
    for (int64_t d = 0; d<value->n && * numel_out> 0; d++)
        if (__builtin_mul_overflow(*numel_out, sizes[d], numel_out))
            return false;
    *ndim_out = (int)value->n;
    return true;
}

static tri_status read_piece(const dcp_weights *w, const whole *t, const tri_torch_value *chunk,
                             piece *p)
{
    int64_t unused;
    int n_offset, n_size;

    if (!read_size(field(chunk, "sizes"), p->size, &n_size, &p->numel) ||
        (!read_size(field(chunk, "offsets"), p->offset, &n_offset, &unused)) || n_size != t->ndim ||
        n_offset != t->ndim)
        return damaged(w, t->name, "a piece without offsets and sizes");
    for (int d = 0; d < t->ndim; d++)
        if (p->offset[d] > t->shape[d] || p->size[d] > t->shape[d] - p->offset[d])
            return damaged(w, t->name, "a piece lies outside of the whole");
    return TRI_OK;
}

static bool overlap(const piece *a, const piece *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (a->offset[d] + a->size[d] <= b->offset[d] || b->offset[d] + b->size[d] <= a->offset[d])
            return false;
    return true;
}

/* By the element with which they begin; of one that has several dimensions. */
static int compare_pieces(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    int d = 0;

    while (d < TRI_MAX_DIMS - 1 && x->offset[d] == y->offset[d])
        d++;
    return (x->offset[d] > y->offset[d]) - (x->offset[d] < y->offset[d]);
}

/* TensorStorageMetadata: properties, whose state is a tuple that begins with the dtype; size;
 * chunks. */
static tri_status read_whole(dcp_weights *w, const tri_torch_value *from, whole *t)
{
    const tri_torch_value *properties = field(from, "properties"), *chunks = field(from, "chunks"),
                          *state = properties != NULL ? properties->state : NULL;
    int64_t sum = 0;
    tri_status status = TRI_OK;

    if (is_kind(state, TRI_TORCH_TUPLE) && state->n > 0 &&
        state->items[0]->kind == TRI_TORCH_OBJECT)
        t->dtype = trii_torch_dtype_named(state->items[0]->text);
    if (t->dtype == NULL)
        return damaged(w, t->name, "no dtype that is known");
    if (!read_size(field(from, "size"), t->shape, &t->ndim, &t->numel) ||
        t->numel > INT64_MAX / 16 || !is_kind(chunks, TRI_TORCH_LIST))
        return damaged(w, t->name, "no size, or one of more than 8 dimensions, or no pieces");
    t->pieces = trii_arena_take(&w->arena, (size_t)chunks->n, sizeof(*t->pieces));
    if (t->pieces == NULL)
        return TRI_ERR_NO_MEMORY;
    for (; t->n < chunks->n && status == TRI_OK; t->n++) {
        piece *p = &t->pieces[t->n];

        status = read_piece(w, t, chunks->items[t->n], p);
        for (int64_t i = 0; status == TRI_OK && p->numel > 0 && i < t->n; i++)
            if (t->pieces[i].numel > 0 && overlap(p, &t->pieces[i], t->ndim))
                status = damaged(w, t->name, "two pieces have the same elements");
        sum += p->numel; /* no more than the whole while none overlap */
    }
    if (status == TRI_OK && sum != t->numel)
        status = damaged(w, t->name, "no piece has some of its elements");
    qsort(t->pieces, (size_t)t->n, sizeof(*t->pieces), compare_pieces);
    return status;
}

static int compare(const void *a, const void *b)
{
    const whole *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static tri_status read_wholes(dcp_weights *w, const tri_torch_value *dict)
{
    tri_status status = TRI_OK;

    w->wholes = trii_arena_take(&w->arena, (size_t)dict->n / 2 + 1, sizeof(*w->wholes));
    if (w->wholes == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i + 1 < dict->n && status == TRI_OK; i += 2) {
        whole *t = &w->wholes[w->n_wholes];

        if (field(dict->items[i + 1], "chunks") == NULL) /* no tensor */
            continue;
        if (dict->items[i]->kind != TRI_TORCH_TEXT ||
            strlen(dict->items[i]->text) != dict->items[i]->bytes)
            return damaged(w, "(?)", "its name is not a text");
        t->name = dict->items[i]->text;
        status = read_whole(w, dict->items[i + 1], t);
        w->n_wholes++;
    }
    qsort(w->wholes, (size_t)w->n_wholes, sizeof(*w->wholes), compare);
    return status;
}

/* index: MetadataIndex; info: _StorageInfo. */
static tri_status locate(const dcp_weights *w, const tri_torch_value *index,
                         const tri_torch_value *info)
{
    const tri_torch_value *name = field(index, "fqn"), *at = field(index, "offset"),
                          *file = field(info, "relative_path"), *begin = field(info, "offset"),
                          *length = field(info, "length"),
                          *packed = field(info, "transform_descriptors");
    int64_t offset[TRI_MAX_DIMS] = {0}, unused;
    whole wanted, *t;
    int ndim = 0;

    if (!is_kind(name, TRI_TORCH_TEXT))
        return damaged(w, "(?)", "its place has no name");
    wanted.name = name->text;
    t = bsearch(&wanted, w->wholes, (size_t)w->n_wholes, sizeof(wanted), compare);
    if (t == NULL) /* of an object */
        return TRI_OK;
    if (!is_kind(file, TRI_TORCH_TEXT) || !is_kind(begin, TRI_TORCH_INT) || begin->integer < 0 ||
        !is_kind(length, TRI_TORCH_INT) || length->integer < 0)
        return damaged(w, t->name, "a piece without a place");
    if (trii_weights_leads_out(file->text))
        return damaged(w, t->name, "a piece in a file that is not in the folder");
    if (packed != NULL && packed->n > 0)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: tensor %.200s: compressed or otherwise transformed by its writer: "
                         "save it without extensions",
                         w->path, t->name);
    if (is_kind(at, TRI_TORCH_TUPLE) && !read_size(at, offset, &ndim, &unused))
        return damaged(w, t->name, "a piece without an offset");
    for (int64_t i = 0; i < t->n; i++) {
        piece *p = &t->pieces[i];

        if (memcmp(p->offset, offset, (size_t)t->ndim * sizeof(offset[0])) != 0 || p->numel == 0)
            continue;
        p->file = file->text;
        p->at = (uint64_t)begin->integer;
        p->bytes = (uint64_t)length->integer;
        if ((uint64_t)p->numel * t->dtype->size > p->bytes)
            return damaged(w, t->name, "a piece with more elements than bytes");
        return TRI_OK;
    }
    return TRI_OK;
}

/* What stands before the names of a module's state, as the keys in planner_data lead to it. */
static void find_state(const tri_torch_value *paths, char *prefix, size_t bytes)
{
    prefix[0] = '\0';
    for (int k = 0; trii_weights_keys[k] != NULL && is_kind(paths, TRI_TORCH_DICT); k++) {
        for (int64_t i = 1; i < paths->n; i += 2) {
            const tri_torch_value *path = paths->items[i];
            /* {"app": ..}: how PyTorch's tutorials wrap what is saved */
            int first = path->kind == TRI_TORCH_TUPLE && path->n > 2 &&
                        path->items[0]->kind == TRI_TORCH_TEXT &&
                        strcmp(path->items[0]->text, "app") == 0;

            if (path->kind != TRI_TORCH_TUPLE || path->n < first + 2 ||
                path->items[first]->kind != TRI_TORCH_TEXT ||
                strcmp(path->items[first]->text, trii_weights_keys[k]) != 0)
                continue;
            snprintf(prefix, bytes, "%s%s.", first ? "app." : "", trii_weights_keys[k]);
            return;
        }
    }
}

static tri_status choose(const dcp_weights *w, trii_weights *weights)
{
    const char *prefix = weights->prefix;
    size_t skip = strlen(prefix);
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < w->n_wholes && status == TRI_OK; i++) {
        const whole *t = &w->wholes[i];
        tri_state_source *source = &weights->sources[weights->n];

        if (strncmp(t->name, prefix, skip) != 0) {
            weights->n_left_out++;
            continue;
        }
        for (int64_t k = 0; k < t->n; k++)
            if (t->pieces[k].numel > 0 && t->pieces[k].file == NULL)
                return damaged(w, t->name, "a piece that no file has");
        *source =
            (tri_state_source){.name = t->name + skip, .dtype = t->dtype->dtype, .ndim = t->ndim};
        memcpy(source->shape, t->shape, sizeof(t->shape));
        w->chosen[weights->n++] = t;
    }
    return status;
}

static tri_status read_metadata(dcp_weights *w, const tri_torch_value *root,
                                trii_weights_scope scope, trii_weights *weights)
{
    const tri_torch_value *dict = field(root, "state_dict_metadata"),
                          *places = field(root, "storage_data");
    tri_status status;

    if (!is_kind(dict, TRI_TORCH_DICT) || !is_kind(places, TRI_TORCH_DICT))
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: not what torch.distributed.checkpoint.save writes: it lists no "
                         "tensors and places",
                         w->path);
    status = read_wholes(w, dict);
    for (int64_t i = 0; i + 1 < places->n && status == TRI_OK; i += 2)
        status = locate(w, places->items[i], places->items[i + 1]);
    if (status != TRI_OK)
        return status;
    w->chosen = trii_alloc((size_t)w->n_wholes, sizeof(*w->chosen), "tensors of a folder");
    status = trii_weights_room(weights, w->n_wholes);
    if (status != TRI_OK || w->chosen == NULL)
        return TRI_ERR_NO_MEMORY;
    if (scope == TRII_WEIGHTS_STATE)
        find_state(field(root, "planner_data"), weights->prefix, sizeof(weights->prefix));
    return choose(w, weights);
}

tri_status trii_weights_dcp(const char *path, trii_weights_scope scope, trii_weights *weights)
{
    dcp_weights *w = trii_alloc(1, sizeof(*w), "folder of a distributed checkpoint");
    trii_mapping map = {.data = NULL};
    trii_pickled pickled = {.root = NULL};
    tri_status status;

    if (w == NULL)
        return TRI_ERR_NO_MEMORY;
    weights->kind = &kind;
    weights->file = w;
    w->path = trii_strdup(path, "path");
    if (w->path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_mapping_open(path, &map);
    if (status != TRI_OK)
        return status;
    status = trii_pickle_read(w->path, 0, map.data, map.bytes, &w->arena, &pickled);
    trii_mapping_close(&map);
    return status == TRI_OK ? read_metadata(w, &pickled.root->v, scope, weights) : status;
}
