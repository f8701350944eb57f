/*
 * read_whole.c - see read_whole.h.
 */
/* build: leaf */
#include "os/read_whole.h"

#include <errno.h>
#include <unistd.h>

size_t trii_read_whole(int fd, void *buf, size_t bytes)
{
    size_t used = 0;
    ssize_t got = 1;

    while (used < bytes && got != 0) {
        got = read(fd, (char *)buf + used, bytes - used);
        if (got < 0 && errno != EINTR)
            break;
        used += got > 0 ? (size_t)got : 0;
    }
    return used;
}
