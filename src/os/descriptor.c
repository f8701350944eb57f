/*
 * descriptor.c - what the library needs of pipe.h; the rest is linked into trirun only.
 */
#include "os/pipe.h"

#include <unistd.h>

void trii_fd_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

bool trii_fd_is_terminal(int fd)
{
    return isatty(fd) == 1;
}
