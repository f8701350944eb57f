/*
 * read_whole.c - see read_whole.h.
 */
/* build: leaf */
#include "os/read_whole.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "os/descriptor.h"

size_t trii_read_whole(const char *path, char *text_out, size_t bytes)
{
    /* a FIFO would wait for a writer */
    int fd = trii_fd_above_standard(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    size_t used = 0;
    ssize_t got = fd >= 0;

    while (used < bytes - 1 && got != 0) {
        got = read(fd, text_out + used, bytes - 1 - used);
        if (got < 0 && errno != EINTR)
            break;
        used += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    text_out[used] = '\0';
    return used;
}
