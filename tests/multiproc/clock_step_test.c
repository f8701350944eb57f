/*
 * clock_step_test.c - the wall clock is set by a day, forth and back, while a job runs: nothing is
 * decided by it. The agents are this program, with the launcher's code and a wall clock of its own:
 * it is ahead by the seconds that a file says, which the tests and the workers write.
 */
/* ctest: labels=quick timeout=60 program=own */
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <trireme/comm.h>

#include "launch/agent.h"
#include "testing/trirun_job.h"

#define AHEAD "TRI_TEST_CLOCK"

static const char *ahead_path; /* NULL: this process is the test */

static int64_t ahead_s(void)
{
    char text[32] = "";
    FILE *file = ahead_path != NULL ? fopen(ahead_path, "r") : NULL;
    size_t n = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;

    if (file != NULL)
        fclose(file);
    return n > 0 ? strtoll(text, NULL, 10) : 0;
}

/* Instead of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    long done = syscall(SYS_clock_gettime, clock, now);

    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead_s();
    return (int)done;
}

time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}

static int run_agent(int argc, char **argv)
{
    trii_launch_options options;
    trii_launch_command command;
    int exit_status = TRII_LAUNCH_FAILED;

    ahead_path = getenv(AHEAD);
    if (trii_launch_options_parse(&options, argc, argv) != TRI_OK ||
        trii_launch_command_find(&command, &options) != TRI_OK ||
        trii_agent_run(&options, &command, &exit_status) != TRI_OK)
        fprintf(stderr, "agent: %s\n", tri_last_error());
    return exit_status;
}

/* --- tests ---------------------------------------------------------------- */

typedef struct clock_job {
    trirun_job job;
    char path[300]; /* says how far ahead the agent's clock is */
} clock_job;

static void start(clock_job *j, const char *const *args)
{
    static char self[4096];
    const char *argv[40] = {self, "--agent"};
    char own[sizeof(j->job.home)], home[300], clock[340];
    const char *env[] = {home, clock, "OMP_NUM_THREADS", "TRI_NUM_THREADS", "TRI_RUN_DIR", NULL};

    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    for (int i = 0; args[i] != NULL; i++)
        argv[i + 2] = args[i];
    spawn_make_folder(own, sizeof(own));
    memcpy(j->job.home, own, sizeof(own));
    snprintf(j->path, sizeof(j->path), "%s/clock", own);
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", own);
    snprintf(clock, sizeof(clock), AHEAD "=%s", j->path);
    snprintf(j->job.folder, sizeof(j->job.folder), "%s/trireme-%d", own, (int)getuid());
    spawn_start(&j->job.run, argv, env);
}
#define START(j, ...) start(j, (const char *const[]){__VA_ARGS__, NULL})

static void set_clock(const clock_job *j, const char *seconds)
{
    FILE *file = fopen(j->path, "w");

    assert_non_null(file);
    fputs(seconds, file);
    assert_int_equal(fclose(file), 0);
}

static const char *const steps[] = {"86400", "-86400"};

/* Rank 1 ends with 0 and without a word, the clock is set back, then rank 0 fails: what came first
 * stays first. */
static void the_order_of_ends_is_that_of_events(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char script[600];
        clock_job j;

        snprintf(script, sizeof(script),
                 "one=$TRI_RUN_DIR/one\n"
                 "[ $RANK = 1 ] && { echo $$$$ >$one.new; mv $one.new $one; exit 0; }\n"
                 "until [ -e $one ]; do sleep 0.01; done\n"
                 "while kill -0 $(cat $one) 2>/dev/null; do sleep 0.01; done\n"
                 "echo %s >$" AHEAD "; exit 3",
                 steps[i]);
        START(&j, "--nproc-per-node=2", "sh", "-c", script);
        assert_int_equal(spawn_wait(&j.job.run), 1);
        trirun_has(SPAWN_ERR(&j.job.run), "failed: rank 0 exited with code 3");
        assert_int_equal(trirun_count(SPAWN_ERR(&j.job.run), "8640"), 0); /* seconds */
        trirun_has(SPAWN_ERR(&j.job.run), "left     : rank 1 had ended with status 0 ");
        trirun_end(&j.job, 1);
    }
}

/* What they wrote down about themselves is by a clock that was set between. */
static void error_files_of_two_clocks_are_not_compared(void **state)
{
    static const char fails[] =
        "fail() { echo \"{\\\"message\\\": \\\"x\\\", \\\"timestamp\\\": $1}\""
        "  >$TORCHELASTIC_ERROR_FILE; exit $2; }\n"
        "[ $RANK = 1 ] && { trap 'fail 1700000000 3' TERM; touch $TRI_RUN_DIR/ready;"
        "  while :; do sleep 0.01; done; }\n"
        "until [ -e $TRI_RUN_DIR/ready ]; do sleep 0.01; done\n"
        "echo -86400 >$" AHEAD "; fail 1700000009 4";
    clock_job j;

    (void)state;
    START(&j, "--nproc-per-node=2", "sh", "-c", fails);
    assert_int_equal(spawn_wait(&j.job.run), 1);
    trirun_has(SPAWN_ERR(&j.job.run), "failed: rank 0 exited with code 4");
    trirun_end(&j.job, 1);
}

/* No hang, no grace that is over, no restart. */
static void a_running_job_does_not_notice(void **state)
{
    clock_job j;

    (void)state;
    START(&j, "--nproc-per-node=2", "--hang-timeout=20", "--max-restarts=2", "sh", "-c",
          "echo runs $TORCHELASTIC_RESTART_COUNT; exec sleep 1000");
    spawn_expect(&j.job.run, "runs 0\n");
    for (int i = 0; i < 2; i++) {
        set_clock(&j, steps[i]);
        spawn_read(&j.job.run, 300);
        assert_string_equal(SPAWN_ERR(&j.job.run), "");
    }
    spawn_signal(&j.job.run, SIGTERM);
    assert_int_equal(spawn_wait(&j.job.run), 1);
    trirun_end(&j.job, 0);
}

/* Rank 1 never comes. The library says after 1.5 s that it waits. */
static int wait_for_rank_1(void)
{
    float x = 1;

    if (tri_init(NULL) != TRI_OK)
        return 9;
    if (tri_rank() == 1)
        pause();
    return tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL) != TRI_OK;
}

/* Its records are by the clock before. */
static void how_long_a_job_waits_is_still_known(void **state)
{
    char self[4096] = "";
    clock_job j;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    START(&j, "--nproc-per-node=2", "--shutdown-timeout=1", self, "--wait");
    spawn_expect(&j.job.run, "trireme why");
    set_clock(&j, "86400");
    spawn_signal(&j.job.run, SIGINT);
    assert_int_equal(spawn_wait(&j.job.run), 1);
    trirun_has(SPAWN_ERR(&j.job.run), "workers waited in a call; see for whom: trireme why /");
    trirun_end(&j.job, 1);
}

/* While they meet, and while the round is on. */
static void hosts_do_not_notice(void **state)
{
    static const char *const kinds[] = {"static", "c10d"};
    int port;

    (void)state;
    for (int k = 0; k < 2; k++) {
        clock_job agents[2];
        char text[3][64];

        port = spawn_free_port();
        for (int i = 0; i < 2; i++) {
            snprintf(text[0], sizeof(text[0]), "--rdzv-backend=%s", kinds[k]);
            snprintf(text[1], sizeof(text[1]), "--rdzv-endpoint=127.0.0.1:%d", port);
            snprintf(text[2], sizeof(text[2]), "--node-rank=%d", i);
            START(&agents[i], text[0], text[1], text[2], k == 0 ? "--nnodes=2" : "--nnodes=2:3",
                  "--rdzv-id=c", "--max-restarts=2", "--host-timeout=3", "--rdzv-conf",
                  "timeout=20,join_timeout=20,last_call_timeout=0.5,keep_alive_interval=1", "sh",
                  "-c", "echo runs; exec sleep 1000");
            set_clock(&agents[i], steps[i]);
        }
        for (int i = 0; i < 2; i++) {
            spawn *run = &agents[i].job.run;

            spawn_expect(run, "runs\n");
            if (strstr(SPAWN_ERR(run), "restarting") != NULL)
                fail_msg("%s, agent %d: %s", kinds[k], i, SPAWN_ERR(run));
            run->used[1] = 0; /* what it said while the other one was late */
            SPAWN_ERR(run)[0] = '\0';
        }
        for (int i = 0; i < 4; i++) {
            set_clock(&agents[i % 2], steps[1 - i / 2]);
            spawn_read(&agents[i % 2].job.run, 400);
        }
        for (int i = 0; i < 2; i++) {
            spawn_read(&agents[i].job.run, 1);
            if (SPAWN_ERR(&agents[i].job.run)[0] != '\0')
                fail_msg("%s, agent %d: %s", kinds[k], i, SPAWN_ERR(&agents[i].job.run));
            assert_string_equal(SPAWN_OUT(&agents[i].job.run), "runs\n");
        }
        for (int i = 1; i >= 0; i--) {
            spawn_signal(&agents[i].job.run, SIGTERM);
            assert_int_equal(spawn_wait(&agents[i].job.run), 1);
            trirun_end(&agents[i].job, 0);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_order_of_ends_is_that_of_events),
    cmocka_unit_test(error_files_of_two_clocks_are_not_compared),
    cmocka_unit_test(a_running_job_does_not_notice),
    cmocka_unit_test(how_long_a_job_waits_is_still_known),
    cmocka_unit_test(hosts_do_not_notice),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--agent") == 0)
        return run_agent(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "--wait") == 0)
        return wait_for_rank_1();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
