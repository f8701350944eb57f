/*
 * program.c - see program.h.
 */
#include "os/program.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "os/clock.h"

tri_status trii_program_run(const char *const *argv, int64_t deadline_ns,
                            trii_process_exit *exit_out)
{
    trii_process_spec spec = {.path = argv[0],
                              .argv = argv,
                              .envp = trii_process_environment(),
                              .in_fd = -1,
                              .out_fd = -1,
                              .err_fd = -1};
    bool late = false;
    trii_process process;
    tri_status status = trii_process_start(&spec, &process);

    if (status != TRI_OK)
        return status;
    while ((status = trii_process_reap(&process, exit_out)) == TRI_INPROGRESS) {
        struct pollfd ended = {.fd = process.pidfd, .events = POLLIN};

        if (poll(&ended, 1, late ? -1 : trii_deadline_left_ms(deadline_ns)) == 0) {
            trii_process_signal(&process, SIGKILL);
            late = true;
        }
    }
    if (status == TRI_OK && late)
        return TRII_FAIL(TRI_ERR_TIMEOUT, "%s did not end in time and was killed", argv[0]);
    return status;
}

tri_status trii_program_folder(char *path_out, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", path_out, bytes);
    char *slash;

    if (n < 0)
        return TRII_FAIL(TRI_ERR_IO, "read /proc/self/exe: %s", strerror(errno));
    if ((size_t)n >= bytes)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the program's path has more than %zu bytes", bytes);
    path_out[n] = '\0';
    slash = strrchr(path_out, '/');
    if (slash != NULL)
        *slash = '\0';
    return TRI_OK;
}
