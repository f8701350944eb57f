/*
 * failing_calls_test.c - a small job whose system calls are interrupted and come short all the time
 * (tests/preload): it goes on as if nothing had happened. Where its disk fills up or breaks as
 * well, it does so, or ends with a line that says what could not be written.
 */
/* ctest: labels=full timeout=120 */
#include <errno.h>

#include "testing/trirun_job.h"

enum { SEEDS = 20 };

static void start(trirun_job *j, int seed, int disk)
{
    char preload[512], calls[64], error[64], folder[64], events[320], logs[320];
    const char *const head[] = {
        "env", preload, calls, error, seed % 2 ? "TRI_ENGINE=tcp" : "TRI_ENGINE=shm", NULL};

    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", spawn_bin("../test/failing_calls.so"));
    snprintf(calls, sizeof(calls), "TRI_TEST_CALLS_SEED=%d", seed);
    snprintf(error, sizeof(error), disk != 0 ? "TRI_TEST_CALLS_DISK=%d" : "NO_DISK=%d", disk);
    spawn_make_folder(folder, sizeof(folder));
    snprintf(events, sizeof(events), "%s/events", folder);
    snprintf(logs, sizeof(logs), "%s/logs", folder);
    trirun_start_behind(j, head,
                        (const char *const[]){"--nproc-per-node", "2", "--log-dir", logs, "--tee",
                                              "3", "--events", events, spawn_bin("plain_ddp"),
                                              NULL},
                        NULL);
    (void)spawn_wait(&j->run);
    spawn_remove_folder(folder);
}

static void interrupted_and_short_calls_change_nothing(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        trirun_job j;

        start(&j, seed, 0);
        if (j.run.status != 0 || strstr(SPAWN_OUT(&j.run), " of 64 right") == NULL)
            fail_msg("seed %d: status %d: %s%s", seed, j.run.status, SPAWN_OUT(&j.run),
                     SPAWN_ERR(&j.run));
        trirun_end(&j, 0);
    }
}

static void a_disk_that_fails_is_said_or_not_needed(void **state)
{
    (void)state;
    for (int seed = 1; seed <= SEEDS; seed++) {
        const int disk = seed % 2 ? ENOSPC : EIO;
        trirun_job j;

        start(&j, seed, disk);
        if (j.run.status < 0 || j.run.status > 1 ||
            (j.run.status == 1 && strstr(SPAWN_ERR(&j.run), strerror(disk)) == NULL))
            fail_msg("seed %d: status %d: %s%s", seed, j.run.status, SPAWN_OUT(&j.run),
                     SPAWN_ERR(&j.run));
        spawn_expect_no_process(&j.run);
        spawn_free(&j.run);
        spawn_remove_folder(j.home);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(interrupted_and_short_calls_change_nothing),
    cmocka_unit_test(a_disk_that_fails_is_said_or_not_needed),
};

TEST_MAIN(tests)
