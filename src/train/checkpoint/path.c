/*
 * path.c - paths of files in a folder.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "train/checkpoint/format.h"

char *trii_path_join(const char *a, const char *b)
{
    size_t room = strlen(a) + strlen(b) + 2;
    char *path = trii_alloc(room, 1, "path");

    if (path != NULL)
        snprintf(path, room, "%s/%s", a, b);
    return path;
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
