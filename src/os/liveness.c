/*
 * liveness.c - see liveness.h. The locks are fcntl's: they belong to the process, so a child that
 * inherits the descriptor does not keep them.
 */
/* build: leaf */
#include "os/liveness.h"

#include <fcntl.h>
#include <unistd.h>

#include "os/descriptor.h"
#include "os/process.h"

bool trii_liveness_hold(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_SETLK, &whole) == 0;
}

trii_liveness trii_liveness_look(const char *path, int *pid_out)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = trii_fd_above_standard(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    trii_liveness found = TRII_LIVENESS_GONE;

    *pid_out = 0;
    if (fd < 0)
        return found;
    if (fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK) {
        found = TRII_LIVENESS_RUNS;
        *pid_out = whole.l_pid > 0 ? whole.l_pid : 0;
    }
    close(fd);
    return *pid_out != 0 && trii_process_is_stopped(*pid_out) ? TRII_LIVENESS_STOPPED : found;
}
