/*
 * saved.c - which checkpoints a folder holds, and which files in it we may remove.
 *
 * A folder of checkpoints belongs to the user: entries whose name is not exactly one that we give,
 * or that have no manifest of this library, are neither read nor removed. An old checkpoint is
 * removed with everything in its folder, including what a user has put there.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "checkpoint/format.h"
#include "checkpoint/json.h"
#include "os/file.h"
#include "os/folder.h"

#define MAX_NAMES 1048576 /* most entries of a folder that are looked at */
#define MAX_FILES 16      /* most files of a checkpoint that are looked at */

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

/* What the manifest in DIR says: whether it is ours, and its sequence. */
static bool read_sequence(const char *dir, int64_t *sequence_out)
{
    char *path = trii_path_join(dir, TRII_MANIFEST_FILE);
    json_t *root = NULL;
    const char *format;
    trii_mapping map;
    uint64_t sequence;
    bool ours;

    *sequence_out = -1;
    if (path != NULL && trii_mapping_open(path, &map) == TRI_OK) {
        root = json_loadb(map.data, map.bytes, 0, NULL);
        trii_mapping_close(&map);
    }
    trii_free(path);
    format = json_string_value(json_object_get(root, "format"));
    ours = format != NULL && strcmp(format, "trireme checkpoint") == 0;
    if (ours && trii_json_size(json_object_get(root, "sequence"), &sequence))
        *sequence_out = (int64_t)sequence;
    json_decref(root);
    return ours;
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

bool trii_saved_is_ours(const char *dir)
{
    int64_t sequence;

    return trii_path_is_folder(dir) && (read_sequence(dir, &sequence) || has_only_our_files(dir));
}

void trii_saved_remove(const char *folder, const char *name)
{
    char *path = trii_path_join(folder, name);

    if (path == NULL || trii_folder_remove(path) != TRI_OK)
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
    char *dir;

    if (!is_step(name, &s->step))
        return TRI_OK;
    dir = trii_path_join(folder, name);
    if (dir == NULL)
        return TRI_ERR_NO_MEMORY;
    if (trii_path_is_folder(dir) && (read_sequence(dir, &s->sequence) || has_only_our_files(dir))) {
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
    tri_status status = trii_folder_list(folder, MAX_NAMES, &names, &n_names);

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
    tri_status status = trii_folder_list(folder, MAX_NAMES, &names, &n);

    for (int i = 0; status == TRI_OK && i < n; i++) {
        int64_t step;
        char *dir;

        if (strncmp(names[i], TRII_TEMPORARY, prefix) != 0 || !is_step(names[i] + prefix, &step))
            continue;
        dir = trii_path_join(folder, names[i]);
        if (dir != NULL && trii_saved_is_ours(dir))
            trii_saved_remove(folder, names[i]);
        trii_free(dir);
    }
    if (status == TRI_OK)
        trii_folder_free_names(names, n);
    return status;
}
