/*
 * trirun.c - the launcher's command: the work is in src/launch.
 */
#include <stdio.h>

#include "launch/agent.h"
#include "launch/dry_run.h"
#include "launch/worker_command.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define VERSION TEXT(TRI_VERSION_MAJOR) "." TEXT(TRI_VERSION_MINOR) "." TEXT(TRI_VERSION_PATCH)

enum { STATUS_OK = 0, STATUS_FAILED = TRII_LAUNCH_FAILED };

int main(int argc, char **argv)
{
    trii_launch_options options;
    tri_status status = trii_launch_options_parse(&options, argc, argv);
    int exit_status;

    if (status != TRI_OK) {
        fprintf(stderr, "trirun: %s\n`trirun --help` shows the options.\n", tri_last_error());
        return options.exit_status;
    }
    if (options.help) {
        trii_launch_options_help(stdout);
        return STATUS_OK;
    }
    if (options.version) {
        puts("trirun " VERSION);
        return STATUS_OK;
    }
    trii_launch_options_warn(&options, stderr);
    if (trii_launch_command_check(&options) != TRI_OK) {
        fprintf(stderr, "trirun: %s\n", tri_last_error());
        return TRII_LAUNCH_USAGE;
    }
    exit_status = STATUS_OK;
    if (options.dry_run)
        status = trii_dry_run(&options, stdout);
    else
        status = trii_agent_run(&options, &exit_status);
    if (status != TRI_OK) {
        fprintf(stderr, "trirun: %s\n", tri_last_error());
        return STATUS_FAILED;
    }
    return exit_status;
}
