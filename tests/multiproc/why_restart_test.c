/*
 * why_restart_test.c - `trireme why` of a job that was started again says nothing of the attempt
 * before. This program is also the worker.
 */
#include <signal.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "testing/launcher_job.h"

/* --- the workers ---------------------------------------------------------- */

/* In the first attempt rank 1 fails; in the second it waits for rank 0, which never calls. */
static int fail_then_hang(void)
{
    const char *attempt = getenv("TORCHELASTIC_RESTART_COUNT");
    float x = 1;

    if (tri_init(NULL) != TRI_OK || attempt == NULL)
        return 1;
    if (tri_rank() == 1 && strcmp(attempt, "0") == 0)
        return 7;
    if (tri_rank() == 1)
        return tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL) != TRI_OK;
    pause();
    return 0;
}

/* Says which rank it is of how many, and stays. */
static int stay(void)
{
    if (tri_init(NULL) != TRI_OK || tri_barrier(NULL, NULL) != TRI_OK)
        return 1;
    printf("rank %d of %d\n", tri_rank(), tri_world_size());
    fflush(stdout);
    pause();
    return 0;
}

/* --- tests ---------------------------------------------------------------- */

static const char *self(void)
{
    static char path[300];

    assert_true(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
    return path;
}

static void ask(const launcher_job *j, spawn *tool)
{
    char home[300];
    const char *const argv[] = {spawn_bin("trireme"), "why", NULL};
    const char *const env[] = {home, "TRI_RUN_DIR", NULL};

    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", j->home);
    spawn_start(tool, argv, env);
    assert_int_equal(spawn_wait(tool), 0);
}

static void the_cause_of_the_first_attempt_is_not_that_of_the_second(void **state)
{
    launcher_job j;
    spawn tool;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=1", self(),
           "--fail-then-hang");
    spawn_expect(&j.trirun, "rank 1: has waited");
    spawn_signal(&j.trirun, SIGINT);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "rank 1 exited with code 7");
    ask(&j, &tool);
    assert_has(SPAWN_OUT(&tool), "\ntrirun ended the job: it received SIGINT\n");
    assert_has_not(SPAWN_OUT(&tool), "code 7");
    spawn_free(&tool);
    trirun_end(&j, 1);
}

static void start_host(launcher_job *j, int port, bool serves)
{
    char endpoint[60], conf[60];

    snprintf(conf, sizeof(conf), "--rdzv-conf=last_call_timeout=0.2,is_host=%d", serves);
    snprintf(endpoint, sizeof(endpoint), "--rdzv-endpoint=127.0.0.1:%d", port);
    TRIRUN(j, "--nnodes=2:3", "--rdzv-backend=c10d", "--rdzv-id=t", endpoint, conf, self(),
           "--stay");
}

static int rank_of(launcher_job *j, int size)
{
    char text[16];

    for (int r = 0; r < size; r++) {
        snprintf(text, sizeof(text), "rank %d of %d", r, size);
        if (strstr(SPAWN_OUT(&j->trirun), text) != NULL)
            return r;
    }
    fail_msg("no rank of %d in:\n%s", size, SPAWN_OUT(&j->trirun));
    return -1;
}

/* The host whose rank has changed has a record of the old one. */
static void a_rank_of_the_larger_job_is_not_one_of_the_smaller(void **state)
{
    launcher_job j[3]; /* the first serves the store */
    int port = spawn_free_port(), gone, moved;
    spawn tool;

    (void)state;
    for (int i = 0; i < 3; i++)
        start_host(&j[i], port, i == 0);
    for (int i = 0; i < 3; i++)
        spawn_expect(&j[i].trirun, "of 3");
    gone = rank_of(&j[1], 3) < rank_of(&j[2], 3) ? 1 : 2;
    moved = 3 - gone;
    spawn_signal(&j[gone].trirun, SIGKILL);
    spawn_wait(&j[gone].trirun);
    spawn_expect(&j[0].trirun, "of 2");
    spawn_expect(&j[moved].trirun, "of 2");
    assert_int_not_equal(rank_of(&j[moved], 2), rank_of(&j[moved], 3));
    ask(&j[moved], &tool);
    assert_has(SPAWN_OUT(&tool), "2 ranks on ");
    assert_has(SPAWN_OUT(&tool), ": 1 running, 1 without a record");
    assert_has_not(SPAWN_OUT(&tool), "dead");
    spawn_free(&tool);
    for (int i = 2; i >= 0; i--) {
        if (i != gone) {
            spawn_signal(&j[i].trirun, SIGTERM);
            spawn_wait(&j[i].trirun);
        }
        trirun_end(&j[i], i == gone);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_cause_of_the_first_attempt_is_not_that_of_the_second),
    cmocka_unit_test(a_rank_of_the_larger_job_is_not_one_of_the_smaller),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--fail-then-hang") == 0)
        return fail_then_hang();
    if (argc > 1 && strcmp(argv[1], "--stay") == 0)
        return stay();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
