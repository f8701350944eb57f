/*
 * info.c - `trireme info`: what this build is and how it is set up here.
 */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"

static void print_build(void)
{
    printf("trireme       %d.%d.%d\n", TRI_VERSION_MAJOR, TRI_VERSION_MINOR, TRI_VERSION_PATCH);
#if defined(__clang__)
    printf("compiler      clang %s\n", __clang_version__);
#else
    printf("compiler      gcc %s\n", __VERSION__);
#endif
#ifdef NDEBUG
    puts("build         release");
#else
    puts("build         with assertions");
#endif
}

static void print_settings(void)
{
    puts("\nsetting            value                source       default       meaning");
    for (int i = 0; i < TRII_PARAM_COUNT; i++) {
        const trii_param_info *info = trii_param_describe((trii_param)i);
        const char *text = trii_param_text((trii_param)i);
        const char *value = text != NULL ? text : info->default_value;

        printf("%-18s %-20s %-12s %-13s %s\n", info->name, *value != '\0' ? value : "-",
               text != NULL ? "environment" : "default",
               *info->default_value != '\0' ? info->default_value : "-", info->help);
    }
}

static int run(int argc, char **argv)
{
    if (argc > 1)
        return command_usage(argv[0], "takes no arguments, got %s", argv[1]);
    print_build();
    print_settings();
    return ferror(stdout) || fflush(stdout) != 0 ? COMMAND_FAILED : COMMAND_OK;
}

const command command_info = {
    .name = "info",
    .summary = "version, build, processor, engines and every setting",
    .help = "usage: trireme info\n\n"
            "Prints the version, how it was built, what the processor offers, the engines and why\n"
            "one is missing, and every setting with its value, default and where it comes from.\n\n"
            "Example:\n"
            "  TRI_TIMEOUT_MS=5000 trireme info\n",
    .run = run,
};
