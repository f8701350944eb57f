/*
 * devices.c - see devices.h. Called by options_meaning.c for --nproc-per-node=auto, and by
 * attempt.c and dry_run.c to share the cores among the workers. Cores are those that the agent may
 * run on, within its control group's quota; GPUs are counted in CUDA_VISIBLE_DEVICES or below
 * /proc.
 */
#include "launch/cli/devices.h"

#include <stdlib.h>

#include "os/cpu.h"
#include "os/cpu_quota.h"
#include "os/folder.h"

int trii_launch_count_cores(void)
{
    trii_cpu_set allowed;

    trii_cpu_allowed(&allowed);
    return trii_cpu_quota_cap(trii_cpu_set_count(&allowed));
}

int trii_launch_count_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char **names;
    int n = 0;

    if (visible != NULL) {
        for (n = *visible != '\0' && *visible != '-'; *visible != '\0'; visible++)
            n += *visible == ',';
        return n;
    }
    if (trii_folder_list("/proc/driver/nvidia/gpus", 64, &names, &n) != TRI_OK)
        return 0;
    trii_folder_free_names(names, n);
    return n;
}
