/*
 * memory_room.c - see memory_room.h. What the kernel can drop (file caches) counts as free.
 */
/* build: leaf */
#include "os/memory_room.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "os/read_whole.h"

/* The two layouts of control groups. */
typedef struct layout {
    const char *line; /* before our path in /proc/self/cgroup */
    const char *folder, *limit, *used;
} layout;

static const layout layouts[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current"},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"},
};

/* The number after `name` at the start of a line, or 0. */
static size_t number_of(const char *text, const char *name)
{
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, strlen(name)) == 0)
            return (size_t)strtoull(line + strlen(name), NULL, 10);
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return 0;
}

static size_t less(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

static size_t host_room(const char *root)
{
    char path[PATH_MAX], text[8192];
    size_t kib;

    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (trii_read_whole(path, text, sizeof(text)) == 0)
        return SIZE_MAX;
    kib = number_of(text, "MemAvailable:");
    return kib > 0 ? (kib + number_of(text, "SwapFree:")) * 1024 : SIZE_MAX;
}

/* Room in the control group of this folder; SIZE_MAX = it has no limit. */
static size_t folder_room(const layout *l, const char *folder)
{
    char path[PATH_MAX + 32], text[8192];
    size_t limit, used;
    char *end;

    snprintf(path, sizeof(path), "%s/%s", folder, l->limit);
    if (trii_read_whole(path, text, sizeof(text)) == 0)
        return SIZE_MAX;
    errno = 0;
    limit = (size_t)strtoull(text, &end, 10);
    if (end == text || errno != 0 || limit > (size_t)1 << 60) /* "max", or as much as there is */
        return SIZE_MAX;
    snprintf(path, sizeof(path), "%s/%s", folder, l->used);
    (void)trii_read_whole(path, text, sizeof(text));
    used = (size_t)strtoull(text, NULL, 10);
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    (void)trii_read_whole(path, text, sizeof(text));
    used = less(used, number_of(text, "inactive_file ") + number_of(text, "active_file "));
    return less(limit, used);
}

static uint64_t identity(const char *folder)
{
    struct stat info;

    return stat(folder, &info) == 0 ? (uint64_t)info.st_dev << 40 ^ (uint64_t)info.st_ino : 0;
}

/* From our group up to the root: each holds what its children take. */
static void cgroup_room(const char *root, const layout *l, trii_memory_room *room)
{
    char path[PATH_MAX], text[8192], *ours, *end;
    size_t base;

    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (trii_read_whole(path, text, sizeof(text)) == 0)
        return;
    ours = strstr(text, l->line);
    if (ours == NULL)
        return;
    ours += strlen(l->line);
    ours[strcspn(ours, "\n")] = '\0';
    base = (size_t)snprintf(path, sizeof(path), "%s%s", root, l->folder);
    if (base + strlen(ours) + 1 > sizeof(path))
        return;
    snprintf(path + base, sizeof(path) - base, "%s", ours);
    for (;;) {
        size_t bytes = folder_room(l, path);

        if (bytes < room->cgroup_bytes) {
            room->cgroup_bytes = bytes;
            room->cgroup = identity(path);
        }
        end = strrchr(path, '/');
        if (end == NULL || end < path + base)
            return;
        *end = '\0';
    }
}

void trii_memory_room_look(const char *root, trii_memory_room *room_out)
{
    *room_out = (trii_memory_room){.host_bytes = host_room(root), .cgroup_bytes = SIZE_MAX};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        cgroup_room(root, &layouts[i], room_out);
}
