/*
 * descriptor.c - see descriptor.h.
 */
/* build: leaf */
#include "os/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <unistd.h>

#include "os/library.h"

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

/* setvbuf alone changes nothing for a buffer in use: lines end in it until it is full. A new buffer
 * does; what was in the old one is written. */
void trii_stdout_by_line(void)
{
    static char lines[BUFSIZ];
    const size_t bytes = __fbufsize(stdout); /* 0 = nothing was printed yet; 1 = unbuffered */

    if (bytes == 0) {
        (void)setvbuf(stdout, NULL, _IOLBF, 0);
    } else if (bytes > 1 && !__flbf(stdout)) {
        trii_library_stay(lines);
        (void)setvbuf(stdout, lines, _IOLBF, sizeof(lines));
    }
}
