/*
 * weights_torch.c - the tensors of a file of torch.save, as weights.h lists them.
 *
 * Such a file may hold a state dictionary or, as most training programs write it, a dictionary that
 * has one under some key beside counters and the optimizer's state.
 */
#include <stdio.h>
#include <string.h>

#include <trireme/torch_file.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/checkpoint/weights.h"
#include "train/torch/strided.h"
#include "train/torch/torch_storages.h"

/* PyTorch's examples and Lightning, others, DeepSpeed. */
const char *const trii_weights_keys[] = {"state_dict", "model_state_dict", "model", "module",
                                         "net",        "weights",          NULL};

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
    const void *elements;

    return trii_torch_data(w->file, tri_torch_at(w->file, w->index_of[index]), &elements);
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

static bool holds_tensors(const tri_torch_value *dict)
{
    for (int64_t i = 0; dict != NULL && dict->kind == TRI_TORCH_DICT && i + 1 < dict->n; i += 2)
        if (dict->items[i + 1]->kind == TRI_TORCH_TENSOR)
            return true;
    return false;
}

tri_status trii_weights_torch_prefix(const char *path, const tri_torch_value *root, char *prefix,
                                     size_t bytes)
{
    char names[160] = "";
    size_t used = 0;

    prefix[0] = '\0';
    for (int k = 0; trii_weights_keys[k] != NULL; k++) {
        const tri_torch_value *state = tri_torch_item(root, trii_weights_keys[k]);

        if (holds_tensors(state)) {
            snprintf(prefix, bytes, "%s.", trii_weights_keys[k]);
            return TRI_OK;
        }
        if (state != NULL && state->kind == TRI_TORCH_OBJECT)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s: under \"%s\" it has an object of class %.80s, whose code is in a "
                             "program: save its state_dict() instead",
                             path, trii_weights_keys[k], state->text);
    }
    if (holds_tensors(root) || root->kind != TRI_TORCH_DICT)
        return TRI_OK;
    for (int64_t i = 0; i + 1 < root->n && used < sizeof(names); i += 2)
        if (root->items[i]->kind == TRI_TORCH_TEXT)
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     used > 0 ? ", " : "", root->items[i]->text);
    if (used == 0 || root->n == 0)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "%s: it has no state dictionary under a usual key: its keys are %s; "
                     "tri_load_options.prefix chooses what is below one, \"KEY.\"",
                     path, names);
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
    return status == TRI_OK ? list(weights) : status;
}
