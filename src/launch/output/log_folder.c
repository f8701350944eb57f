/*
 * log_folder.c - see log_folder.h. worker/worker_output.c makes the folders and the log files in
 * them, and attempt.c asks for the folder of error files.
 */
#include "launch/output/log_folder.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "os/file.h"
#include "os/folder.h"

enum { MAX_ID = 128 }; /* bytes of a job's id in the name of its folder */
#define TEMPORARY "/torchelastic_XXXXXX"

/* Whether there will be log files, for which a folder is made also without --log-dir. */
static bool is_wanted(const trii_launch_options *options)
{
    for (int rank = 0; rank < options->nproc; rank++) {
        if (trii_std_of(&options->redirects, rank) != 0 || trii_std_of(&options->tee, rank) != 0)
            return true;
    }
    return false;
}

/* A fresh folder below $TMPDIR, or below /tmp if that cannot be used, as Python's tempfile. */
static tri_status create_temporary(trii_log_folder *folder, char *parent, size_t room)
{
    const char *temporary = getenv("TMPDIR");
    tri_status status = TRI_ERR_IO;

    if (temporary != NULL && *temporary != '\0') {
        if ((size_t)snprintf(parent, room, "%s" TEMPORARY, temporary) >= room)
            (void)TRII_FAIL(status, "its name is too long");
        else
            status = trii_folder_create_unique(parent);
        if (status == TRI_OK)
            return TRI_OK;
        snprintf(folder->warning, sizeof(folder->warning),
                 "TMPDIR=%.200s cannot be used, so log files go to /tmp: %.200s", temporary,
                 tri_last_error());
    }
    snprintf(parent, room, "/tmp" TEMPORARY);
    return trii_folder_create_unique(parent);
}

tri_status trii_log_folder_create(trii_log_folder *folder, const trii_launch_options *options,
                                  const char *run_id, const char *run_dir)
{
    const char *base = options->log_dir;
    size_t room = sizeof(folder->run) - MAX_ID - 15;
    char parent[sizeof(folder->run)] = "", path[sizeof(folder->run)];
    tri_status status;

    memset(folder, 0, sizeof(*folder));
    if (base != NULL && strcmp(base, "/dev/null") == 0)
        return TRI_OK;
    if (base == NULL && !is_wanted(options)) {
        snprintf(folder->run, sizeof(folder->run), "%s", run_dir);
        return TRI_OK;
    }
    folder->temporary = base == NULL;
    /* Absolute, since workers get names of files in it and may change their folder. */
    status = folder->temporary ? create_temporary(folder, parent, room)
                               : trii_path_absolute(base, parent, room);
    snprintf(path, sizeof(path), "%s/%.*s_XXXXXX", parent, MAX_ID, run_id);
    for (char *at = path + strlen(parent) + 1; *at != '\0'; at++)
        *at = *at == '/' ? '_' : *at; /* an id may be anything */
    if (status == TRI_OK)
        status = trii_folder_create_above(path);
    if (status == TRI_OK)
        status = trii_folder_create_unique(path);
    if (status != TRI_OK && folder->temporary)
        return TRII_FAIL_CTX(status, "log files: cannot write to /tmp (set TMPDIR, or --log-dir)");
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status,
                             "--log-dir %.200s: cannot be made (name a folder that you may write "
                             "to)",
                             base);
    memcpy(folder->run, path, sizeof(path));
    return TRI_OK;
}

tri_status trii_log_folder_attempt(trii_log_folder *folder, int restart_count, int local_size)
{
    char path[sizeof(folder->attempt) + 16];
    tri_status status;

    if (folder->run[0] == '\0')
        return TRI_OK;
    snprintf(folder->attempt, sizeof(folder->attempt), "%s/attempt_%d", folder->run, restart_count);
    status = trii_path_exists(folder->attempt) ? trii_folder_remove(folder->attempt) : TRI_OK;
    if (status == TRI_OK)
        status = trii_folder_create(folder->attempt);
    for (int i = 0; i < local_size && status == TRI_OK; i++) {
        snprintf(path, sizeof(path), "%s/%d", folder->attempt, i);
        status = trii_folder_create(path);
    }
    return status;
}

const char *trii_log_folder_error_dir(const trii_log_folder *folder)
{
    return folder->attempt[0] != '\0' ? folder->attempt : NULL;
}
