/*
 * image_files.c - see image_files.h.
 */
#include "train/data/image_files.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"

void trii_image_files_fini(trii_image_files *files)
{
    trii_free(files->root);
    trii_texts_fini(&files->classes);
    trii_texts_fini(&files->folders);
    trii_texts_fini(&files->names);
    trii_free(files->first);
    trii_free(files->labels);
    *files = (trii_image_files){0};
}

/* --- files ---------------------------------------------------------------- */

tri_status trii_image_files_add_folder(trii_image_files *files, const char *folder)
{
    tri_status status = trii_texts_add(&files->folders, folder);

    if (status == TRI_OK && files->folders.n > files->n_rooms[0]) {
        int64_t n = files->n_rooms[0] > 0 ? 2 * files->n_rooms[0] : 16;
        int64_t *grown = trii_realloc(files->first, (size_t)n, sizeof(*grown), "image files");

        if (grown == NULL)
            return TRI_ERR_NO_MEMORY;
        files->first = grown;
        files->n_rooms[0] = n;
    }
    if (status == TRI_OK)
        files->first[files->folders.n - 1] = files->names.n;
    return status;
}

tri_status trii_image_files_add(trii_image_files *files, const char *name, int32_t label)
{
    tri_status status = trii_texts_add(&files->names, name);

    if (status == TRI_OK && files->names.n > files->n_rooms[1]) {
        int64_t n = files->n_rooms[1] > 0 ? 2 * files->n_rooms[1] : 1024;
        int32_t *grown = trii_realloc(files->labels, (size_t)n, sizeof(*grown), "image files");

        if (grown == NULL)
            return TRI_ERR_NO_MEMORY;
        files->labels = grown;
        files->n_rooms[1] = n;
    }
    if (status == TRI_OK)
        files->labels[files->names.n - 1] = label;
    return status;
}

tri_status trii_image_files_path(const trii_image_files *files, int64_t i,
                                 char path_out[TRII_PATH_BYTES])
{
    const char *name = trii_texts_get(&files->names, i), *folder;
    int64_t low = 0;
    int n;

    for (int64_t high = files->folders.n; high - low > 1;) {
        int64_t middle = low + (high - low) / 2;

        if (files->first[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    folder = trii_texts_get(&files->folders, low);
    n = snprintf(path_out, TRII_PATH_BYTES, "%s/%s%s%s", files->root, folder,
                 *folder != '\0' ? "/" : "", name);
    if (n < 0 || n >= TRII_PATH_BYTES)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "a path of more than %d bytes: %.60s.../%.100s",
                         TRII_PATH_BYTES - 1, files->root, name);
    return TRI_OK;
}

void trii_path_show(const char *path, char shown_out[TRII_PATH_BYTES])
{
    snprintf(shown_out, TRII_PATH_BYTES, "%s", path);
    for (char *at = shown_out; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    }
    trii_utf8_repair(shown_out);
}
