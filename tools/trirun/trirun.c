/*
 * trirun.c - the launcher's command: the work is in src/launch.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "launch/agent.h"
#include "launch/dry_run.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define VERSION TEXT(TRI_VERSION_MAJOR) "." TEXT(TRI_VERSION_MINOR) "." TEXT(TRI_VERSION_PATCH)

enum { STATUS_OK = 0, STATUS_FAILED = TRII_LAUNCH_FAILED };

/* What was asked for has been printed, or an error says why not. */
static int shown(void)
{
    bool lost = ferror(stdout) != 0; /* and errno is long another one's */

    errno = 0;
    if (lost) /* what failed then fails again, and says why */
        (void)fputc('\n', stdout);
    if (fflush(stdout) == 0 && !lost)
        return STATUS_OK;
    fprintf(stderr, "trirun: cannot write to stdout%s%s\n", errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    return STATUS_FAILED;
}

int main(int argc, char **argv)
{
    trii_launch_options options;
    trii_launch_command command;
    tri_status status = trii_launch_options_parse(&options, argc, argv);
    int exit_status;

    if (status != TRI_OK) {
        fprintf(stderr, "trirun: %s\n`trirun --help` shows the options.\n", tri_last_error());
        return options.exit_status;
    }
    if (options.help) {
        trii_launch_options_help(stdout);
        return shown();
    }
    if (options.version) {
        puts("trirun " VERSION);
        return shown();
    }
    trii_launch_options_warn(&options, stderr);
    status = trii_launch_command_find(&command, &options);
    if (status != TRI_OK) {
        fprintf(stderr, "trirun: %s\n", tri_last_error());
        return status == TRI_ERR_INVALID_ARG ? TRII_LAUNCH_USAGE : STATUS_FAILED;
    }
    exit_status = STATUS_OK;
    if (options.dry_run)
        status = trii_dry_run(&options, &command, stdout);
    else
        status = trii_agent_run(&options, &command, &exit_status);
    if (status != TRI_OK) {
        fprintf(stderr, "trirun: %s\n", tri_last_error());
        return STATUS_FAILED;
    }
    return options.dry_run ? shown() : exit_status;
}
