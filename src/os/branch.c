/*
 * branch.c - see branch.h.
 */
#include "os/branch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/alloc.h"
#include "base/err.h"
#include "os/descriptor.h"
#include "os/limits.h"
#include "os/proc.h"
#include "os/read_whole.h"
#include "os/unix.h"

tri_status trii_pair_open(int *a_out, int *b_out)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return TRII_FAIL(TRI_ERR_IO, "socketpair: %s%s", strerror(errno),
                         trii_descriptors_hint(errno));
    *a_out = trii_fd_above_standard(pair[0]);
    *b_out = trii_fd_above_standard(pair[1]);
    if (*a_out >= 0 && *b_out >= 0)
        return TRI_OK;
    (void)TRII_FAIL(TRI_ERR_IO, "socketpair: %s%s", strerror(errno), trii_descriptors_hint(errno));
    trii_fd_close(*a_out);
    trii_fd_close(*b_out);
    return TRI_ERR_IO;
}

int trii_nothing_open(void)
{
    return trii_fd_above_standard(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/* Also of what the parent has read and not used. Without a /dev/null it is closed, and reading
 * fails. */
static void empty_stdin(void)
{
    int nothing = trii_nothing_open();

    __fpurge(stdin);
    clearerr(stdin);
    if (nothing < 0 || dup2(nothing, 0) < 0)
        close(0);
    trii_fd_close(nothing);
}

tri_status trii_process_branch(trii_process *process_out, bool *is_child_out)
{
    int parent = getpid();
    int pid = fork();

    *is_child_out = pid == 0;
    if (pid < 0)
        return TRII_FAIL(TRI_ERR_IO, "fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || setpgid(0, 0) != 0)
            _exit(127);
        empty_stdin();
        return TRI_OK;
    }
    setpgid(pid, pid); /* both sides call it: a signal to the group must find it */
    process_out->pid = pid;
    process_out->pidfd = trii_fd_above_standard((int)syscall(SYS_pidfd_open, pid, 0));
    if (process_out->pidfd < 0) {
        int error = errno;

        kill(pid, SIGKILL);
        trii_process_wait(pid);
        return TRII_FAIL(TRI_ERR_IO, "pidfd_open: %s%s", strerror(error),
                         trii_descriptors_hint(error));
    }
    return TRI_OK;
}

uint64_t trii_channel_take(int fd)
{
    struct stat info;

    return trii_unix_is_unix(fd) && fstat(fd, &info) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0
               ? info.st_ino
               : 0;
}

bool trii_channel_is(int fd, uint64_t id)
{
    struct stat info;

    return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_ino == id;
}

int trii_process_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *entry;
    int n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
#if TRII_TSAN
    n -= n > 1; /* ThreadSanitizer's own, which it starts with a program's first or after fork() */
#endif
    return n;
}

tri_status trii_process_arguments(const char ***argv_out)
{
    enum { MAX_BYTES = 1 << 20 };
    char *text = trii_alloc(1, MAX_BYTES, "arguments");
    const char **argv = NULL;
    size_t used = 0, n = 0, at = 0;

    if (text != NULL)
        used = trii_read_whole("/proc/self/cmdline", text, MAX_BYTES);
    for (size_t i = 0; i < used; i++)
        n += text[i] == '\0';
    if (text != NULL && n > 0 && used < MAX_BYTES - 1)
        argv = trii_alloc(1, (n + 1) * sizeof(*argv) + used, "arguments");
    if (argv != NULL) {
        char *copy = (char *)(argv + n + 1);

        memcpy(copy, text, used);
        for (size_t i = 0; i < n; i++, at += strlen(copy + at) + 1)
            argv[i] = copy + at;
        argv[n] = NULL;
    }
    trii_free(text);
    if (argv == NULL)
        return TRII_FAIL(TRI_ERR_IO, "/proc/self/cmdline cannot be read");
    *argv_out = argv;
    return TRI_OK;
}

_Noreturn void trii_process_leave(int code)
{
    _exit(code);
}
