/*
 * random.c - see random.h.
 */
/* build: leaf */
#include "os/random.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "os/descriptor.h"

/* Where the system call is missing or forbidden. */
static bool from_device(unsigned char *out, size_t bytes)
{
    int fd = trii_fd_above_standard(open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    size_t got = 0;

    while (fd >= 0 && got < bytes) {
        ssize_t n = read(fd, out + got, bytes - got);

        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break;
    }
    if (fd >= 0)
        close(fd);
    return got == bytes;
}

bool trii_random_bytes(void *out, size_t bytes)
{
    size_t got = 0;

    while (got < bytes) {
        ssize_t n = getrandom((char *)out + got, bytes - got, 0);

        if (n > 0)
            got += (size_t)n;
        else if (errno != EINTR)
            return from_device(out, bytes);
    }
    return true;
}
