/*
 * net_slow_agents_test.c - agents of one job on two hosts with a slow wire between them, and
 * workers that fill it: nobody is taken for dead.
 */
/* ctest: labels=full timeout=120 */
#include "testing/host_agents.h"

static const char *own_path; /* of this program */

static void check_slow(int delay_ms, int kbit, int queue_bytes)
{
    host_agent a[2];
    double start_ms;
    host_job j;

    host_job_begin(&j, own_path, 2);
    j.work = "calls";
    j.nnodes = "2";
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
    for (int i = 0; i < 2; i++)
        print_message("          running after %.0f ms\n", host_agent_runs(&a[i], 2) - start_ms);
    for (int i = 0; i < 2; i++)
        host_agent_forget(&a[i]);
    spawn_read(&a[0].job.run, 3000);
    host_agents_stop(a, 2);
    host_job_end(&j);
}

static void a_slow_wire_is_no_death(void **state)
{
    (void)state;
    check_slow(100, 0, 0);
}

static void a_full_wire_is_no_death(void **state)
{
    (void)state;
    check_slow(20, 1000, 64 << 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_slow_wire_is_no_death),
    cmocka_unit_test(a_full_wire_is_no_death),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 2 && strcmp(argv[1], "worker") == 0)
        return host_worker(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
