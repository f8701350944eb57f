/*
 * memory_kills.c - see memory_kills.h. monitor.c reads the counters at the start of an attempt,
 * failure_report.c again when a worker died of SIGKILL.
 *
 * Control groups, version 2: oom_kill in memory.events; version 1: in memory.oom_control. Both
 * count our group; version 2 also counts those below it, such as the workers' own group, in which
 * no memory controller is enabled. /proc/vmstat counts the whole host.
 */
#include "launch/report/memory_kills.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "launch/os/cgroup.h"
#include "os/proc.h"
#include "os/read_whole.h"

int64_t trii_memory_kills_find(const char *text, const char *name)
{
    size_t length = strlen(name);

    while (*text != '\0') {
        if (strncmp(text, name, length) == 0 && text[length] == ' ')
            return strtoll(text + length, NULL, 10);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return -1;
}

/* Our path in the hierarchy whose line in /proc/self/cgroup contains `field`. */
static bool group_path(const char *groups, const char *field, char *path, size_t bytes)
{
    const char *line = strstr(groups, field);

    if (line == NULL)
        return false;
    line += strlen(field);
    snprintf(path, bytes, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}

static int64_t read_group(void)
{
    static const struct {
        const char *field, *mount, *counters;
    } versions[] = {{":memory:", "/sys/fs/cgroup/memory", "memory.oom_control"},
                    {"0::", "/sys/fs/cgroup", "memory.events"}};
    char groups[4096], inside[1024], path[1200], text[4096];
    size_t v = 0;

    (void)trii_proc_read("self", "cgroup", groups, sizeof(groups));
    while (v < TRII_COUNT_OF(versions) &&
           !group_path(groups, versions[v].field, inside, sizeof(inside)))
        v++;
    if (v == TRII_COUNT_OF(versions))
        return -1;
    trii_cgroup_outside(inside); /* if trirun runs as a worker of trirun */
    snprintf(path, sizeof(path), "%s%s/%s", versions[v].mount, inside, versions[v].counters);
    if (trii_read_whole(path, text, sizeof(text)) ==
        0) { /* a container's mount has our group as its root */
        snprintf(path, sizeof(path), "%s/%s", versions[v].mount, versions[v].counters);
        (void)trii_read_whole(path, text, sizeof(text));
    }
    return trii_memory_kills_find(text, "oom_kill");
}

void trii_memory_kills_read(trii_memory_kills *kills_out)
{
    static char text[16384]; /* vmstat is long */

    kills_out->group = read_group();
    (void)trii_read_whole("/proc/vmstat", text, sizeof(text));
    kills_out->host = trii_memory_kills_find(text, "oom_kill");
}

const char *trii_memory_kills_explain(const trii_memory_kills *before,
                                      const trii_memory_kills *after)
{
    if (before->group >= 0 && after->group > before->group)
        return "out of memory: the kernel killed it at the limit of our control group";
    if (before->host >= 0 && after->host > before->host)
        return "probably out of memory: the kernel of this host has just killed a process for it";
    return NULL;
}
