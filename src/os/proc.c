/*
 * proc.c - see proc.h.
 */
#include "os/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

size_t trii_proc_read(const char *pid, const char *name, char *buf, size_t bytes)
{
    char path[80];
    size_t used = 0;
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.40s/%.20s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    while (used < bytes - 1 && (got = read(fd, buf + used, bytes - 1 - used)) > 0)
        used += (size_t)got;
    close(fd);
    buf[used] = '\0';
    return used;
}

char trii_proc_state(int pid)
{
    char stat[512], name[16];
    const char *after;

    snprintf(name, sizeof(name), "%d", pid);
    if (trii_proc_read(name, "stat", stat, sizeof(stat)) == 0)
        return 'X';
    after = strrchr(stat, ')'); /* the name may have spaces and parentheses of its own */
    return after != NULL && after[1] == ' ' ? after[2] : 'X';
}
