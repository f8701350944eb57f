/*
 * weights_torch.c - the tensors of a file of torch.save, as weights.h lists them.
 */
#include <string.h>

#include <trireme/torch_file.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/checkpoint/weights.h"
#include "train/torch/strided.h"
#include "train/torch/torch_storages.h"

typedef struct torch_weights {
    tri_torch_file *file;
    int64_t *index_of; /* [n]: of each source in the file */
    void *room;        /* for one that lies apart in its storage */
    size_t room_bytes;
} torch_weights;

static tri_status data(trii_weights *weights, int64_t index, const void **data_out)
{
    torch_weights *w = weights->file;
    const tri_torch_tensor *t = tri_torch_at(w->file, w->index_of[index]);

    if (t->bytes == 0)
        return TRI_OK;
    if (trii_is_contiguous(t))
        return trii_torch_data(w->file, t, data_out);
    if (t->bytes > w->room_bytes) {
        trii_free(w->room);
        w->room = trii_alloc_aligned(64, (size_t)t->bytes, "elements of a tensor");
        w->room_bytes = w->room != NULL ? (size_t)t->bytes : 0;
        if (w->room == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    *data_out = w->room;
    return tri_torch_read(w->file, w->index_of[index], w->room, (size_t)t->bytes);
}

static tri_status check(trii_weights *weights, int64_t index)
{
    torch_weights *w = weights->file;
    const tri_torch_tensor *t = tri_torch_at(w->file, w->index_of[index]);
    const void *elements;

    return t->refused == NULL ? trii_torch_data(w->file, t, &elements) : TRI_OK;
}

static tri_status run(trii_weights *weights, int64_t index, int64_t k, trii_weights_run *run_out)
{
    torch_weights *w = weights->file;
    const tri_torch_tensor *t = tri_torch_at(w->file, w->index_of[index]);

    *run_out = (trii_weights_run){.type_name = t->type_name,
                                  .path = trii_torch_path(w->file),
                                  .bytes = k == 0 ? t->bytes : 0,
                                  .torch = w->file,
                                  .tensor = t};
    return TRI_OK;
}

static void close_file(trii_weights *weights)
{
    torch_weights *w = weights->file;

    tri_torch_close(w->file);
    trii_free(w->index_of);
    trii_free(w->room);
    trii_free(w);
}

static const trii_weights_kind kind = {"torch.save", data, check, run, close_file};

const tri_torch_value *trii_weights_root(const trii_weights *weights)
{
    const torch_weights *w = weights->file;

    return weights->kind == &kind ? tri_torch_root(w->file) : NULL;
}

/* The tensors whose names begin with the prefix. */
static tri_status list(trii_weights *weights)
{
    torch_weights *w = weights->file;
    const char *prefix = weights->prefix;
    size_t skip = strlen(prefix);
    int64_t n = tri_torch_count(w->file);
    tri_status status = trii_weights_room(weights, n);

    w->index_of = trii_alloc((size_t)n, sizeof(*w->index_of), "state sources");
    if (status != TRI_OK || w->index_of == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        const tri_torch_tensor *t = tri_torch_at(w->file, i);
        tri_state_source *source = &weights->sources[weights->n];

        if (strncmp(t->name, prefix, skip) != 0) {
            weights->n_left_out++;
            continue;
        }
        *source = (tri_state_source){.name = t->name + skip, .dtype = t->dtype, .ndim = t->ndim};
        memcpy(source->shape, t->shape, sizeof(t->shape));
        w->index_of[weights->n++] = i;
    }
    return TRI_OK;
}

/* In stage 3 DeepSpeed's model states have the names of parameters, with nothing in them. */
static tri_status refuse_states(const char *path, const trii_weights *weights)
{
    const torch_weights *w = weights->file;
    bool is_empty = false;

    for (int64_t i = 0; i < weights->n && !is_empty; i++)
        is_empty = weights->sources[i].ndim == 1 && weights->sources[i].shape[0] == 0;
    if (!is_empty || tri_torch_item(tri_torch_root(w->file), "param_shapes") == NULL)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                     "%s: of a checkpoint of DeepSpeed in stage 3, whose weights are in several "
                     "files: load its folder",
                     path);
}

tri_status trii_weights_torch(const char *path, trii_weights_scope scope, trii_weights *weights)
{
    torch_weights *w = trii_alloc(1, sizeof(*w), "file of torch.save");
    tri_status status;

    if (w == NULL)
        return TRI_ERR_NO_MEMORY;
    weights->kind = &kind;
    weights->file = w;
    status = tri_torch_open(path, &w->file);
    if (status == TRI_OK && scope == TRII_WEIGHTS_STATE)
        status = trii_weights_torch_prefix(path, tri_torch_root(w->file), weights->prefix,
                                           sizeof(weights->prefix));
    if (status == TRI_OK)
        status = list(weights);
    return status == TRI_OK && scope == TRII_WEIGHTS_STATE ? refuse_states(path, weights) : status;
}
