/*
 * run_folder.c - see run_folder.h.
 */
#include "launch/run_folder.h"

#include <string.h>
#include <time.h>

#include "os/clock.h"
#include "os/file.h"
#include "os/folder.h"
#include "os/pipe.h"
#include "os/process.h"

enum { MAX_FOLDERS = 1024 };

tri_status trii_run_folder_create(trii_run_folder *folder)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    time_t seconds = (time_t)(trii_wall_ns() / TRII_NS_PER_S);
    char stamp[32] = "";
    const struct tm *utc = gmtime(&seconds);
    tri_status status;

    folder->lock_fd = -1;
    if (base == NULL || *base != '/' || strlen(base) > sizeof(folder->parent) - 40)
        base = "/tmp";
    snprintf(folder->parent, sizeof(folder->parent), "%s/trireme-%d", base, trii_process_user());
    if (utc != NULL)
        strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", utc);
    snprintf(folder->path, sizeof(folder->path), "%s/%s-%d", folder->parent, stamp,
             trii_process_id());
    status = trii_folder_create_private(folder->parent);
    if (status == TRI_OK)
        status = trii_folder_create_private(folder->path);
    if (status == TRI_OK)
        status = trii_folder_lock(folder->path, &folder->lock_fd);
    return status;
}

static void unlock(trii_run_folder *folder)
{
    trii_fd_close(folder->lock_fd);
    folder->lock_fd = -1;
}

void trii_run_folder_remove(trii_run_folder *folder)
{
    tri_status status = trii_folder_remove(folder->path);

    (void)status; /* somebody still writes there, or removed it: nothing is left to do */
    unlock(folder);
}

void trii_run_folder_note(const trii_run_folder *folder, int rank, const char *words)
{
    char path[TRII_RUN_FOLDER_BYTES + 8], text[160];
    int n = snprintf(text, sizeof(text), "%d %s\n", rank, words);
    tri_status status;

    snprintf(path, sizeof(path), "%s/cause", folder->path);
    status = trii_file_replace(path, text, (size_t)n);
    (void)status; /* nothing hangs on it */
}

void trii_run_folder_keep(trii_run_folder *folder)
{
    char path[TRII_RUN_FOLDER_BYTES];
    char **names;
    int n, kept = 0, fd;

    unlock(folder);
    if (trii_folder_list(folder->parent, MAX_FOLDERS, &names, &n) != TRI_OK)
        return;
    for (int i = n - 1; i >= 0; i--) {
        tri_status status;

        snprintf(path, sizeof(path), "%s/%s", folder->parent, names[i]);
        if (trii_folder_lock(path, &fd) != TRI_OK)
            continue; /* a job that runs */
        if (++kept > TRII_RUN_FOLDERS_KEPT) {
            status = trii_folder_remove(path);
            (void)status; /* the next failure tries again */
        }
        trii_fd_close(fd);
    }
    trii_folder_free_names(names, n);
}
