/*
 * pipe.c - see pipe.h.
 */
#include "os/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/err.h"
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

void trii_terminal_resize(int read_fd, int like_fd, size_t margin)
{
    struct winsize size;

    if (ioctl(like_fd, TIOCGWINSZ, &size) != 0)
        return;
    if (size.ws_col > 2 * margin)
        size.ws_col = (unsigned short)(size.ws_col - margin);
    ioctl(read_fd, TIOCSWINSZ, &size);
}

tri_status trii_terminal_open(int like_fd, size_t margin, int *read_fd_out, int *write_fd_out)
{
    struct termios mode;
    int slave = -1, master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        goto err_close;
    slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || tcgetattr(slave, &mode) != 0)
        goto err_close;
    cfmakeraw(&mode); /* the terminal behind us turns \n into \r\n itself */
    if (tcsetattr(slave, TCSANOW, &mode) != 0)
        goto err_close;
    trii_terminal_resize(master, like_fd, margin);
    *read_fd_out = master;
    *write_fd_out = slave;
    return TRI_OK;

err_close:
    trii_err_set("pseudo-terminal: %s", strerror(errno));
    trii_fd_close(master);
    trii_fd_close(slave);
    return TRI_ERR_IO;
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
        return TRII_FAIL(TRI_ERR_PEER_LOST, "descriptor %d: nobody reads it any more", fd);
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
