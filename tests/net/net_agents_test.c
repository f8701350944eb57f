/*
 * net_agents_test.c - agents of one job on several hosts, in network namespaces: hosts that are
 * killed, lose their power, are cut off in both directions or in one, or freeze;
 * and the host of the agents' store. Where a system gives no namespaces, the same with addresses of
 * the loopback interface as far as these go. Agents that meet in etcd: plugins/etcd_hosts_test.c.
 */
/* ctest: labels=quick timeout=90 */
#include "testing/host_agents.h"

static const char *own_path; /* of this program */

/* --- a host dies ---------------------------------------------------------- */

/* The agent's words come, and its workers run in a world of `size` after this loss. */
static void check_goes_on(host_agent *a, double start_ms, const char *words, int size)
{
    double noticed_ms, again_ms;

    spawn_expect(&a->job.run, words);
    noticed_ms = host_now_ms() - start_ms;
    again_ms = host_agent_runs(a, size) - start_ms;
    print_message("          noticed after %.0f ms, %d again after %.0f ms\n", noticed_ms, size,
                  again_ms);
    if (noticed_ms > HOST_NOTICED_MS || again_ms > HOST_AGAIN_MS)
        fail_msg("noticed after %.0f ms, again after %.0f ms:\n%s", noticed_ms, again_ms,
                 SPAWN_ERR(&a->job.run));
}

static void check_death(bool power)
{
    host_agent a[2];
    double start_ms;
    host_job j;

    host_job_begin(&j, own_path, 2);
    host_agents_start(a, &j, 2);
    start_ms = host_now_ms();
    host_agent_kill(&a[1], &j, power);
    /* it has ended, or, where there was no connection between the two yet, does not answer */
    check_goes_on(&a[0], start_ms,
                  power && j.spread ? "was silent for " HOST_SILENCE " s: " : "is gone: its agent ",
                  1);
    if (j.spread)
        trirun_has(SPAWN_ERR(&a[0].job.run), "host host2 (pid ");
    host_agent_bury(&a[1]);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

static void a_host_that_is_killed_is_noticed_at_once(void **state)
{
    (void)state;
    check_death(false);
}

static void a_host_that_loses_its_power_is_noticed_in_time(void **state)
{
    (void)state;
    check_death(true);
}

/* With neighbours on both sides, and a round of more than one afterwards. */
static void one_of_three_hosts_loses_its_power(void **state)
{
    host_agent a[3];
    double start_ms;
    host_job j;

    (void)state;
    host_job_begin(&j, own_path, 3);
    host_agents_start(a, &j, 3);
    start_ms = host_now_ms();
    host_agent_kill(&a[1], &j, true);
    check_goes_on(&a[0], start_ms, "restarting with the hosts that are left", 2);
    check_goes_on(&a[2], start_ms, "restarting with the hosts that are left", 2);
    assert_int_equal(host_agent_count(&a[0], "ms: "), 1); /* once */
    host_agent_bury(&a[1]);
    host_agent_stop(&a[2]);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

static void hosts_with_given_ranks_end_when_one_dies(void **state)
{
    host_agent a[3];
    double start_ms;
    host_job j;

    (void)state;
    host_job_begin(&j, own_path, 3);
    j.backend = "static";
    j.nnodes = "3";
    j.conf = "timeout=20";
    for (int i = 0; i < 3; i++)
        host_agent_start(&a[i], &j, i + 1);
    for (int i = 0; i < 3; i++)
        (void)host_agent_runs(&a[i], 3);
    start_ms = host_now_ms();
    host_agent_kill(&a[1], &j, true);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(spawn_wait(&a[i].job.run), 1);
        trirun_has(SPAWN_ERR(&a[i].job.run), "the job is over: host ");
        trirun_has(SPAWN_ERR(&a[i].job.run), j.spread ? "host2 (pid " : "(pid ");
    }
    assert_true(host_now_ms() - start_ms < HOST_AGAIN_MS);
    host_agent_bury(&a[1]);
    trirun_end(&a[0].job, 0);
    trirun_end(&a[2].job, 0);
    host_job_end(&j);
}

/* --- the host of the store ------------------------------------------------ */

/* The others end, soon, and say whose end it was. */
static void check_store_lost(host_agent *a, double start_ms, bool spread)
{
    assert_int_equal(spawn_wait(&a->job.run), 1);
    print_message("          over after %.0f ms\n", host_now_ms() - start_ms);
    assert_true(host_now_ms() - start_ms < HOST_AGAIN_MS);
    trirun_has(SPAWN_ERR(&a->job.run), "the job is over: host ");
    trirun_has(SPAWN_ERR(&a->job.run), spread ? "host1 (pid " : " is ");
    trirun_has(SPAWN_ERR(&a->job.run), "and the agents' store with it: the job cannot continue");
    assert_int_equal(host_agent_count(a, "ms: "), 0); /* and never ran without it */
}

static void the_stores_host_loses_its_power_and_the_others_end(void **state)
{
    host_agent a[3];
    double start_ms;
    host_job j;

    (void)state;
    host_job_begin(&j, own_path, 3);
    host_agents_start(a, &j, 3);
    start_ms = host_now_ms();
    host_agent_kill(&a[0], &j, true);
    for (int i = 1; i < 3; i++) {
        check_store_lost(&a[i], start_ms, j.spread);
        trirun_end(&a[i].job, 0);
    }
    host_agent_bury(&a[0]);
    host_job_end(&j);
}

/* The store's host is but one of those that are silent now. */
static void a_host_that_is_cut_off_from_all_ends(void **state)
{
    host_agent a[3];
    double start_ms;
    host_job j;

    (void)state;
    host_job_begin(&j, own_path, 3);
    if (!j.spread) {
        check_death(false);
        return;
    }
    host_agents_start(a, &j, 3);
    start_ms = host_now_ms();
    hosts_cut(3);
    check_goes_on(&a[0], start_ms, "restarting with the hosts that are left", 2);
    check_goes_on(&a[1], start_ms, "restarting with the hosts that are left", 2);
    check_store_lost(&a[2], start_ms, true);
    trirun_end(&a[2].job, 0);
    host_agent_stop(&a[1]);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

/* --- partitions ----------------------------------------------------------- */

typedef enum cut_kind { CUT_BOTH, CUT_TO_STORE, CUT_FROM_STORE, CUT_OWN_LINK } cut_kind;

static void cut(cut_kind kind)
{
    if (kind == CUT_BOTH)
        hosts_cut(2);
    else if (kind == CUT_TO_STORE)
        hosts_mute(2, 1);
    else if (kind == CUT_FROM_STORE)
        hosts_mute(1, 2);
    else
        hosts_ip(2, "link set eth0 down");
}

static void heal(cut_kind kind)
{
    if (kind == CUT_BOTH)
        hosts_heal(2);
    else if (kind == CUT_TO_STORE)
        hosts_unmute(2, 1);
    else if (kind == CUT_FROM_STORE)
        hosts_unmute(1, 2);
    else
        hosts_ip(2, "link set eth0 up");
}

/* The side with the store goes on, the other one ends and never runs alone; when the network is
 * whole again it can come back. */
static void check_partition(cut_kind kind)
{
    host_agent a[2];
    double start_ms;
    host_job j;

    host_job_begin(&j, own_path, 2);
    if (!j.spread) {
        check_death(false);
        return;
    }
    host_agents_start(a, &j, 2);
    start_ms = host_now_ms();
    cut(kind);
    check_goes_on(&a[0], start_ms, "host host2 (pid ", 1);
    check_store_lost(&a[1], start_ms, true);
    trirun_end(&a[1].job, 0);
    heal(kind);
    host_agent_start(&a[1], &j, 2);
    (void)host_agent_runs(&a[1], 2);
    (void)host_agent_runs(&a[0], 2);
    host_agent_stop(&a[1]);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

static void a_host_that_is_cut_off_ends_and_may_come_back(void **state)
{
    (void)state;
    check_partition(CUT_BOTH);
}

static void a_host_that_is_not_heard_ends_and_may_come_back(void **state)
{
    (void)state;
    check_partition(CUT_TO_STORE);
}

static void a_host_that_hears_nothing_ends_and_may_come_back(void **state)
{
    (void)state;
    check_partition(CUT_FROM_STORE);
}

static void a_host_whose_interface_is_down_ends_and_may_come_back(void **state)
{
    (void)state;
    check_partition(CUT_OWN_LINK);
}

/* Shorter than the silence that means death. */
static void a_wire_that_is_cut_for_a_moment_is_nothing(void **state)
{
    host_agent a[2];
    host_job j;

    (void)state;
    host_job_begin(&j, own_path, 2);
    j.silence = NULL;
    host_agents_start(a, &j, 2);
    for (int i = 0; i < 4; i++) {
        if (j.spread)
            hosts_cut(2);
        else
            spawn_signal(&a[1].job.run, SIGSTOP); /* as silent as without a wire */
        spawn_read(&a[0].job.run, 400);
        if (j.spread)
            hosts_heal(2);
        else
            spawn_signal(&a[1].job.run, SIGCONT);
        spawn_read(&a[0].job.run, 500 + 50 * i);
    }
    host_agents_stop(a, 2);
    host_job_end(&j);
}

/* --- a host freezes ------------------------------------------------------- */

static void freeze(host_agent *a, const host_job *j, int number)
{
    if (j->spread)
        hosts_signal(a->host, number);
    else
        spawn_signal(&a->job.run, number);
}

static void a_frozen_host_is_left_and_joins_again_when_it_thaws(void **state)
{
    host_agent a[2];
    double start_ms;
    host_job j;

    (void)state;
    host_job_begin(&j, own_path, 2);
    host_agents_start(a, &j, 2);
    start_ms = host_now_ms();
    freeze(&a[1], &j, SIGSTOP);
    check_goes_on(&a[0], start_ms, "was silent for " HOST_SILENCE " s: ", 1);
    host_agent_forget(&a[0]);
    freeze(&a[1], &j, SIGCONT);
    (void)host_agent_runs(&a[1], 2);
    (void)host_agent_runs(&a[0], 2);
    host_agent_stop(&a[1]);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

static void a_frozen_host_of_the_store_goes_on_alone_when_it_thaws(void **state)
{
    host_agent a[2];
    double start_ms;
    host_job j;

    (void)state;
    host_job_begin(&j, own_path, 2);
    host_agents_start(a, &j, 2);
    start_ms = host_now_ms();
    freeze(&a[0], &j, SIGSTOP);
    check_store_lost(&a[1], start_ms, j.spread);
    freeze(&a[0], &j, SIGCONT);
    (void)host_agent_runs(&a[0], 1);
    trirun_end(&a[1].job, 0);
    host_agent_stop(&a[0]);
    host_job_end(&j);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_host_that_is_killed_is_noticed_at_once),
    cmocka_unit_test(a_host_that_loses_its_power_is_noticed_in_time),
    cmocka_unit_test(one_of_three_hosts_loses_its_power),
    cmocka_unit_test(hosts_with_given_ranks_end_when_one_dies),
    cmocka_unit_test(the_stores_host_loses_its_power_and_the_others_end),
    cmocka_unit_test(a_host_that_is_cut_off_from_all_ends),
    cmocka_unit_test(a_host_that_is_cut_off_ends_and_may_come_back),
    cmocka_unit_test(a_host_that_is_not_heard_ends_and_may_come_back),
    cmocka_unit_test(a_host_that_hears_nothing_ends_and_may_come_back),
    cmocka_unit_test(a_host_whose_interface_is_down_ends_and_may_come_back),
    cmocka_unit_test(a_wire_that_is_cut_for_a_moment_is_nothing),
    cmocka_unit_test(a_frozen_host_is_left_and_joins_again_when_it_thaws),
    cmocka_unit_test(a_frozen_host_of_the_store_goes_on_alone_when_it_thaws),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 2 && strcmp(argv[1], "worker") == 0)
        return host_worker(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
