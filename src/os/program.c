/*
 * program.c - see program.h.
 */
#include "os/program.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

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
