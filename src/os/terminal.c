/*
 * terminal.c - see terminal.h.
 */
/* build: train trirun */
#include "os/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

bool trii_fd_is_terminal(int fd)
{
    return isatty(fd) == 1;
}

bool trii_terminal(FILE *stream, int *columns_out)
{
    struct winsize size;
    int fd = fileno(stream);

    if (fd < 0 || !trii_fd_is_terminal(fd))
        return false;
    *columns_out = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    return true;
}
