/*
 * commit.c - writes a checkpoint so that it appears whole or not at all (format.h).
 *
 * Parts and manifest are written and synced in a folder of a temporary name; one rename makes it
 * a checkpoint. What a killed writer left is removed by the next one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "checkpoint/checksum.h"
#include "checkpoint/format.h"
#include "checkpoint/json.h"
#include "os/file.h"
#include "os/folder.h"

#define TEMPORARY ".tmp-"

static tri_status no_memory(const char *folder)
{
    return TRII_FAIL(TRI_ERR_NO_MEMORY, "%s: manifest: out of memory", folder);
}

static json_t *hex(uint64_t value)
{
    char text[17];

    snprintf(text, sizeof(text), "%016" PRIx64, value);
    return json_string(text);
}

static tri_status write_part(const char *dir, const trii_part *part, json_t *list)
{
    char *path = trii_path_join(dir, part->file);
    uint64_t bytes = 0, sum = 0;
    json_t *object;
    tri_status status;

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_safetensors_write(path, part->entries, part->n, &(tri_metadata){"format", "pt"},
                                    1, &bytes, &sum);
    trii_free(path);
    if (status != TRI_OK)
        return status;
    object = json_object();
    if (!trii_json_put(object, "file", json_string(part->file)) ||
        !trii_json_put(object, "bytes", json_integer((json_int_t)bytes)) ||
        !trii_json_put(object, "xxh3", hex(sum)) || json_array_append(list, object) != 0) {
        json_decref(object);
        return no_memory(dir);
    }
    json_decref(object);
    return TRI_OK;
}

static tri_status fill_manifest(const char *dir, const tri_checkpoint_info *info,
                                int64_t step_number, json_t *root)
{
    json_t *meta = json_object();
    char seed[24];

    snprintf(seed, sizeof(seed), "%" PRIu64, info->seed);
    if (!trii_json_put(root, "format", json_string("trireme checkpoint")) ||
        !trii_json_put(root, "version", json_integer(1)) ||
        !trii_json_put(root, "step", json_integer(info->step)) ||
        !trii_json_put(root, "epoch", json_integer(info->epoch)) ||
        !trii_json_put(root, "seed", json_string(seed)) ||
        !trii_json_put(root, "step_number", json_integer(step_number)) ||
        !trii_json_put(root, "metadata", meta))
        return no_memory(dir);
    for (int i = 0; i < info->n_meta; i++) {
        if (!trii_json_put(meta, info->meta[i].key, json_string(info->meta[i].value)))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "metadata %s: no UTF-8, or memory is out",
                             info->meta[i].key);
    }
    return TRI_OK;
}

/* Appends the checksum and writes the file. */
static tri_status write_manifest(const char *dir, json_t *root)
{
    char *path = trii_path_join(dir, "manifest.json");
    char *text = trii_json_text(root);
    tri_status status = TRI_OK;
    trii_writer writer;

    if (path == NULL || text == NULL ||
        !trii_json_put(root, "xxh3", hex(trii_checksum_of(text, strlen(text)))))
        status = no_memory(dir);
    trii_free(text);
    text = status == TRI_OK ? trii_json_text(root) : NULL;
    if (status == TRI_OK && text == NULL)
        status = no_memory(dir);
    if (status == TRI_OK)
        status = trii_writer_open(path, &writer);
    if (status == TRI_OK) {
        status = trii_writer_put(&writer, text, strlen(text));
        if (status == TRI_OK)
            status = trii_writer_put(&writer, "\n", 1);
        if (status == TRI_OK)
            status = trii_writer_commit(&writer);
        else
            trii_writer_abort(&writer);
    }
    trii_free(text);
    trii_free(path);
    return status;
}

static tri_status fill_folder(const char *dir, const tri_checkpoint_info *info, int64_t step_number,
                              const trii_part *parts, int n_parts)
{
    json_t *root = json_object(), *list = json_array();
    tri_status status = TRI_OK;

    if (root == NULL || list == NULL)
        status = no_memory(dir);
    for (int i = 0; i < n_parts && status == TRI_OK; i++)
        status = write_part(dir, &parts[i], list);
    if (status == TRI_OK)
        status = fill_manifest(dir, info, step_number, root);
    if (status == TRI_OK && json_object_set(root, "parts", list) != 0)
        status = no_memory(dir);
    if (status == TRI_OK)
        status = write_manifest(dir, root);
    json_decref(list);
    json_decref(root);
    return status;
}

static void remove_logged(const char *folder, const char *name)
{
    char *path = trii_path_join(folder, name);

    if (path == NULL || trii_folder_remove(path) != TRI_OK)
        TRII_LOG(TRII_LOG_WARN, "checkpoint", "%s", tri_last_error());
    trii_free(path);
}

/* Removes what killed writers left (before a checkpoint is made) or the oldest checkpoints beyond
 * `keep` (after): never the one just made, even if another run left later steps there. */
static tri_status sweep(const char *folder, bool leftovers, int keep, const char *made)
{
    char **names = NULL;
    int n = 0, kept = 1;
    tri_status status = trii_folder_list(folder, TRII_CHECKPOINT_MAX_NAMES, &names, &n);

    if (status != TRI_OK)
        return status;
    for (int i = n - 1; i >= 0; i--) {
        if (leftovers && strncmp(names[i], TEMPORARY, strlen(TEMPORARY)) == 0)
            remove_logged(folder, names[i]);
        else if (!leftovers && strncmp(names[i], "step-", 5) == 0 && strcmp(names[i], made) != 0 &&
                 ++kept > keep)
            remove_logged(folder, names[i]);
    }
    trii_folder_free_names(names, n);
    return TRI_OK;
}

tri_status trii_checkpoint_commit(const char *folder, const tri_checkpoint_info *info,
                                  int64_t step_number, const trii_part *parts, int n_parts,
                                  int keep)
{
    char name[64];
    char *temporary = NULL, *final = NULL;
    tri_status status;

    if (info->step < 0 || info->epoch < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "checkpoint of step %" PRId64 ", epoch %" PRId64,
                         info->step, info->epoch);
    status = trii_dir_create_above(folder);
    if (status == TRI_OK)
        status = trii_dir_create(folder);
    if (status == TRI_OK)
        status = sweep(folder, true, 0, NULL);
    if (status != TRI_OK)
        return status;
    snprintf(name, sizeof(name), TEMPORARY "step-%012" PRId64, info->step);
    temporary = trii_path_join(folder, name);
    final = trii_path_join(folder, name + strlen(TEMPORARY));
    if (temporary == NULL || final == NULL) {
        status = TRI_ERR_NO_MEMORY;
        goto end;
    }
    status = trii_dir_create(temporary);
    if (status == TRI_OK)
        status = fill_folder(temporary, info, step_number, parts, n_parts);
    if (status == TRI_OK)
        status = trii_dir_sync(temporary);
    if (status == TRI_OK)
        status = trii_path_rename(temporary, final);
    if (status == TRI_OK)
        status = trii_dir_sync(folder);
    if (status != TRI_OK) {
        char why[TRII_ERR_BYTES];

        snprintf(why, sizeof(why), "%s", tri_last_error());
        remove_logged(folder, name);
        trii_err_set("checkpoint %s: %s", final, why);
        goto end;
    }
    status = sweep(folder, false, keep, name + strlen(TEMPORARY));
    if (status == TRI_OK)
        remove_logged(folder, name); /* what had this step's name before, if anything */
end:
    trii_free(final);
    trii_free(temporary);
    return status;
}
