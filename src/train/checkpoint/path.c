/*
 * path.c - joins a folder's path and a name.
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
