/*
 * ckpt_kind.c - what a path leads to (ckpt.h).
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "ckpt.h"
#include "os/file.h"
#include "train/checkpoint/format.h"
#include "train/torch/torch_storages.h"

/* The folder of a tag, as tri_engine_save_checkpoint makes it. */
static tri_status tag_folder(const char *folder, char **own_path_out)
{
    char *latest = trii_path_join(folder, "latest"), tag[256];
    void *text = NULL;
    size_t room = 0, bytes = 0;
    bool has = false;
    tri_status status = latest != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && trii_path_is_file(latest) &&
        trii_file_load(latest, sizeof(tag) - 1, &text, &room, &bytes) == TRI_OK) {
        snprintf(tag, sizeof(tag), "%.*s", (int)bytes, (const char *)text);
        tag[strcspn(tag, "\r\n")] = '\0';
        *own_path_out = trii_weights_leads_out(tag) ? NULL : trii_path_join(folder, tag);
        if (*own_path_out != NULL && trii_path_leads_to_folder(*own_path_out, &has) == TRI_OK &&
            has)
            status = trii_folder_has_checkpoints(*own_path_out, &has);
        if (!has || status != TRI_OK) {
            trii_free(*own_path_out);
            *own_path_out = NULL;
        }
    }
    trii_free(text);
    trii_free(latest);
    return status;
}

tri_status ckpt_place_of(const char *path, ckpt_place *place_out)
{
    bool is_folder = false;
    tri_status status = trii_path_leads_to_folder(path, &is_folder);

    *place_out = (ckpt_place){.own_path = NULL};
    if (status == TRI_OK && !is_folder && trii_path_is_no_file(path))
        status = TRII_FAIL(TRI_ERR_IO,
                           "%s: a pipe or a device, and it is read at several places: write a file "
                           "of it first",
                           path);
    if (status == TRI_OK && is_folder)
        status = trii_folder_has_checkpoints(path, &place_out->has_checkpoints);
    if (status == TRI_OK && is_folder && !place_out->has_checkpoints) {
        status = tag_folder(path, &place_out->own_path);
        place_out->has_checkpoints = place_out->own_path != NULL;
    }
    if (status == TRI_OK && place_out->own_path == NULL) {
        place_out->own_path = trii_strdup(path, "path");
        status = place_out->own_path != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    return status;
}

static bool is_legacy(const char *path)
{
    trii_mapping map = {.data = NULL};
    bool legacy = trii_mapping_open(path, &map) == TRI_OK && trii_torch_is_file(&map) &&
                  trii_torch_is_legacy(&map);

    trii_mapping_close(&map);
    return legacy;
}

ckpt_kind ckpt_kind_of(trii_tensor_stream *stream)
{
    static const struct {
        const char *name;
        ckpt_kind kind;
    } rows[] = {
        {"safetensors", {"a file of safetensors", false}},
        {"torch.save", {"a file of torch.save (ZIP)", true}},
        {"index", {"files with an index, as hubs have them", true}},
        {"torch.distributed.checkpoint", {"a folder of torch.distributed.checkpoint", true}},
        {"DeepSpeed", {"weights in a folder of DeepSpeed", true}},
    };
    trii_weights *weights = &stream->weights;
    trii_weights_run run = {.path = NULL};
    ckpt_kind kind = {"tensors", true};

    for (size_t i = 0; i < TRII_COUNT_OF(rows); i++)
        if (strcmp(rows[i].name, weights->kind->name) == 0)
            kind = rows[i].kind;
    if (weights->n == 0 || weights->kind->run(weights, 0, 0, &run) != TRI_OK || run.path == NULL)
        return kind;
    if (run.torch == NULL)
        kind.has_checksums = false;
    if (run.base == 0 && is_legacy(run.path))
        kind = (ckpt_kind){strcmp(weights->kind->name, "torch.save") == 0
                               ? "a file of torch.save, as torch before 1.6 writes it"
                               : kind.text,
                           false};
    return kind;
}
