/*
 * liveness.c - see liveness.h. The locks are fcntl's: they belong to the process, so a child that
 * inherits the descriptor does not keep them.
 */
#include "os/liveness.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool trii_liveness_hold(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_SETLK, &whole) == 0;
}

/* The letter of /proc/PID/stat, or 0. */
static char state_of(int pid)
{
    char path[40], line[512];
    const char *name_end;
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    n = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[n] = '\0';
    name_end = strrchr(line, ')'); /* the name may have spaces and parentheses of its own */
    return name_end != NULL && name_end[1] == ' ' ? name_end[2] : 0;
}

trii_liveness trii_liveness_look(const char *path, int *pid_out)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    trii_liveness found = TRII_LIVENESS_GONE;
    char state;

    *pid_out = 0;
    if (fd < 0)
        return found;
    if (fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK) {
        found = TRII_LIVENESS_RUNS;
        *pid_out = whole.l_pid > 0 ? whole.l_pid : 0;
    }
    close(fd);
    state = *pid_out != 0 ? state_of(*pid_out) : 0;
    return state == 'T' || state == 't' ? TRII_LIVENESS_STOPPED : found;
}
