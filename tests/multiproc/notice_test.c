/*
 * notice_test.c - SIGUSR1 to trirun: workers that handle it are told how long they have, others are
 * left alone, other hosts hear of it, and the job goes on. This program is also a worker.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <trireme/comm.h>
#include <trireme/launch.h>

#include "testing/launcher_job.h"

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A worker with the library: prints what it was told, and ends well. */
static int stop_scene(void)
{
    sigset_t none, notice;
    int64_t left_ms;

    sigemptyset(&none);
    sigemptyset(&notice);
    sigaddset(&notice, SIGUSR1);
    sigprocmask(SIG_BLOCK, &notice, NULL); /* it comes below only, so none is missed */
    if (tri_stop_watch() != TRI_OK)
        return 9;
    printf("ready\n");
    fflush(stdout);
    while (tri_stop_signal() == 0)
        sigsuspend(&none);
    left_ms = tri_stop_left_ms();
    if (left_ms == TRI_FOREVER)
        printf("signal %d, no time given\n", tri_stop_signal());
    else
        printf("signal %d, %d s left\n", tri_stop_signal(), (int)((left_ms + 999) / 1000));
    return 0;
}

static void *sleep_for_ever(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

/* A worker that waits for the signal, but has a thread that it would end. */
static int half_blocked_scene(void)
{
    pthread_t thread;
    sigset_t set;

    pthread_create(&thread, NULL, sleep_for_ever, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    printf("ready\n");
    fflush(stdout);
    pause();
    return 0;
}

static const char *self(void)
{
    static char path[4096];

    assert_true(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
    return path;
}

/* Makes the file `go` in the folder of the job that runs. */
static void let_go(const launcher_job *j)
{
    char command[400];
    spawn s;

    snprintf(command, sizeof(command), "touch $(ls -d %s/*)/go", j->folder);
    spawn_start(&s, (const char *const[]){"sh", "-c", command, NULL}, NULL);
    assert_int_equal(spawn_wait(&s), 0);
    spawn_free(&s);
}

static void start(launcher_job *j, const char *option, const char *const *env)
{
    trirun_start(j, (const char *const[]){option, "--shutdown-timeout=7", self(), "stop", NULL},
                 env);
    spawn_expect(&j->trirun, "ready\n");
}

/* The worker reads what is left at that moment: a little less than was said. */
static void expect_told(launcher_job *j, const char *trirun_says, int seconds)
{
    const char *told;
    int left = -1;

    assert_int_equal(spawn_wait(&j->trirun), 0);
    assert_has(SPAWN_ERR(&j->trirun), trirun_says);
    told = strstr(SPAWN_OUT(&j->trirun), "signal 10, ");
    assert_non_null(told);
    assert_int_equal(sscanf(told, "signal 10, %d s left", &left), 1);
    assert_in_range(left, seconds - 4, seconds);
    trirun_end(j, 0);
}

/* The sender's own word is the strongest, then the flag, then the end of the Slurm job. */
static void a_worker_is_told_how_long_it_has(void **state)
{
    char end_time[64];
    launcher_job j;

    (void)state;
    start(&j, "--notice-seconds=60", NULL);
    spawn_signal(&j.trirun, SIGUSR1);
    expect_told(
        &j, "received SIGUSR1: this host will be preempted in 60 s; notified 1 of 1 worker\n", 60);
    start(&j, "--notice-seconds=60", NULL);
    assert_int_equal(sigqueue(j.trirun.pid, SIGUSR1, (union sigval){.sival_int = 5000}), 0);
    expect_told(&j, "preempted in 5 s; ", 5);
    snprintf(end_time, sizeof(end_time), "SLURM_JOB_END_TIME=%lld", (long long)time(NULL) + 990);
    start(&j, "--nnodes=1", ENV(end_time));
    spawn_signal(&j.trirun, SIGUSR1);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_ERR(&j.trirun), "preempted in 9");
    assert_has(SPAWN_OUT(&j.trirun), "signal 10, 9");
    trirun_end(&j, 0);
    /* the job's end is far: that is not what the notice is about */
    snprintf(end_time, sizeof(end_time), "SLURM_JOB_END_TIME=%lld", (long long)time(NULL) + 9000);
    start(&j, "--nnodes=1", ENV(end_time));
    spawn_signal(&j.trirun, SIGUSR1);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_ERR(&j.trirun), "this host will be preempted soon; notified 1 of 1");
    assert_has(SPAWN_OUT(&j.trirun), "signal 10, no time given\n");
    trirun_end(&j, 0);
}

/* A shell with a trap is told, also below one without; what has no handler lives on. */
static void only_who_handles_it_gets_it(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=3", "--notice-seconds=9", "--events=/dev/stdout", "sh", "-c",
           "forever() { while :; do sleep 0.01; done; };"
           "[ $RANK = 0 ] && { trap 'echo trap told; exit 0' USR1; echo ready 0; forever; };"
           "[ $RANK = 1 ] && { (trap 'echo below told; exit 0' USR1; echo ready 1; forever);"
           "  echo above lives; exit 0; };"
           "echo ready 2; until [ -e $TRI_RUN_DIR/go ]; do sleep 0.01; done; echo deaf lives");
    spawn_expect(&j.trirun, "ready 0\n");
    spawn_expect(&j.trirun, "ready 1\n");
    spawn_expect(&j.trirun, "ready 2\n");
    spawn_signal(&j.trirun, SIGUSR1);
    spawn_expect(&j.trirun, "notified 2 of 3 workers\n");
    let_go(&j);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "trap told\n");
    assert_has(SPAWN_OUT(&j.trirun), "below told\n");
    assert_has(SPAWN_OUT(&j.trirun), "above lives\n");
    assert_has(SPAWN_OUT(&j.trirun), "deaf lives\n");
    assert_has(SPAWN_ERR(&j.trirun), "trirun: rank 2 (pid ");
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "was not notified"), 1);
    assert_has(SPAWN_OUT(&j.trirun), "\"event\": \"notice\"");
    assert_has(SPAWN_OUT(&j.trirun), "\"seconds\": 9.000, \"workers_told\": 2}");
    trirun_end(&j, 0);
}

/* bash with a trap of EXIT has a handler for every signal that would end it, and ends of it. */
static void a_shell_with_an_exit_trap_is_not_ended(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "bash", "-c",
           "trap 'echo cleaned $RANK' EXIT;"
           "[ $RANK = 0 ] && { sh -c \"trap 'echo below told; exit 0' USR1; echo ready 0;"
           "  while :; do sleep 0.01; done\"; echo above lives; exit 0; };"
           "echo ready 1; until [ -e $TRI_RUN_DIR/go ]; do sleep 0.01; done; echo lives");
    spawn_expect(&j.trirun, "ready 0\n");
    spawn_expect(&j.trirun, "ready 1\n");
    spawn_signal(&j.trirun, SIGUSR1);
    spawn_expect(&j.trirun, "notified 1 of 2 workers\n");
    let_go(&j);
    if (spawn_wait(&j.trirun) != 0)
        fail_msg("%s", SPAWN_ERR(&j.trirun));
    assert_has(SPAWN_OUT(&j.trirun), "below told\n");
    assert_has(SPAWN_OUT(&j.trirun), "above lives\n");
    assert_has(SPAWN_OUT(&j.trirun), "cleaned 0\n");
    assert_has(SPAWN_OUT(&j.trirun), "lives\n");
    assert_has(SPAWN_OUT(&j.trirun), "cleaned 1\n");
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "was not notified"), 1);
    trirun_end(&j, 0);
}

static void a_thread_that_does_not_block_it_counts(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, self(), "half");
    spawn_expect(&j.trirun, "ready\n");
    spawn_signal(&j.trirun, SIGUSR1);
    spawn_expect(&j.trirun, "it has no handler for SIGUSR1, which would kill it\n");
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "notified 0 of 1 worker\n");
    trirun_end(&j, 0);
}

/* A notice that comes while a worker starts is not lost. */
static void a_handler_installed_later_is_told_then(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "sh", "-c",
           "echo ready; until [ -e $TRI_RUN_DIR/go ]; do sleep 0.01; done;"
           "trap 'echo told; exit 0' USR1; while :; do sleep 0.01; done");
    spawn_expect(&j.trirun, "ready\n");
    spawn_signal(&j.trirun, SIGUSR1);
    spawn_expect(&j.trirun, "was not notified");
    let_go(&j);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_ERR(&j.trirun), "1 more worker handles SIGUSR1 now: notified\n");
    assert_has(SPAWN_OUT(&j.trirun), "told\n");
    trirun_end(&j, 0);
}

/* torchrun's way, for those who ask for it. */
static void a_notice_stops_the_job_if_the_user_wants_that(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--signals-to-handle=SIGUSR1,SIGTERM", "sh", "-c", "echo ready; exec sleep 1000");
    spawn_expect(&j.trirun, "ready\n");
    spawn_signal(&j.trirun, SIGUSR1);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "received SIGUSR1: stopping 1 worker");
    trirun_end(&j, 0);
}

/* The other hosts say so, and their workers are left alone. */
static void other_hosts_hear_of_it(void **state)
{
    enum { HOSTS = 3, TOLD = 1 };
    launcher_job j[HOSTS];
    char port[40], rank[40], told[200];

    (void)state;
    snprintf(port, sizeof(port), "--master-port=%d", spawn_free_port());
    for (int i = 0; i < HOSTS; i++) {
        snprintf(rank, sizeof(rank), "--node-rank=%d", i);
        TRIRUN(&j[i], "--nnodes=3", rank, "--master-addr=127.0.0.1", port, "--notice-seconds=60",
               "--events=/dev/stdout", "sh", "-c",
               "echo ready; until [ -e $TRI_RUN_DIR/go ]; do sleep 0.05; done");
    }
    for (int i = 0; i < HOSTS; i++)
        spawn_expect(&j[i].trirun, "ready\n");
    spawn_signal(&j[TOLD].trirun, SIGUSR1);
    snprintf(told, sizeof(told), "(pid %d) will be preempted in ", j[TOLD].trirun.pid);
    for (int i = 0; i < HOSTS; i++)
        spawn_expect(&j[i].trirun, i == TOLD ? "notified 0 of 1 worker\n" : told);
    for (int i = 0; i < HOSTS; i++)
        let_go(&j[i]);
    for (int i = 0; i < HOSTS; i++) {
        if (spawn_wait(&j[i].trirun) != 0)
            fail_msg("host %d: %s", i, SPAWN_ERR(&j[i].trirun));
        assert_int_equal(count_in(SPAWN_ERR(&j[i].trirun), " will be preempted in "), 1);
        assert_has(SPAWN_OUT(&j[i].trirun),
                   i == TOLD ? "\"workers_told\": 0}" : "\"workers_told\": null}");
        trirun_end(&j[i], 0);
    }
}

/* There are no workers yet, and no hosts that hear it: both are told when they come. */
static void a_notice_before_the_hosts_are_there_is_kept(void **state)
{
    launcher_job j[2];
    char port[40], told[200];

    (void)state;
    snprintf(port, sizeof(port), "--master-port=%d", spawn_free_port());
    TRIRUN(&j[0], "--nnodes=2", "--master-addr=127.0.0.1", port, "--notice-seconds=60", self(),
           "stop");
    spawn_expect(&j[0].trirun, "1 of 2 hosts joined");
    spawn_signal(&j[0].trirun, SIGUSR1);
    spawn_expect(&j[0].trirun, "this host will be preempted in 60 s; notified 0 of 0 workers\n");
    TRIRUN(&j[1], "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", port, "sh", "-c",
           "echo ready; until [ -e $TRI_RUN_DIR/go ]; do sleep 0.05; done");
    spawn_expect(&j[1].trirun, "ready\n");
    snprintf(told, sizeof(told), "(pid %d) will be preempted in ", j[0].trirun.pid);
    spawn_expect(&j[1].trirun, told);
    spawn_expect(&j[0].trirun, "signal 10, ");
    let_go(&j[1]);
    expect_told(&j[0], "1 more worker handles SIGUSR1 now: notified\n", 60);
    assert_int_equal(spawn_wait(&j[1].trirun), 0);
    trirun_end(&j[1], 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_worker_is_told_how_long_it_has),
    cmocka_unit_test(only_who_handles_it_gets_it),
    cmocka_unit_test(a_shell_with_an_exit_trap_is_not_ended),
    cmocka_unit_test(a_thread_that_does_not_block_it_counts),
    cmocka_unit_test(a_handler_installed_later_is_told_then),
    cmocka_unit_test(a_notice_stops_the_job_if_the_user_wants_that),
    cmocka_unit_test(other_hosts_hear_of_it),
    cmocka_unit_test(a_notice_before_the_hosts_are_there_is_kept),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "stop") == 0)
        return stop_scene();
    if (argc > 1 && strcmp(argv[1], "half") == 0)
        return half_blocked_scene();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
