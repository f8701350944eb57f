/*
 * etcd_hosts_test.c - agents on several hosts that meet in an etcd which is on none of them: any
 * host may lose its power, be cut off from all, or from another host only.
 */
/* ctest: labels=quick timeout=90 */
#include "testing/etcd_server.h"
#include "testing/host_agents.h"

static const char *own_path; /* of this program */
static etcd_cluster cluster;

static void stop(void)
{
    etcd_stop(&cluster);
}

/* On the switch, or on loopback. */
static void begin(host_job *j, int n_hosts)
{
    host_job_begin(j, own_path, n_hosts);
    etcd_start_at(&cluster, j->spread ? "10.77.0.254" : "127.0.0.1", 1, NULL);
    atexit(stop);
    j->backend = "etcd";
    j->endpoint = cluster.endpoints;
}

static void check_death(int victim)
{
    host_agent a[2];
    double start_ms, again_ms;
    host_job j;

    begin(&j, 2);
    host_agents_start(a, &j, 2);
    start_ms = host_now_ms();
    host_agent_kill(&a[victim], &j, true);
    again_ms = host_agent_runs(&a[1 - victim], 1) - start_ms;
    print_message("          1 again after %.0f ms\n", again_ms);
    assert_true(again_ms < HOST_AGAIN_MS);
    host_agent_bury(&a[victim]);
    host_agent_stop(&a[1 - victim]);
    host_job_end(&j);
}

/* No host is special. */
static void the_host_that_came_first_may_die(void **state)
{
    (void)state;
    check_death(0);
}

static void the_host_that_came_last_may_die(void **state)
{
    (void)state;
    check_death(1);
}

/* Its workers are stopped, since it cannot know what the others do, and never run alone. */
static void a_host_that_is_cut_off_from_all_waits_and_comes_back(void **state)
{
    host_agent a[2];
    host_job j;

    (void)state;
    begin(&j, 2);
    if (!j.spread) {
        host_job_end(&j);
        etcd_stop(&cluster);
        check_death(0);
        return;
    }
    host_agents_start(a, &j, 2);
    hosts_cut(2);
    (void)host_agent_runs(&a[0], 1);
    spawn_expect(&a[1].job.run, "restarting with the hosts that are left");
    spawn_read(&a[1].job.run, 1000);
    assert_int_equal(host_agent_count(&a[1], "ms: "), 0);
    host_agent_forget(&a[0]);
    hosts_heal(2);
    (void)host_agent_runs(&a[1], 2);
    (void)host_agent_runs(&a[0], 2);
    assert_int_equal(host_agent_count(&a[1], "ms: 1 of"), 0);
    host_agent_stop(&a[1]);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

/* Both reach etcd, so each joins again, and they would start again for ever: one of them gives up
 * and says why, the other one goes on alone. */
static void hosts_that_do_not_reach_each_other_do_not_start_again_for_ever(void **state)
{
    host_agent a[2];
    host_job j;
    int n = 0;

    (void)state;
    begin(&j, 2);
    if (!j.spread) {
        host_job_end(&j);
        etcd_stop(&cluster);
        check_death(1);
        return;
    }
    host_agents_start(a, &j, 2);
    hosts_mute(1, 2);
    (void)spawn_wait(&a[1].job.run);
    assert_int_equal(a[1].job.run.status, 1);
    trirun_has(SPAWN_ERR(&a[1].job.run), ") cannot reach its agent: ");
    host_agent_forget(&a[0]);
    (void)host_agent_runs(&a[0], 1);
    n = trirun_count(SPAWN_ERR(&a[1].job.run), "restarting with 2 hosts");
    print_message("          %d attempts\n", n);
    assert_in_range(n, 1, 8);
    trirun_end(&a[1].job, 0);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_host_that_came_first_may_die),
    cmocka_unit_test(the_host_that_came_last_may_die),
    cmocka_unit_test(a_host_that_is_cut_off_from_all_waits_and_comes_back),
    cmocka_unit_test(hosts_that_do_not_reach_each_other_do_not_start_again_for_ever),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 2 && strcmp(argv[1], "worker") == 0)
        return host_worker(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
