/*
 * pseudo_terminal.c - see pseudo_terminal.h. worker/worker_output.c opens one for each worker whose
 * output goes to a terminal, so that progress bars are drawn; signals.c passes on changes of the
 * window's size.
 */
#include "launch/os/pseudo_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/err.h"
#include "os/descriptor.h"

void trii_pty_resize(int read_fd, int like_fd, size_t margin)
{
    struct winsize size;

    if (ioctl(like_fd, TIOCGWINSZ, &size) != 0)
        return;
    if (size.ws_col > 2 * margin)
        size.ws_col = (unsigned short)(size.ws_col - margin);
    ioctl(read_fd, TIOCSWINSZ, &size);
}

tri_status trii_pty_open(int like_fd, size_t margin, int *read_fd_out, int *write_fd_out)
{
    struct termios mode;
    int slave = -1, master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        goto err_close;
    slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || tcgetattr(slave, &mode) != 0)
        goto err_close;
    cfmakeraw(&mode); /* the real terminal turns \n into \r\n itself */
    if (tcsetattr(slave, TCSANOW, &mode) != 0)
        goto err_close;
    trii_pty_resize(master, like_fd, margin);
    *read_fd_out = master;
    *write_fd_out = slave;
    return TRI_OK;

err_close:
    trii_err_set("pseudo-terminal: %s", strerror(errno));
    trii_fd_close(master);
    trii_fd_close(slave);
    return TRI_ERR_IO;
}
