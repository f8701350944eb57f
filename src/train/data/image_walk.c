/*
 * image_walk.c - the images of one class: the names below its folder, at any depth. Links are
 * followed, unless they lead back to a folder that they lie in.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/data/image_files.h"
#include "os/entries.h"

#define MAX_DEPTH 64

typedef struct place {
    trii_folder_id id;
    int parent; /* -1: none */
    int depth;
    int64_t first; /* its names begin here */
} place;

typedef struct walk {
    trii_texts folders; /* below the root, in the order in which they were found */
    trii_texts names;   /* of all folders, one after the other */
    place *places;      /* [folders.n] */
    int n_rooms;
    int current;
    char path[TRII_PATH_BYTES];
} walk;

/* Whether it is this suffix, in small letters, in any case. */
static bool is_suffix(const char *dot, const char *suffix, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++) {
        char letter = dot[k] >= 'A' && dot[k] <= 'Z' ? (char)(dot[k] - 'A' + 'a') : dot[k];

        if (letter != suffix[k])
            return false;
    }
    return dot[bytes] == '\0';
}

bool trii_is_image_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    for (const char *at = TRII_IMAGE_SUFFIXES; dot != NULL && *at != '\0';) {
        size_t bytes = strcspn(at, " ");

        if (is_suffix(dot, at, bytes))
            return true;
        at += bytes;
        at += *at == ' ';
    }
    return false;
}

static tri_status too_long(const char *folder, const char *name)
{
    return TRII_FAIL(TRI_ERR_UNSUPPORTED, "a path of more than %d bytes: %.60s.../%.100s",
                     TRII_PATH_BYTES - 1, folder, name);
}

static tri_status add_place(walk *w, const char *folder, int parent)
{
    tri_status status = trii_texts_add(&w->folders, folder);

    if (status == TRI_OK && w->folders.n > w->n_rooms) {
        int n = w->n_rooms > 0 ? 2 * w->n_rooms : 16;
        place *grown = trii_realloc(w->places, (size_t)n, sizeof(*grown), "folders of images");

        if (grown == NULL)
            return TRI_ERR_NO_MEMORY;
        w->places = grown;
        w->n_rooms = n;
    }
    if (status == TRI_OK)
        w->places[w->folders.n - 1] =
            (place){.parent = parent, .depth = parent < 0 ? 0 : w->places[parent].depth + 1};
    return status;
}

static tri_status visit(void *arg, const char *name, bool is_folder)
{
    walk *w = arg;
    const char *folder = trii_texts_get(&w->folders, w->current);
    char below[TRII_PATH_BYTES];

    if (!is_folder)
        return trii_is_image_name(name) ? trii_texts_add(&w->names, name) : TRI_OK;
    if ((size_t)snprintf(below, sizeof(below), "%s/%s", folder, name) >= sizeof(below))
        return too_long(folder, name);
    return add_place(w, below, w->current);
}

/* The folder that is visited, and was not above itself. */
static tri_status check_circle(const walk *w, const char *path)
{
    const place *here = &w->places[w->current];
    char shown[TRII_PATH_BYTES];

    if (here->depth > MAX_DEPTH) {
        trii_path_show(path, shown);
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: more than %d folders in each other", shown,
                         MAX_DEPTH);
    }
    for (int p = here->parent; p >= 0; p = w->places[p].parent) {
        if (w->places[p].id.device != here->id.device || w->places[p].id.inode != here->id.inode)
            continue;
        trii_path_show(path, shown);
        return TRII_FAIL(
            TRI_ERR_FORMAT,
            "%s is a link to a folder that it lies in: its images would come again and "
            "again, so remove the link",
            shown);
    }
    return TRI_OK;
}

static tri_status visit_all(walk *w, const char *root)
{
    tri_status status = TRI_OK;

    for (w->current = 0; w->current < w->folders.n && status == TRI_OK; w->current++) {
        const char *folder = trii_texts_get(&w->folders, w->current);
        trii_folder_id id = {0};
        int64_t first = w->names.n;

        if ((size_t)snprintf(w->path, sizeof(w->path), "%s/%s", root, folder) >= sizeof(w->path))
            return too_long(root, folder);
        status = trii_folder_visit(w->path, visit, w, &id);
        w->places[w->current].id = id;
        w->places[w->current].first = first;
        if (status == TRI_OK)
            status = check_circle(w, w->path);
    }
    return status;
}

/* In the order in which sorted(os.walk()) has them: by the whole path of the folder, then by name.
 */
static tri_status add_files(trii_image_files *files, int32_t label, walk *w)
{
    trii_texts sorted = {0};
    tri_status status = TRI_OK;

    for (int64_t k = 0; k < w->folders.n && status == TRI_OK; k++)
        status = trii_texts_add(&sorted, trii_texts_get(&w->folders, k));
    if (status == TRI_OK)
        trii_texts_sort(&sorted, 0, sorted.n);
    for (int64_t s = 0; s < sorted.n && status == TRI_OK; s++) {
        /* texts are added in order, so where one begins tells which one it is */
        const uint32_t *found = w->folders.at;
        int64_t k = 0, end;

        for (int64_t high = w->folders.n; high - k > 1;) {
            int64_t middle = k + (high - k) / 2;

            if (found[middle] <= sorted.at[s])
                k = middle;
            else
                high = middle;
        }
        end = k + 1 < w->folders.n ? w->places[k + 1].first : w->names.n;
        if (end == w->places[k].first)
            continue;
        trii_texts_sort(&w->names, w->places[k].first, end);
        status = trii_image_files_add_folder(files, trii_texts_get(&w->folders, k));
        for (int64_t i = w->places[k].first; i < end && status == TRI_OK; i++)
            status = trii_image_files_add(files, trii_texts_get(&w->names, i), label);
    }
    trii_texts_fini(&sorted);
    return status;
}

tri_status trii_image_files_walk(trii_image_files *files, int32_t label)
{
    walk *w = trii_alloc(1, sizeof(*w), "folders of images");
    tri_status status = TRI_ERR_NO_MEMORY;

    if (w != NULL)
        status = add_place(w, trii_texts_get(&files->classes, label), -1);
    if (status == TRI_OK)
        status = visit_all(w, files->root);
    if (status == TRI_OK)
        status = add_files(files, label, w);
    if (w != NULL) {
        trii_texts_fini(&w->folders);
        trii_texts_fini(&w->names);
        trii_free(w->places);
    }
    trii_free(w);
    return status;
}
