/*
 * saved.c - which checkpoints a folder holds, and which files in it we may remove.
 *
 * A folder of checkpoints belongs to the user: entries whose name is not exactly one that we give,
 * or that have no manifest of this library, are neither read nor removed. An old checkpoint is
 * removed with everything in its folder, including what a user has put there.
 *
 * What has such a name and cannot be looked into counts as a damaged checkpoint: "there is none"
 * would make a program begin again from nothing. It is not removed.
 */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"
#include "os/file.h"
#include "os/folder.h"

#define MAX_FILES 16 /* most files of a checkpoint that are looked at */

/* "step-000000000012", and exactly as we would write it. */
static bool is_step(const char *name, int64_t *step_out)
{
    char again[32], *end;
    long long step;

    if (strncmp(name, "step-", 5) != 0 || !isdigit((unsigned char)name[5]))
        return false;
    step = strtoll(name + 5, &end, 10);
    snprintf(again, sizeof(again), "step-%012lld", step);
    *step_out = step;
    return *end == '\0' && strcmp(again, name) == 0;
}

/* FORMAT: it is no JSON. */
static tri_status load_manifest(const char *dir, json_t **root_out)
{
    char *path = trii_path_join(dir, TRII_MANIFEST_FILE);
    trii_mapping map;
    json_error_t error;
    tri_status status;

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_mapping_open(path, &map);
    trii_free(path);
    if (status != TRI_OK)
        return status;
    *root_out = json_loadb(map.data, map.bytes, 0, &error);
    trii_mapping_close(&map);
    if (*root_out != NULL)
        return TRI_OK;
    return json_error_code(&error) == json_error_out_of_memory ? TRI_ERR_NO_MEMORY : TRI_ERR_FORMAT;
}

/* Whether a manifest is ours, and its sequence, which only a whole one tells. */
static bool read_sequence(json_t *root, int64_t *sequence_out)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    uint64_t sequence;

    if (format == NULL || strcmp(format, "trireme checkpoint") != 0)
        return false;
    if (trii_json_size(json_object_get(root, "sequence"), &sequence) &&
        trii_manifest_is_whole(root) == TRI_OK)
        *sequence_out = (int64_t)sequence;
    return true;
}

static bool is_our_file(const char *name)
{
    static const char *const files[] = {TRII_MODEL_FILE, TRII_OPTIMIZER_FILE, TRII_MANIFEST_FILE};

    for (size_t i = 0; i < TRII_COUNT_OF(files); i++) {
        size_t n = strlen(files[i]);

        if (strcmp(name, files[i]) == 0 ||
            (strncmp(name, files[i], n) == 0 &&
             strncmp(name + n, TRII_WRITER_MARK, strlen(TRII_WRITER_MARK)) == 0))
            return true;
    }
    return false;
}

static bool has_only_our_files(const char *dir)
{
    char **names;
    int n;
    bool ours = true;

    if (!trii_path_is_folder(dir) || trii_folder_list(dir, MAX_FILES, &names, &n) != TRI_OK)
        return false;
    for (int i = 0; i < n; i++)
        ours = ours && is_our_file(names[i]);
    trii_folder_free_names(names, n);
    return ours;
}

static bool has_model(const char *dir)
{
    char *path = trii_path_join(dir, TRII_MODEL_FILE);
    bool has = path != NULL && trii_path_exists(path);

    trii_free(path);
    return has;
}

trii_saved_look trii_saved_look_at(const char *dir)
{
    trii_saved_look seen = {.sequence = -1};
    bool is_folder = false, is_unknown;
    json_t *root = NULL;
    tri_status status = trii_path_leads_to_folder(dir, &is_folder);

    if (status == TRI_OK && !is_folder)
        return seen;
    if (status == TRI_OK)
        status = load_manifest(dir, &root);
    is_unknown = status == TRI_ERR_IO || status == TRI_ERR_NO_MEMORY;
    seen.has_manifest = status != TRI_ERR_NOT_FOUND;
    seen.is_ours = (status == TRI_OK && read_sequence(root, &seen.sequence)) ||
                   (!is_unknown && has_only_our_files(dir));
    json_decref(root);
    seen.counts = seen.is_ours || is_unknown || (status == TRI_ERR_FORMAT && has_model(dir));
    seen.is_ours = seen.is_ours && trii_path_is_folder(dir); /* no link: that is the user's */
    return seen;
}

/* What is left if we are killed meanwhile still has the manifest, so it can be removed later. */
static tri_status remove_all_but_manifest(const char *dir)
{
    char **names;
    int n;
    tri_status status;

    if (!trii_path_is_folder(dir)) /* a link's target is the user's */
        return TRI_OK;
    status = trii_folder_list(dir, INT_MAX, &names, &n);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < n && status == TRI_OK; i++) {
        char *path;

        if (strcmp(names[i], TRII_MANIFEST_FILE) == 0)
            continue;
        path = trii_path_join(dir, names[i]);
        if (path == NULL)
            status = TRI_ERR_NO_MEMORY;
        else
            status = trii_path_is_folder(path) ? trii_folder_remove(path) : trii_path_remove(path);
        trii_free(path);
    }
    trii_folder_free_names(names, n);
    return status;
}

void trii_saved_remove(const char *folder, const char *name)
{
    char *path = trii_path_join(folder, name);
    tri_status status = path != NULL ? remove_all_but_manifest(path) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = trii_folder_remove(path);
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_WARN, "checkpoint", "%s", tri_last_error());
    trii_free(path);
}

static int compare_saved(const void *a, const void *b)
{
    const trii_saved *x = a, *y = b;

    if (x->sequence != y->sequence)
        return x->sequence > y->sequence ? -1 : 1;
    return x->step > y->step ? -1 : x->step < y->step;
}

/* If it is a checkpoint. */
static tri_status add(const char *folder, const char *name, trii_saved *saved, int *n_io)
{
    trii_saved *s = &saved[*n_io];
    tri_status status = TRI_OK;
    trii_saved_look seen;
    char *dir;

    if (!is_step(name, &s->step))
        return TRI_OK;
    dir = trii_path_join(folder, name);
    if (dir == NULL)
        return TRI_ERR_NO_MEMORY;
    seen = trii_saved_look_at(dir);
    if (seen.counts) {
        s->sequence = seen.sequence;
        s->is_ours = seen.is_ours;
        s->name = trii_strdup(name, "name of a checkpoint");
        if (s->name == NULL)
            status = TRI_ERR_NO_MEMORY;
        else
            ++*n_io;
    }
    trii_free(dir);
    return status;
}

tri_status trii_saved_list(const char *folder, trii_saved **saved_out, int *n_out)
{
    trii_saved *saved;
    char **names;
    int n_names, n = 0;
    tri_status status = trii_folder_list(folder, INT_MAX, &names, &n_names);

    if (status != TRI_OK)
        return status;
    saved = trii_alloc((size_t)n_names + 1, sizeof(*saved), "checkpoints of a folder");
    if (saved == NULL)
        status = TRI_ERR_NO_MEMORY;
    for (int i = 0; i < n_names && status == TRI_OK; i++)
        status = add(folder, names[i], saved, &n);
    trii_folder_free_names(names, n_names);
    if (status != TRI_OK) {
        if (saved != NULL)
            trii_saved_free(saved, n);
        return status;
    }
    qsort(saved, (size_t)n, sizeof(*saved), compare_saved);
    *saved_out = saved;
    *n_out = n;
    return TRI_OK;
}

void trii_saved_free(trii_saved *saved, int n)
{
    for (int i = 0; i < n; i++)
        trii_free(saved[i].name);
    trii_free(saved);
}

tri_status trii_saved_sweep(const char *folder)
{
    const size_t prefix = strlen(TRII_TEMPORARY);
    char **names;
    int n;
    tri_status status = trii_folder_list(folder, INT_MAX, &names, &n);

    for (int i = 0; status == TRI_OK && i < n; i++) {
        int64_t step;
        char *dir;

        if (strncmp(names[i], TRII_TEMPORARY, prefix) != 0 || !is_step(names[i] + prefix, &step))
            continue;
        dir = trii_path_join(folder, names[i]);
        if (dir != NULL && trii_saved_look_at(dir).is_ours)
            trii_saved_remove(folder, names[i]);
        trii_free(dir);
    }
    if (status == TRI_OK)
        trii_folder_free_names(names, n);
    return status;
}
