/*
 * weights.c - see weights.h: which kind of file or folder it is. Called by checkpoint.c.
 */
#include "train/checkpoint/weights.h"

#include <string.h>

#include "base/err.h"
#include "train/checkpoint/format.h"

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

/* Adds whether a folder has checkpoints of checkpoint.h. */
static tri_status look_for_checkpoints(const char *folder, bool *has_inout)
{
    trii_saved *saved = NULL;
    int n = 0;
    tri_status status = trii_saved_list(folder, &saved, &n);

    if (status != TRI_OK)
        return status == TRI_ERR_NO_MEMORY ? status : TRI_OK;
    *has_inout = *has_inout || n > 0;
    trii_saved_free(saved, n);
    return TRI_OK;
}

/* The same of the folder that `latest` names. */
static tri_status look_at_latest(const char *folder, bool *has_inout)
{
    char *latest = trii_path_join(folder, "latest"), *tag = NULL, name[256] = "";
    trii_mapping map = {.data = NULL};
    tri_status status = latest != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (latest != NULL && trii_path_is_file(latest) && trii_mapping_open(latest, &map) == TRI_OK &&
        map.bytes < sizeof(name)) {
        memcpy(name, map.data, map.bytes);
        name[strcspn(name, "\r\n")] = '\0';
    }
    trii_mapping_close(&map);
    trii_free(latest);
    if (status != TRI_OK || trii_weights_leads_out(name))
        return status;
    tag = trii_path_join(folder, name);
    status = tag != NULL ? look_for_checkpoints(tag, has_inout) : TRI_ERR_NO_MEMORY;
    trii_free(tag);
    return status;
}

/* A model that is whole in one is read as any file is. */
static tri_status refuse_checkpoints(const char *path)
{
    char *pieces = trii_path_join(path, "pieces.rank0.safetensors");
    bool has = pieces != NULL && trii_path_is_file(pieces);
    tri_status status = pieces != NULL ? look_for_checkpoints(path, &has) : TRI_ERR_NO_MEMORY;

    trii_free(pieces);
    if (status == TRI_OK)
        status = look_at_latest(path, &has);
    if (status != TRI_OK || !has)
        return status;
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "%s: checkpoints of Trireme: tri_engine_load_checkpoint and "
                     "tri_checkpoint_restore read them, and `trireme ckpt convert` makes one file "
                     "of the model's weights",
                     path);
}

static tri_status open_folder(const char *path, trii_weights_scope scope, trii_weights *weights_out)
{
    tri_status refused = refuse_checkpoints(path);

    if (refused != TRI_OK)
        return refused;
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

static tri_status is_index(const char *path, bool *is_out)
{
    trii_mapping map = {.data = NULL};
    tri_status status = trii_mapping_open(path, &map);

    if (status == TRI_OK)
        *is_out = trii_weights_is_index(&map);
    trii_mapping_close(&map);
    return status;
}

tri_status trii_weights_open(const char *path, trii_weights_scope scope, trii_weights *weights_out)
{
    bool is_folder = false, lists_files = false;
    tri_status status = trii_path_leads_to_folder(path, &is_folder);

    *weights_out = (trii_weights){.kind = NULL};
    if (status == TRI_OK && is_folder)
        return open_folder(path, scope, weights_out);
    if (status == TRI_OK)
        status = is_index(path, &lists_files);
    if (status != TRI_OK)
        return status;
    return lists_files ? trii_weights_index(path, scope, weights_out)
                       : trii_weights_open_file(path, scope, weights_out);
}
