/*
 * events.c - see events.h. Called by monitor.c (the job and its workers) and host_events.c (hosts).
 * Lines are written by output/log_file.h, in the background, so that a slow disk delays no decision
 * of the agent.
 */
#include "launch/report/events.h"

#include <stdarg.h>
#include <string.h>

#include "launch/output/escape.h"
#include "launch/output/log_file.h"
#include "os/clock.h"

/* A reader with more than this left to read gets no further lines; at the end a warning says that
 * some are missing. */
#define MAX_BEHIND ((size_t)4 << 20)

tri_status trii_events_open(trii_events *events, trii_background *files, const char *path,
                            const char *run_id)
{
    *events = (trii_events){.run_id = run_id};
    return path != NULL ? trii_log_file_append(path, "--events", files, &events->file) : TRI_OK;
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
