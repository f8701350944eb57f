/*
 * numbered_run.c - a new folder for every run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/records.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/folder.h"

#define MAX_RUNS 1000000

tri_status tri_run_folder_create(const char *prefix, int64_t *number_out)
{
    tri_status status = trii_need_text(prefix, "tri_run_folder_create", "prefix");
    size_t room;
    char *path;

    if (status == TRI_OK)
        status = trii_need(number_out, "tri_run_folder_create", "number_out");
    if (status != TRI_OK)
        return status;
    room = strlen(prefix) + 24;
    path = trii_alloc(room, 1, "path");
    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_folder_create_above(prefix);
    for (int64_t n = 1; status == TRI_OK; n++) {
        bool made;

        snprintf(path, room, "%s%" PRId64, prefix, n);
        status = trii_folder_create_new(path, 0777, &made);
        if (status == TRI_OK && made) {
            *number_out = n;
            break;
        }
        if (status == TRI_OK && n == MAX_RUNS)
            status =
                TRII_FAIL(TRI_ERR_IO, "%s1 to %d are there all: remove some", prefix, MAX_RUNS);
    }
    trii_free(path);
    return status;
}
