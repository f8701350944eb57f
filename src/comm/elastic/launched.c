/*
 * launched.c - who started this process, and when it must end (trireme/launch.h).
 */
#include <trireme/launch.h>
#include <trireme/types.h>

#include <signal.h>
#include <string.h>

#include "base/param.h"
#include "comm/elastic/spawned.h"
#include "comm/group/join/env.h"
#include "os/clock.h"
#include "os/stop_signal.h"

const char *tri_launcher(void)
{
    if (trii_spawned())
        return "spawn";
    if (trii_launch_env_text("RANK") != NULL || trii_launch_env_text("WORLD_SIZE") != NULL) {
        if (trii_launch_env_text("TORCHELASTIC_RUN_ID") == NULL)
            return "environment";
        return trii_launch_env_text("TRI_RUN_DIR") != NULL ? "trirun" : "torchrun";
    }
    if (trii_launch_env_text("OMPI_COMM_WORLD_RANK") != NULL)
        return "openmpi";
    if (trii_launch_is_srun())
        return "slurm";
    return trii_launch_env_text("PMI_RANK") != NULL ? "pmi" : "none";
}

int tri_restart_count(void)
{
    int count;

    return trii_launch_env_int("TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX, 0, &count) == TRI_OK
               ? count
               : 0;
}

tri_status tri_stop_watch(void)
{
    return trii_stop_signal_watch();
}

int tri_stop_signal(void)
{
    int64_t at_ns, told_ms;

    return trii_stop_signal_seen(&at_ns, &told_ms);
}

int64_t tri_stop_left_ms(void)
{
    int64_t at_ns, told_ms, left_ms;
    int number = trii_stop_signal_seen(&at_ns, &told_ms);

    if (number == 0)
        return TRI_FOREVER;
    if (number != SIGUSR1 && told_ms < 0 &&
        trii_param_i64(TRII_PARAM_STOP_GRACE, -1, &told_ms) != TRI_OK)
        told_ms = -1;
    if (told_ms < 0)
        return TRI_FOREVER;
    left_ms = told_ms - (trii_now_ns() - at_ns) / TRII_NS_PER_MS;
    return left_ms > 0 ? left_ms : 0;
}
