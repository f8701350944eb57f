/*
 * descriptor.c - see descriptor.h.
 */
/* build: leaf */
#include "os/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <unistd.h>

int trii_fd_above_standard(int fd)
{
    int moved, error;

    if (fd < 0 || fd > 2)
        return fd;
    moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    error = errno;
    close(fd);
    errno = error;
    return moved;
}

void trii_fd_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void trii_stdout_by_line(void)
{
    const bool unbuffered = __fbufsize(stdout) == 1; /* 0 = nothing was printed yet */

    if (!unbuffered)
        (void)setvbuf(stdout, NULL, _IOLBF, 0);
}
