/*
 * pipe.c - see pipe.h. Used for the workers' streams (worker/worker_output.c), by output/ to read
 * and write them, and between the agent and its guard.
 */
#include "launch/os/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "os/descriptor.h"
#include "os/limits.h"

tri_status trii_pipe_open(int *read_fd_out, int *write_fd_out)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) != 0)
        return TRII_FAIL(TRI_ERR_IO, "pipe: %s%s", strerror(errno), trii_descriptors_hint(errno));
    if (fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) {
        close(fds[0]);
        close(fds[1]);
        return TRII_FAIL(TRI_ERR_IO, "pipe: %s", strerror(errno));
    }
    *read_fd_out = fds[0];
    *write_fd_out = fds[1];
    return TRI_OK;
}

tri_status trii_fd_read(int fd, void *buf, size_t bytes, size_t *got_out)
{
    ssize_t got;

    do {
        got = read(fd, buf, bytes);
    } while (got < 0 && errno == EINTR);
    if (got == 0)
        return TRI_END;
    if (got < 0 && errno == EAGAIN)
        return TRI_INPROGRESS;
    if (got < 0)
        return TRII_FAIL(TRI_ERR_IO, "read of descriptor %d: %s", fd, strerror(errno));
    *got_out = (size_t)got;
    return TRI_OK;
}

tri_status trii_fd_write(int fd, const void *data, size_t bytes, size_t *put_out)
{
    ssize_t put;

    do {
        put = write(fd, data, bytes);
    } while (put < 0 && errno == EINTR);
    if (put < 0 && errno == EAGAIN)
        return TRI_INPROGRESS;
    if (put < 0 && errno == EPIPE)
        return TRII_FAIL(TRI_ERR_PEER_LOST, "descriptor %d: it has no reader any more", fd);
    if (put <= 0)
        return TRII_FAIL(TRI_ERR_IO, "%s", put < 0 ? strerror(errno) : "nothing was written");
    *put_out = (size_t)put;
    return TRI_OK;
}

bool trii_fd_is_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
}

bool trii_fd_is_same(int a, int b)
{
    struct stat first, second;

    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino && first.st_rdev == second.st_rdev;
}

void trii_fd_fill_standard(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR); /* the lowest free number */
    } while (fd >= 0 && fd <= 2);
    trii_fd_close(fd);
}
