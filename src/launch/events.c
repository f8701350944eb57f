/*
 * events.c - see events.h.
 */
#include "launch/events.h"

#include <stdarg.h>
#include <string.h>

#include "base/err.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/pipe.h"

char *trii_json_quote(const char *text, char *out, size_t bytes)
{
    size_t used = 0;

    out[used++] = '"';
    for (; *text != '\0' && used + 8 < bytes; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            used += (size_t)snprintf(out + used, bytes - used, "\\%c", c);
        else if (c < 0x20)
            used += (size_t)snprintf(out + used, bytes - used, "\\u%04x", c);
        else
            out[used++] = (char)c;
    }
    out[used++] = '"';
    out[used] = '\0';
    return out;
}

tri_status trii_events_open(trii_events *events, const char *path, const char *run_id)
{
    tri_status status;

    *events = (trii_events){.fd = -1, .path = path, .run_id = run_id};
    if (path == NULL)
        return TRI_OK;
    status = trii_append_open(path, &events->fd);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "--events");
}

void trii_events_put(const trii_events *events, const char *name, const char *format, ...)
{
    char line[4096], id[300];
    int64_t wall_ns = trii_wall_ns();
    va_list args;
    int used, more;
    tri_status status;

    if (events->fd < 0)
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
    status = trii_append(events->fd, events->path, line, (size_t)used + 2);
    (void)status; /* a full disk must not stop the job */
}

void trii_events_close(trii_events *events)
{
    trii_fd_close(events->fd);
    events->fd = -1;
}
