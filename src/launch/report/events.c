/*
 * events.c - see events.h. Called by monitor.c (the job and its workers) and host_events.c (hosts).
 * Lines are written by output/background.h, so that a slow disk delays no decision of the agent.
 */
#include "launch/report/events.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "launch/output/escape.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/file.h"

/* To a reader that is further behind no lines are sent; at the end it is said that some are
 * missing. */
#define MAX_BEHIND ((size_t)4 << 20)

typedef struct event_file {
    int fd;
    char path[];
} event_file;

static tri_status write_line(void *target, const char *data, size_t bytes)
{
    const event_file *file = target;

    return trii_append(file->fd, file->path, data, bytes);
}

static void close_file(void *target)
{
    event_file *file = target;

    trii_fd_close(file->fd);
    trii_free(file);
}

static const trii_background_kind kind = {.put = write_line, .release = close_file};

tri_status trii_events_open(trii_events *events, trii_background *files, const char *path,
                            const char *run_id)
{
    char what[TRII_ERR_BYTES];
    event_file *file;
    tri_status status;

    *events = (trii_events){.run_id = run_id};
    if (path == NULL)
        return TRI_OK;
    file = trii_alloc(1, sizeof(*file) + strlen(path) + 1, "events");
    if (file == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(file->path, path, strlen(path) + 1);
    status = trii_append_open(path, &file->fd);
    if (status != TRI_OK) {
        trii_free(file);
        return TRII_FAIL_CTX(status, "--events");
    }
    snprintf(what, sizeof(what), "--events %s is not complete", path);
    return trii_background_open(files, &kind, what, file, &events->file);
}

void trii_events_put(const trii_events *events, const char *name, const char *format, ...)
{
    char line[4096], id[300];
    int64_t wall_ns = trii_wall_ns();
    va_list args;
    int used, more;

    if (events->file == NULL || trii_background_left(events->file) > MAX_BEHIND)
        return;
    used = snprintf(line, sizeof(line), "{\"time\": %lld.%03d, \"event\": \"%s\", \"run_id\": %s%s",
                    (long long)(wall_ns / TRII_NS_PER_S),
                    (int)(wall_ns % TRII_NS_PER_S / TRII_NS_PER_MS), name,
                    trii_json_quote(events->run_id, id, sizeof(id)), *format != '\0' ? ", " : "");
    va_start(args, format);
    more = vsnprintf(line + used, sizeof(line) - (size_t)used - 2, format, args);
    va_end(args);
    if (more >= (int)sizeof(line) - used - 2)
        return; /* half a line is no JSON */
    used += more;
    memcpy(line + used, "}\n", 3);
    trii_background_put(events->file, line, (size_t)used + 2);
}

void trii_events_close(trii_events *events)
{
    trii_background_close(events->file);
    events->file = NULL;
}
