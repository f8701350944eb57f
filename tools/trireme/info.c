/*
 * info.c - `trireme info`: what this build is and how it is set up here.
 */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/comm.h>

#include "base/param.h"
#include "os/cpu.h"
#include "os/cpu_quota.h"
#include "os/host.h"
#include "os/process.h"

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

static const char *yes_no(bool yes)
{
    return yes ? "yes" : "no";
}

static void print_processor(void)
{
    char host[256];
    trii_cpu_set allowed;
    trii_cpu_quota quota;

    trii_host_name(host, sizeof(host));
    trii_cpu_allowed(&allowed);
    printf("\nhost          %s\n", host);
    trii_cpu_quota_look("", &quota);
    printf("cores         %d allowed to this process", trii_cpu_set_count(&allowed));
    if (quota.cores > 0)
        printf(", %d by the quota of its control group", quota.cores);
    puts("");
    printf("kernels       %s%s\n", trii_isa_name(trii_cpu_isa()),
           trii_param_text(TRII_PARAM_ISA) != NULL ? " (limited by TRI_ISA)" : "");
    printf("avx512 bf16   %s\n", yes_no(trii_cpu_has_avx512_bf16()));
    printf("amx bf16      %s\n", yes_no(trii_cpu_has_amx_bf16()));
}

static void print_engines(void)
{
    static const char *const names[] = {"self", "shm",   "hierarchy", "tcp",
                                        "mpi",  "mpich", "gloo",      "nccl"};

    puts("\nengine        here");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool here = tri_engine_is_available(names[i]);
        const char *install = here ? NULL : strstr(tri_last_error(), "install ");

        if (here)
            printf("%-13s yes\n", names[i]);
        else if (install != NULL) /* the line before it is for programs that name the engine */
            printf("%-13s no: %s\n", names[i], install);
        else
            printf("%-13s no: %s\n", names[i], tri_last_error());
    }
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
        if (trii_param_check((trii_param)i) != TRI_OK)
            printf("%-18s not understood: %s\n", "", tri_last_error());
    }
    for (const char *const *e = trii_process_environment(); *e != NULL; e++) {
        char unknown[TRII_PARAM_UNKNOWN];

        if (trii_param_unknown(*e, unknown))
            puts(unknown);
    }
}

static int run(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "deepspeed") == 0)
        return info_deepspeed(argv[2]);
    if (argc == 2 && strcmp(argv[1], "deepspeed") == 0)
        return command_usage(argv[0], "which file? deepspeed FILE is missing");
    if (argc > 1)
        return command_usage(argv[0], "takes no arguments but deepspeed FILE, got %s", argv[1]);
    print_build();
    print_processor();
    print_engines();
    print_settings();
    return COMMAND_OK;
}

const command command_info = {
    .name = "info",
    .summary = "version, build, processor, engines and every setting",
    .help = "usage: trireme info [deepspeed FILE]\n\n"
            "Prints the version, how it was built, what the processor offers, the engines\n"
            "and why one is missing, and every setting with its value, default and where it\n"
            "comes from. With deepspeed FILE: what each key of a DeepSpeed configuration\n"
            "does here, or the first mistake in it.\n\n"
            "Example:\n"
            "  TRI_TIMEOUT_MS=5000 trireme info\n"
            "  trireme info deepspeed ds_config.json\n",
    .run = run,
};
