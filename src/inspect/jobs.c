/*
 * jobs.c - see jobs.h.
 */
#include "inspect/jobs.h"

#include <stdio.h>
#include <string.h>

#include "os/folder.h"

enum { MAX_JOBS = 1024 };

void trii_jobs_folder(char *path_out, size_t bytes)
{
    const char *base = getenv("XDG_RUNTIME_DIR");

    if (base == NULL || *base != '/')
        base = "/tmp";
    snprintf(path_out, bytes, "%s/trireme-%d", base, trii_user_id());
}

bool trii_jobs_has_records(const char *folder)
{
    char **names = NULL;
    int n = 0;
    bool found = false;

    if (trii_folder_list(folder, MAX_JOBS, &names, &n) != TRI_OK)
        return false;
    for (int i = 0; i < n && !found; i++)
        found = strncmp(names[i], "rank-", 5) == 0;
    trii_folder_free_names(names, n);
    return found;
}

bool trii_jobs_newest(char *path_out, size_t bytes)
{
    char parent[256];
    char **names = NULL;
    int n = 0;
    bool found = false;

    trii_jobs_folder(parent, sizeof(parent));
    if (trii_folder_list(parent, MAX_JOBS, &names, &n) != TRI_OK)
        return false;
    for (int i = n - 1; i >= 0 && !found; i--) {
        snprintf(path_out, bytes, "%s/%s", parent, names[i]);
        found = trii_jobs_has_records(path_out);
    }
    trii_folder_free_names(names, n);
    return found;
}
