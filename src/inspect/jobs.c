/*
 * jobs.c - see jobs.h.
 */
#include "inspect/jobs.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "os/folder.h"
#include "os/process.h"

enum { MAX_JOBS = 1024 };

void trii_jobs_folder(char *path_out, size_t bytes)
{
    const char *base = getenv("XDG_RUNTIME_DIR");

    if (base == NULL || *base != '/')
        base = "/tmp";
    snprintf(path_out, bytes, "%s/trireme-%d", base, trii_process_user());
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

int trii_jobs_list(char *parent_out, size_t bytes, char ***names_out)
{
    char **names = NULL;
    char path[512];
    int n = 0, n_jobs = 0;

    trii_jobs_folder(parent_out, bytes);
    if (trii_folder_list(parent_out, MAX_JOBS, &names, &n) != TRI_OK)
        n = 0;
    for (int i = 0; i < n; i++) { /* those without records come to the end */
        char *name = names[i];

        snprintf(path, sizeof(path), "%s/%s", parent_out, name);
        if (!trii_jobs_has_records(path))
            continue;
        memmove(names + n_jobs + 1, names + n_jobs, sizeof(*names) * (size_t)(i - n_jobs));
        names[n_jobs++] = name;
    }
    for (int i = 0; i < n_jobs / 2; i++) {
        char *name = names[i];

        names[i] = names[n_jobs - 1 - i];
        names[n_jobs - 1 - i] = name;
    }
    for (int i = n_jobs; i < n; i++)
        trii_free(names[i]);
    *names_out = names;
    return n_jobs;
}
