/*
 * weights_index.c - the tensors of a folder whose files an index lists, as hubs publish large
 * models: {"metadata": {..}, "weight_map": {"TENSOR": "FILE", ..}}, the files beside it.
 */
#include <string.h>

#include "base/err.h"
#include "os/file.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"
#include "train/checkpoint/weights.h"

typedef struct listed_file {
    char *name; /* as the index has it */
    trii_weights weights;
} listed_file;

typedef struct found {
    int64_t file, index; /* in that file */
} found;

typedef struct index_weights {
    listed_file *files; /* [n_files] */
    int64_t n_files;
    found *found; /* [n]: of each source */
} index_weights;

static tri_status data(trii_weights *weights, int64_t index, const void **data_out)
{
    index_weights *w = weights->file;
    trii_weights *file = &w->files[w->found[index].file].weights;

    return file->kind->data(file, w->found[index].index, data_out);
}

static tri_status check(trii_weights *weights, int64_t index)
{
    index_weights *w = weights->file;
    trii_weights *file = &w->files[w->found[index].file].weights;

    return file->kind->check != NULL ? file->kind->check(file, w->found[index].index) : TRI_OK;
}

static tri_status run(trii_weights *weights, int64_t index, int64_t k, trii_weights_run *run_out)
{
    index_weights *w = weights->file;
    trii_weights *file = &w->files[w->found[index].file].weights;

    return file->kind->run(file, w->found[index].index, k, run_out);
}

static void close_files(trii_weights *weights)
{
    index_weights *w = weights->file;

    for (int64_t i = 0; i < w->n_files; i++) {
        trii_weights_close(&w->files[i].weights);
        trii_free(w->files[i].name);
    }
    trii_free(w->files);
    trii_free(w->found);
    trii_free(w);
}

static const trii_weights_kind kind = {"index", data, check, run, close_files};

bool trii_weights_leads_out(const char *name)
{
    if (name[0] == '/' || name[0] == '\0')
        return true;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

static tri_status open_file(const char *path, const char *name, trii_weights_scope scope,
                            listed_file *file)
{
    char *whole = trii_path_beside(path, name);
    tri_status status;

    file->name = trii_strdup(name, "file of an index");
    status = whole != NULL && file->name != NULL
                 ? trii_weights_open_file(whole, scope, &file->weights)
                 : TRI_ERR_NO_MEMORY;
    trii_free(whole);
    if (status == TRI_ERR_NOT_FOUND) /* it is there by the index */
        return TRII_FAIL_CTX(TRI_ERR_FORMAT, "%s: not all files that it lists are there", path);
    return status == TRI_OK ? status : TRII_FAIL_CTX(status, "%s", path);
}

/* Opens every file that the map names, once. */
static tri_status open_files(const char *path, json_t *map, trii_weights_scope scope,
                             index_weights *w)
{
    const char *tensor;
    json_t *value;
    tri_status status = TRI_OK;

    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        int64_t i = 0;

        if (name == NULL)
            return TRII_FAIL(TRI_ERR_FORMAT, "%s: weight_map: tensor %s: not the name of a file",
                             path, tensor);
        while (i < w->n_files && strcmp(w->files[i].name, name) != 0)
            i++;
        if (i < w->n_files)
            continue;
        if (trii_weights_leads_out(name))
            return TRII_FAIL(TRI_ERR_FORMAT,
                             "%s: weight_map: tensor %s: file \"%s\" is not in the index's folder",
                             path, tensor, name);
        status = open_file(path, name, scope, &w->files[w->n_files++]);
        if (status != TRI_OK)
            break;
    }
    return status;
}

/* Takes what it finds out of the map. */
static tri_status find_tensors(const char *path, json_t *map, trii_weights *weights)
{
    index_weights *w = weights->file;
    const char *tensor;
    json_t *value;

    for (int64_t i = 0; i < w->n_files; i++) {
        const trii_weights *file = &w->files[i].weights;

        for (int64_t k = 0; k < file->n; k++) {
            const char *name = json_string_value(json_object_get(map, file->sources[k].name));

            if (name == NULL || strcmp(name, w->files[i].name) != 0) {
                weights->n_left_out++;
                continue;
            }
            w->found[weights->n] = (found){i, k};
            weights->sources[weights->n++] = file->sources[k];
            json_object_del(map, file->sources[k].name);
        }
    }
    json_object_foreach(map, tensor, value)
    {
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: tensor %s is not in file %s, where weight_map has it",
                         path, tensor, json_string_value(value));
    }
    return TRI_OK;
}

static tri_status read_map(const char *path, json_t *map, trii_weights_scope scope,
                           trii_weights *weights)
{
    index_weights *w = weights->file;
    size_t n = json_object_size(map);
    tri_status status;

    if (!json_is_object(map))
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: JSON, but no index of weights: it has no object \"weight_map\"",
                         path);
    w->files = trii_alloc(n, sizeof(*w->files), "files of an index");
    w->found = trii_alloc(n, sizeof(*w->found), "tensors of an index");
    if (w->files == NULL || w->found == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_weights_room(weights, (int64_t)n);
    if (status == TRI_OK)
        status = open_files(path, map, scope, w);
    return status == TRI_OK ? find_tensors(path, map, weights) : status;
}

bool trii_weights_is_index(const trii_mapping *map)
{
    const char *text = map->data;
    uint64_t length = 0;
    size_t at = 0;

    for (size_t i = 0; i < 8 && i < map->bytes; i++)
        length |= (uint64_t)(unsigned char)text[i] << 8 * i;
    while (at < map->bytes && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0')
        at++;
    /* A safetensors file begins with a length, any byte of which may look like a brace. */
    return at < map->bytes && text[at] == '{' && length > map->bytes;
}

tri_status trii_weights_index(const char *path, trii_weights_scope scope, trii_weights *weights)
{
    index_weights *w = trii_alloc(1, sizeof(*w), "index of weights");
    trii_mapping map = {.data = NULL};
    json_t *root = NULL;
    json_error_t error;
    tri_status status;

    if (w == NULL)
        return TRI_ERR_NO_MEMORY;
    weights->kind = &kind;
    weights->file = w;
    status = trii_mapping_open(path, &map);
    if (status != TRI_OK)
        return status;
    root = json_loadb(map.data, map.bytes, JSON_REJECT_DUPLICATES, &error);
    trii_mapping_close(&map);
    if (root == NULL)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s, byte %d: %s", path, error.position, error.text);
    status = read_map(path, json_object_get(root, "weight_map"), scope, weights);
    json_decref(root);
    return status;
}
