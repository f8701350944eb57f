/*
 * cpu_quota.c - see cpu_quota.h. A file cpu.max holds "QUOTA PERIOD" or "max PERIOD", in
 * microseconds; version 1 has a file for each, and -1 for no limit.
 */
/* build: leaf */
#include "os/cpu_quota.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "os/read_whole.h"
#include "os/thread.h"

static bool read_text(const char *root, const char *folder, const char *name, char *text,
                      size_t size)
{
    char path[PATH_MAX];

    return (size_t)snprintf(path, sizeof(path), "%s%s/%s", root, folder, name) < sizeof(path) &&
           trii_read_whole(path, text, size) > 0;
}

/* A positive number at the start of the text, or 0. */
static long long positive(const char *text)
{
    long long n;

    errno = 0;
    n = strtoll(text, NULL, 10);
    return errno == 0 && n > 0 ? n : 0;
}

/* What the group of this folder allows; 0 = it has no limit. */
static int folder_cores(const char *root, const char *folder, bool v2)
{
    char text[64];
    long long quota, period = 0, cores;

    if (!read_text(root, folder, v2 ? "cpu.max" : "cpu.cfs_quota_us", text, sizeof(text)))
        return 0;
    quota = positive(text);
    if (quota == 0)
        return 0;
    if (v2)
        period = positive(text + strcspn(text, " "));
    else if (read_text(root, folder, "cpu.cfs_period_us", text, sizeof(text)))
        period = positive(text);
    if (period == 0)
        return 0;
    cores = quota / period; /* a part of a core is none to compute on all the time */
    return cores < 1 ? 1 : cores > INT_MAX ? INT_MAX : (int)cores;
}

/* From our group up to the root. Folders of a host that a container does not see are not there. */
static void look(const char *root, const char *mount, const char *ours, bool v2,
                 trii_cpu_quota *quota)
{
    char folder[PATH_MAX], path[PATH_MAX];
    size_t base = strlen(mount);
    char *end;

    if (strcmp(ours, "/") == 0)
        ours = "";
    if ((size_t)snprintf(folder, sizeof(folder), "%s%s", mount, ours) >= sizeof(folder))
        return;
    do {
        int cores = folder_cores(root, folder, v2);

        if (cores > 0 && (quota->cores == 0 || cores < quota->cores)) {
            struct stat info;
            int length = snprintf(path, sizeof(path), "%s%s", root, folder);

            quota->cores = cores;
            quota->group = (size_t)length < sizeof(path) && stat(path, &info) == 0
                               ? (uint64_t)info.st_dev << 40 ^ (uint64_t)info.st_ino
                               : 0;
        }
        end = strrchr(folder, '/');
        if (end != NULL)
            *end = '\0';
    } while (end != NULL && end >= folder + base);
}

/* Whether "cpu" is one of "NAME,NAME:". */
static bool has_cpu(const char *names)
{
    for (;; names++) {
        size_t length = strcspn(names, ",:");

        if (length == 3 && strncmp(names, "cpu", 3) == 0)
            return true;
        names += length;
        if (*names != ',')
            return false;
    }
}

void trii_cpu_quota_look(const char *root, trii_cpu_quota *quota_out)
{
    char text[8192], *next;
    bool v1 = false; /* a controller has one hierarchy; version 2's line is the last */

    *quota_out = (trii_cpu_quota){0};
    if (!read_text(root, "/proc/self", "cgroup", text, sizeof(text)))
        return;
    for (char *line = text; line != NULL && *line != '\0'; line = next) { /* "ID:NAMES:PATH" */
        char *names, *ours;

        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        names = strchr(line, ':');
        ours = names != NULL ? strchr(names + 1, ':') : NULL;
        if (ours == NULL || ours[1] != '/')
            continue;
        if (has_cpu(names + 1)) {
            v1 = true;
            look(root, "/sys/fs/cgroup/cpu", ours + 1, false, quota_out);
        } else if (strncmp(line, "0::", 3) == 0 && !v1) {
            look(root, "/sys/fs/cgroup", ours + 1, true, quota_out);
        }
    }
}

int trii_cpu_quota_share(int cores, const trii_cpu_quota *quotas, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++) {
        int same = 0;

        if (quotas[i].cores == 0)
            return cores;
        while (quotas[same].group != quotas[i].group)
            same++;
        sum += same == i ? quotas[i].cores : 0;
    }
    return n > 0 && sum < cores ? (int)sum : cores;
}

static trii_cpu_quota own;

static void look_once(void)
{
    trii_cpu_quota_look("", &own);
}

trii_cpu_quota trii_cpu_quota_own(void)
{
    static trii_once once = TRII_ONCE_INITIALIZER;

    trii_once_run(&once, look_once);
    return own;
}

int trii_cpu_quota_cap(int cores)
{
    trii_cpu_quota quota = trii_cpu_quota_own();

    return trii_cpu_quota_share(cores, &quota, 1);
}
