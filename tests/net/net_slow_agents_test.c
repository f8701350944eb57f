/*
 * net_slow_agents_test.c - agents of one job on two hosts with a slow wire between them, and
 * workers that fill it: nobody is taken for dead.
 */
/* ctest: labels=full timeout=120 */
#include "testing/host_agents.h"

static const char *own_path; /* of this program */

/* A start over 200 ms there and back takes seconds, and more on a loaded machine. Only the time is
 * printed, for a reader; this is a watchdog. */
enum { START_MS = 60000 };

/* Until so many workers of the agent have had their first sum. */
static void all_run(host_agent *a, int size, int n)
{
    const double deadline_ms = host_now_ms() + START_MS;
    char text[32];

    snprintf(text, sizeof(text), "ms: %d of", size);
    while (host_agent_count(a, text) < n || a->job.run.text[0][a->job.run.used[0] - 1] != '\n') {
        if (host_now_ms() > deadline_ms)
            fail_msg("not all %d run:\n%s%s", n, SPAWN_OUT(&a->job.run), SPAWN_ERR(&a->job.run));
        spawn_poll(&a->job.run, 20);
    }
}

static void check_slow(const char *nproc, int delay_ms, int kbit, int queue_bytes)
{
    int size = nproc != NULL ? 2 * (int)strtol(nproc, NULL, 10) : 2;
    host_agent a[2];
    double start_ms;
    host_job j;

    host_job_begin(&j, own_path, 2);
    j.work = "calls";
    j.nnodes = "2";
    j.nproc = nproc;
    j.conf = "join_timeout=30";
    if (j.spread) {
        hosts_ip(0, "link del port2");
        if (!hosts_plug_slow(2, delay_ms, kbit, queue_bytes))
            hosts_plug(2);
        hosts_ip(2, "addr add 10.77.0.2/24 dev eth0");
    }
    start_ms = host_now_ms();
    for (int i = 0; i < 2; i++)
        host_agent_start(&a[i], &j, i + 1);
    for (int i = 0; i < 2; i++) {
        a[i].job.run.deadline_ms = START_MS;
        print_message("          running after %.0f ms\n", host_agent_runs(&a[i], size) - start_ms);
        all_run(&a[i], size, size / 2);
    }
    for (int i = 0; i < 2; i++)
        host_agent_forget(&a[i]);
    spawn_read(&a[0].job.run, 3000);
    host_agents_stop(a, 2);
    host_job_end(&j);
}

static void pairs_of_ranks_start_over_a_slow_wire_and_nobody_is_lost(void **state)
{
    (void)state;
    check_slow("2", 100, 0, 0);
}

static void a_full_wire_is_no_death(void **state)
{
    (void)state;
    check_slow(NULL, 20, 1000, 64 << 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pairs_of_ranks_start_over_a_slow_wire_and_nobody_is_lost),
    cmocka_unit_test(a_full_wire_is_no_death),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 2 && strcmp(argv[1], "worker") == 0)
        return host_worker(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
