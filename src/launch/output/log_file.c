/*
 * log_file.c - see log_file.h. output.c opens those of streams, worker/worker_output.c those of
 * filtered lines and report/events.c its own; background.c writes them.
 */
#include "launch/output/log_file.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/descriptor.h"
#include "os/file.h"

/* The background's. */
typedef struct log_target {
    int fd; /* -1: it could not be opened again */
    int64_t max_bytes, bytes;
    char path[];
} log_target;

static tri_status turn_over(log_target *log)
{
    char older[TRII_LOG_PATH_BYTES + 4];
    tri_status status;

    snprintf(older, sizeof(older), "%s.1", log->path);
    trii_fd_close(log->fd);
    log->fd = -1;
    log->bytes = 0;
    status = trii_path_rename(log->path, older);
    return status == TRI_OK ? trii_append_open(log->path, &log->fd) : status;
}

static tri_status append_bytes(log_target *log, const char *data, size_t bytes)
{
    tri_status status = TRI_OK;

    if (bytes == 0)
        return TRI_OK;
    log->bytes += (int64_t)bytes;
    if (log->fd < 0)
        status = trii_append_open(log->path, &log->fd);
    return status == TRI_OK ? trii_append(log->fd, log->path, data, bytes) : status;
}

static tri_status put_bytes(void *target, const char *data, size_t bytes)
{
    log_target *log = target;
    tri_status status = TRI_OK, first = TRI_OK;

    while (log->max_bytes > 0 && log->bytes + (int64_t)bytes > log->max_bytes) {
        int64_t room = log->max_bytes - log->bytes;
        size_t fits = room < 0 ? 0 : (size_t)room;

        while (fits > 0 && data[fits - 1] != '\n')
            fits--;
        if (fits == 0 && log->bytes == 0) /* one line alone is too long: cut it */
            fits = (size_t)log->max_bytes;
        status = append_bytes(log, data, fits);
        first = first == TRI_OK ? status : first;
        status = turn_over(log); /* on a full disk this makes room, too */
        first = first == TRI_OK ? status : first;
        data += fits;
        bytes -= fits;
    }
    status = append_bytes(log, data, bytes);
    return first == TRI_OK ? status : first;
}

static void close_file(void *target)
{
    log_target *log = target;

    trii_fd_close(log->fd);
    trii_free(log);
}

static const trii_background_kind kind = {.put = put_bytes, .release = close_file};

static tri_status open_target(const char *path, int own_fd, int64_t max_bytes,
                              trii_background *background, const char *what,
                              trii_background_file **file_out)
{
    log_target *target = trii_alloc(1, sizeof(*target) + strlen(path) + 1, "log file");

    if (target == NULL) {
        trii_fd_close(own_fd);
        return TRI_ERR_NO_MEMORY;
    }
    target->fd = own_fd;
    target->max_bytes = max_bytes;
    memcpy(target->path, path, strlen(path) + 1);
    return trii_background_open(background, &kind, what, target, file_out);
}

tri_status trii_log_file_create(const char *path, int *fd_out)
{
    tri_status status;

    if (strlen(path) >= TRII_LOG_PATH_BYTES - 2)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "name of a log file is too long: %s", path);
    status = trii_path_remove(path);
    return status == TRI_OK ? trii_append_open(path, fd_out) : status;
}

tri_status trii_log_file_open(const char *path, int64_t max_bytes, trii_background *background,
                              trii_background_file **file_out)
{
    char what[TRII_LOG_PATH_BYTES + 40];
    int fd;
    tri_status status = trii_log_file_create(path, &fd);

    snprintf(what, sizeof(what), "log file %s is not complete", path);
    return status == TRI_OK ? open_target(path, fd, max_bytes, background, what, file_out) : status;
}

tri_status trii_log_file_append(const char *path, const char *name, trii_background *background,
                                trii_background_file **file_out)
{
    char what[TRII_ERR_BYTES];
    int fd;
    tri_status status = trii_append_open(path, &fd);

    snprintf(what, sizeof(what), "%s %s is not complete", name, path);
    return status == TRI_OK ? open_target(path, fd, 0, background, what, file_out)
                            : TRII_FAIL_CTX(status, "%s", name);
}
