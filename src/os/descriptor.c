/*
 * descriptor.c - see descriptor.h.
 */
#include "os/descriptor.h"

#include <unistd.h>

void trii_fd_close(int fd)
{
    if (fd >= 0)
        close(fd);
}
