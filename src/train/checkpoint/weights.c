/*
 * weights.c - see weights.h: which kind of file or folder it is. Called by checkpoint.c.
 */
#include "train/checkpoint/weights.h"

#include <string.h>

#include "base/err.h"
#include "train/checkpoint/format.h"
#include "train/torch/torch_storages.h"

void trii_weights_close(trii_weights *weights)
{
    if (weights->kind != NULL)
        weights->kind->close(weights);
    trii_free(weights->sources);
    *weights = (trii_weights){.kind = NULL};
}

char *trii_path_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash != NULL ? (size_t)(slash + 1 - path) : 0, bytes = strlen(name) + 1;
    char *whole = trii_alloc(folder + bytes, 1, "path");

    if (whole != NULL) {
        memcpy(whole, path, folder);
        memcpy(whole + folder, name, bytes);
    }
    return whole;
}

/* --- files ---------------------------------------------------------------- */

typedef enum content { SAFETENSORS, TORCH, INDEX } content;

static tri_status look(const char *path, content *content_out)
{
    trii_mapping map = {.data = NULL};
    tri_status status = trii_mapping_open(path, &map);

    if (status != TRI_OK)
        return status;
    *content_out = trii_torch_is_file(&map)      ? TORCH
                   : trii_weights_is_index(&map) ? INDEX
                                                 : SAFETENSORS;
    trii_mapping_close(&map);
    return TRI_OK;
}

tri_status trii_weights_open_file(const char *path, trii_weights_scope scope,
                                  trii_weights *weights_out)
{
    content kind;
    tri_status status = look(path, &kind);

    *weights_out = (trii_weights){.kind = NULL};
    if (status != TRI_OK)
        return status;
    return kind == TORCH ? trii_weights_torch(path, scope, weights_out)
                         : trii_weights_safetensors(path, weights_out);
}

/* --- folders -------------------------------------------------------------- */

/* What a folder has that says its kind, in the order in which they count: a hub may offer the same
 * model in several. */
static const struct mark {
    const char *name;
    tri_status (*open)(const char *path, trii_weights_scope scope, trii_weights *weights_out);
} marks[] = {
    {"model.safetensors", trii_weights_open},
    {"model.safetensors.index.json", trii_weights_open},
    {"pytorch_model.bin", trii_weights_open},
    {"pytorch_model.bin.index.json", trii_weights_open},
    {".metadata", trii_weights_dcp},
    {"latest", trii_weights_deepspeed},
    {"mp_rank_00_model_states.pt", trii_weights_deepspeed},
    {"zero_pp_rank_0_mp_rank_00_model_states.pt", trii_weights_deepspeed},
};

static tri_status open_folder(const char *path, trii_weights_scope scope, trii_weights *weights_out)
{
    for (size_t i = 0; i < TRII_COUNT_OF(marks); i++) {
        char *file = trii_path_join(path, marks[i].name);
        tri_status status;

        if (file == NULL)
            return TRI_ERR_NO_MEMORY;
        if (trii_path_is_file(file)) {
            status = marks[i].open(file, scope, weights_out);
            trii_free(file);
            return status;
        }
        trii_free(file);
    }
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "%s: a folder without weights: none of model.safetensors, pytorch_model.bin, "
                     "their .index.json, .metadata, latest is there",
                     path);
}

tri_status trii_weights_open(const char *path, trii_weights_scope scope, trii_weights *weights_out)
{
    bool is_folder = false;
    content kind;
    tri_status status = trii_path_leads_to_folder(path, &is_folder);

    *weights_out = (trii_weights){.kind = NULL};
    if (status != TRI_OK)
        return status;
    if (is_folder)
        return open_folder(path, scope, weights_out);
    status = look(path, &kind);
    if (status != TRI_OK)
        return status;
    return kind == INDEX ? trii_weights_index(path, scope, weights_out)
                         : trii_weights_open_file(path, scope, weights_out);
}

tri_status trii_weights_check(trii_weights *weights, const char *prefix)
{
    size_t skip = prefix != NULL ? strlen(prefix) : 0;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < weights->n && weights->kind->check != NULL && status == TRI_OK; i++)
        if (skip == 0 || strncmp(weights->sources[i].name, prefix, skip) == 0)
            status = weights->kind->check(weights, i);
    return status;
}
