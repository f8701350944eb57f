/*
 * jobs.c - see jobs.h.
 */
#include "inspect/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "inspect/why.h"
#include "os/file.h"
#include "os/folder.h"
#include "os/process.h"

enum { MAX_JOBS = 1024 };

/* False: somebody else has the name, or nothing can be made there. */
static bool is_place(const char *base, bool ours, char *path_out)
{
    snprintf(path_out, TRII_JOBS_FOLDER_BYTES, "%s/trireme-%d", base, trii_process_user());
    if (trii_folder_is_private(path_out))
        return true;
    return trii_folder_is_writable(base, ours) && !trii_path_exists(path_out);
}

/* False: only a folder with a name that nobody can foresee will do, and there is none yet. */
static bool find_folder(char *path_out)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char prefix[40];

    if (runtime != NULL && *runtime == '/' && strlen(runtime) < TRII_JOBS_FOLDER_BYTES - 40 &&
        trii_folder_is_writable(runtime, true) && is_place(runtime, true, path_out))
        return true;
    if (is_place("/tmp", false, path_out) || is_place("/dev/shm", false, path_out))
        return true;
    snprintf(prefix, sizeof(prefix), "trireme-%d-", trii_process_user());
    return trii_folder_find_private("/tmp", prefix, path_out, TRII_JOBS_FOLDER_BYTES);
}

void trii_jobs_folder(char *path_out)
{
    if (!find_folder(path_out))
        snprintf(path_out, TRII_JOBS_FOLDER_BYTES, "/tmp/trireme-%d", trii_process_user());
}

tri_status trii_jobs_folder_create(char *path_out)
{
    if (find_folder(path_out) && trii_folder_create_private(path_out) == TRI_OK)
        return TRI_OK;
    snprintf(path_out, TRII_JOBS_FOLDER_BYTES, "/tmp/trireme-%d-XXXXXX", trii_process_user());
    return trii_folder_create_unique(path_out);
}

bool trii_jobs_has_records(const char *folder)
{
    char **names = NULL;
    int n = 0;
    bool found = false;

    if (trii_folder_list(folder, MAX_JOBS, &names, &n) != TRI_OK)
        return false;
    for (int i = 0; i < n && !found; i++)
        found = trii_why_rank_of(names[i]) >= 0;
    trii_folder_free_names(names, n);
    return found;
}

int trii_jobs_list(char *parent_out, char ***names_out)
{
    char **names = NULL;
    char path[512];
    int n = 0, n_jobs = 0;

    trii_jobs_folder(parent_out);
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
