/*
 * run_folder.c - see run_folder.h. agent.c makes and locks the folder, and removes it at the end
 * unless there is something to read in it; attempt.c, signals.c and agent.c write the notes; the
 * guard writes one and keeps the folder if the agent was killed. `trireme why` and `trireme ps`
 * read it through launch/inspect/jobs.h.
 */
#include "launch/run_folder.h"

#include <string.h>
#include <time.h>

#include "base/err.h"
#include "launch/inspect/jobs.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/file.h"
#include "os/folder.h"
#include "os/process.h"

#define CAUSE "cause"
#define STOPPED "stopped"

enum { MAX_ENTRIES = 1 << 17 };

/* Only a folder that was just made is taken: one that exists already belongs to another trirun,
 * which has the same process id in a container of its own. `trireme ps` and the end of another job
 * hold the lock of a new folder for a moment, to see whether it is taken, before we do; then
 * another name is tried, too. A file system without locks is good enough. */
static tri_status create_locked(trii_run_folder *folder, const char *stamp)
{
    enum { TRIES = 16 };
    tri_status status = TRI_OK;

    for (int i = 0; i < TRIES; i++) {
        char again[16] = "";
        bool made;

        if (i > 0)
            snprintf(again, sizeof(again), "-%d", i);
        snprintf(folder->path, sizeof(folder->path), "%s/%s-%d%s", folder->parent, stamp,
                 trii_process_id(), again);
        status = trii_folder_create_new(folder->path, 0700, &made);
        if (status != TRI_OK)
            break;
        if (!made)
            continue;
        status = trii_folder_lock(folder->path, &folder->lock_fd);
        if (status == TRI_ERR_UNSUPPORTED || (status == TRI_OK && trii_path_exists(folder->path)))
            return TRI_OK;
        trii_fd_close(folder->lock_fd);
        folder->lock_fd = -1;
        (void)trii_folder_remove_empty(folder->path);
    }
    if (status == TRI_OK)
        status = TRII_FAIL(TRI_ERR_IO, "%s: cannot make a folder of that name or a similar one",
                           folder->path);
    folder->path[0] = '\0';
    return status;
}

tri_status trii_run_folder_create(trii_run_folder *folder)
{
    time_t seconds = (time_t)(trii_wall_ns() / TRII_NS_PER_S);
    const struct tm *utc = gmtime(&seconds);
    char stamp[32] = "";
    tri_status status;

    folder->lock_fd = -1;
    if (utc != NULL)
        strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", utc);
    status = trii_jobs_folder_create(folder->parent);
    return status == TRI_OK ? create_locked(folder, stamp) : status;
}

static void unlock_folder(trii_run_folder *folder)
{
    trii_fd_close(folder->lock_fd);
    folder->lock_fd = -1;
}

void trii_run_folder_remove(trii_run_folder *folder)
{
    tri_status status = trii_folder_remove(folder->path);

    (void)status; /* a process still writes there, or removed it: nothing is left to do */
    unlock_folder(folder);
}

static void write_note(const trii_run_folder *folder, const char *name, long long number,
                       const char *reason)
{
    char path[TRII_RUN_FOLDER_BYTES + 16], text[200];
    int n = snprintf(text, sizeof(text), "%lld %s\n", number, reason);
    tri_status status;

    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    status = trii_file_replace(path, text, (size_t)n);
    (void)status; /* nothing hangs on it */
}

void trii_run_folder_begin_attempt(const trii_run_folder *folder)
{
    static const char record[] = ".rec";
    char path[TRII_RUN_FOLDER_BYTES + 256];
    char **names;
    int n;

    if (trii_folder_list(folder->path, MAX_ENTRIES, &names, &n) != TRI_OK)
        return; /* nothing hangs on it */
    for (int i = 0; i < n; i++) {
        size_t length = strlen(names[i]);
        tri_status status = TRI_OK;

        snprintf(path, sizeof(path), "%s/%s", folder->path, names[i]);
        if (strcmp(names[i], CAUSE) == 0 || strcmp(names[i], STOPPED) == 0 ||
            (length >= sizeof(record) && strcmp(names[i] + length - 4, record) == 0))
            status = trii_path_remove(path);
        (void)status;
    }
    trii_folder_free_names(names, n);
}

void trii_run_folder_note(const trii_run_folder *folder, int rank, const char *reason)
{
    write_note(folder, CAUSE, rank, reason);
}

void trii_run_folder_note_stop(const trii_run_folder *folder, int64_t at_ns, const char *reason)
{
    char path[TRII_RUN_FOLDER_BYTES + 16];

    snprintf(path, sizeof(path), "%s/%s", folder->path, STOPPED);
    if (!trii_path_exists(path))
        write_note(folder, STOPPED, at_ns, reason);
}

void trii_run_folder_keep(trii_run_folder *folder)
{
    const char *own = strrchr(folder->path, '/') + 1;
    char path[TRII_RUN_FOLDER_BYTES];
    char **names;
    int kept = 1, fd; /* its own, whatever the clock says */
    int n = trii_jobs_by_age(folder->parent, &names);

    unlock_folder(folder);
    for (int i = 0; i < n; i++) {
        tri_status status;

        snprintf(path, sizeof(path), "%s/%s", folder->parent, names[i]);
        if (strcmp(names[i], own) == 0 || trii_folder_lock(path, &fd) != TRI_OK)
            continue; /* or a job that runs */
        if (++kept > TRII_RUN_FOLDERS_KEPT) {
            status = trii_folder_remove(path);
            (void)status; /* the next failure tries again */
        }
        trii_fd_close(fd);
    }
    trii_folder_free_names(names, n);
}
