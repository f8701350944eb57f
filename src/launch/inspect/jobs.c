/*
 * jobs.c - see jobs.h.
 */
#include "launch/inspect/jobs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "launch/inspect/why.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/file.h"
#include "os/folder.h"
#include "os/process.h"

enum { MAX_FILES = 1024 }; /* of a run folder that are looked at */

/* False: another user has the name, or nothing can be made there. */
static bool is_place(const char *base, bool ours, char *path_out)
{
    snprintf(path_out, TRII_JOBS_FOLDER_BYTES, "%s/trireme-%d", base, trii_process_user());
    if (trii_folder_is_private(path_out))
        return true;
    return trii_folder_is_writable(base, ours) && !trii_path_exists(path_out);
}

/* False: only a folder with a random name will do, and there is none yet. */
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

    if (trii_folder_list(folder, MAX_FILES, &names, &n) != TRI_OK)
        return false;
    for (int i = 0; i < n && !found; i++)
        found = trii_why_rank_of(names[i]) >= 0;
    trii_folder_free_names(names, n);
    return found;
}

bool trii_jobs_is_live(const char *folder)
{
    int fd;

    if (trii_folder_lock(folder, &fd) != TRI_OK)
        return true;
    trii_fd_close(fd);
    return false;
}

/* A folder, and its age as a number that grows with its youth. */
typedef struct job_folder {
    char *name;
    int64_t youth;
} job_folder;

static int younger_first(const void *a, const void *b)
{
    const job_folder *x = a, *y = b;

    if (x->youth != y->youth)
        return x->youth < y->youth ? 1 : -1;
    return strcmp(y->name, x->name);
}

int trii_jobs_by_age(const char *parent, char ***names_out)
{
    int64_t now_ns = trii_wall_ns();
    char path[512];
    job_folder *jobs;
    int n = 0;

    *names_out = NULL;
    if (trii_folder_list(parent, INT_MAX, names_out, &n) != TRI_OK)
        return 0;
    jobs = trii_alloc((size_t)n + 1, sizeof(*jobs), "jobs");
    for (int i = 0; i < n && jobs != NULL; i++) {
        snprintf(path, sizeof(path), "%s/%s", parent, (*names_out)[i]);
        jobs[i] = (job_folder){.name = (*names_out)[i], .youth = trii_folder_changed_ns(path)};
        if (jobs[i].youth > now_ns)
            jobs[i].youth = now_ns - jobs[i].youth; /* older than all of the past */
    }
    if (jobs != NULL)
        qsort(jobs, (size_t)n, sizeof(*jobs), younger_first);
    for (int i = 0; i < n && jobs != NULL; i++)
        (*names_out)[i] = jobs[i].name;
    trii_free(jobs);
    return n;
}

int trii_jobs_list(char *parent_out, char ***names_out)
{
    char path[512];
    int n, n_jobs = 0;

    trii_jobs_folder(parent_out);
    n = trii_jobs_by_age(parent_out, names_out);
    for (int i = 0; i < n; i++) {
        char *name = (*names_out)[i];

        snprintf(path, sizeof(path), "%s/%s", parent_out, name);
        if (trii_jobs_has_records(path))
            (*names_out)[n_jobs++] = name;
        else
            trii_free(name);
    }
    return n_jobs;
}
