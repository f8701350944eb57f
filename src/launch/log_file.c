/*
 * log_file.c - see log_file.h.
 */
#include "launch/log_file.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "os/file.h"
#include "os/pipe.h"

tri_status trii_log_file_open(trii_log_file *log, const char *path, int64_t max_bytes)
{
    tri_status status;

    memset(log, 0, sizeof(*log));
    if (strlen(path) >= sizeof(log->path) - 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "name of a log file is too long: %s", path);
    status = trii_path_remove(path);
    if (status == TRI_OK)
        status = trii_append_open(path, &log->fd);
    if (status != TRI_OK)
        return status;
    log->max_bytes = max_bytes;
    snprintf(log->path, sizeof(log->path), "%s", path);
    return TRI_OK;
}

static void fail(trii_log_file *log)
{
    if (!log->failed)
        TRII_LOG(TRII_LOG_WARN, "launch", "log file %s is not complete: %s", log->path,
                 tri_last_error());
    log->failed = true;
}

static void turn_over(trii_log_file *log)
{
    char older[TRII_LOG_PATH_BYTES];
    tri_status status;

    if ((size_t)snprintf(older, sizeof(older), "%s.1", log->path) >= sizeof(older))
        return;
    trii_fd_close(log->fd);
    log->fd = -1;
    log->bytes = 0;
    status = trii_path_rename(log->path, older);
    if (status == TRI_OK)
        status = trii_append_open(log->path, &log->fd);
    if (status != TRI_OK)
        fail(log);
}

static void append(trii_log_file *log, const char *data, size_t bytes)
{
    if (log->fd < 0 || bytes == 0)
        return;
    if (trii_append(log->fd, log->path, data, bytes) != TRI_OK)
        fail(log);
    log->bytes += (int64_t)bytes;
}

void trii_log_file_put(trii_log_file *log, const char *data, size_t bytes)
{
    while (log->max_bytes > 0 && log->bytes + (int64_t)bytes > log->max_bytes) {
        int64_t room = log->max_bytes - log->bytes;
        size_t fits = room < 0 ? 0 : (size_t)room;

        while (fits > 0 && data[fits - 1] != '\n')
            fits--;
        if (fits == 0 && log->bytes == 0) /* one line alone is too long: cut it */
            fits = (size_t)log->max_bytes;
        append(log, data, fits);
        data += fits;
        bytes -= fits;
        turn_over(log);
    }
    append(log, data, bytes);
}

void trii_log_file_close(trii_log_file *log)
{
    if (log->path[0] == '\0')
        return;
    trii_fd_close(log->fd);
    log->path[0] = '\0';
}
