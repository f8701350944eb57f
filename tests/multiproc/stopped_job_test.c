/*
 * stopped_job_test.c - what `trireme why` and `trireme ps` tell of a job that somebody stopped by a
 * signal, or killed: how it was then. This program is also the worker.
 */
#include <signal.h>

#include <trireme/comm.h>

#include "testing/launcher_job.h"

enum { LARGE = 1 << 20 };

/* --- the worker ----------------------------------------------------------- */

/* Rank 0 sends to rank 1 what 1 does not receive, for 1 does the same; rank 2 receives from 1. */
static int wait_for_each_other(void)
{
    static float x[LARGE];
    tri_status status = tri_init(NULL);

    if (status == TRI_OK)
        status = tri_barrier(NULL, NULL);
    if (status == TRI_OK && tri_rank() < 2)
        status = tri_send(NULL, x, LARGE, TRI_DTYPE_F32, 1 - tri_rank(), 5, NULL);
    else if (status == TRI_OK)
        status = tri_recv(NULL, x, 1, TRI_DTYPE_F32, 1, 7, NULL);
    return status == TRI_OK ? 0 : 1;
}

/* --- tests ---------------------------------------------------------------- */

static void start(launcher_job *j)
{
    static char self[300];

    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN(j, "--nproc-per-node=3", "--shutdown-timeout=2", self, "--worker");
    /* rank 1 is in its send; what the log knows of it is its last collective */
    spawn_expect(&j->trirun, "rank 0: has waited");
    assert_has(SPAWN_ERR(&j->trirun), "for rank 1 to receive (its last collective: barrier #1");
    spawn_expect(&j->trirun, "rank 1: has waited");
    spawn_expect(&j->trirun, "rank 2: has waited");
}

static void ask(const launcher_job *j, spawn *tool, const char *command, const char *option)
{
    char home[300];
    const char *const argv[] = {spawn_bin("trireme"), command, option, NULL};
    const char *const env[] = {home, "TRI_RUN_DIR", NULL};

    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", j->home);
    spawn_start(tool, argv, env);
    assert_int_equal(spawn_wait(tool), 0);
}

/* Ranks begin to wait when they do: each has its own time. */
static void has_waits(const char *text, const char *of_rank_0, const char *of_rank_2)
{
    char line[120];

    snprintf(line, sizeof(line),
             "\nrank 0 waited%s in group world, send #1 of 1048576 f32 to rank 1", of_rank_0);
    assert_has(text, line);
    assert_has(text,
               ", for rank 1, which was in send #1 of 1048576 f32 to rank 0, tag 5 (stopped_");
    assert_has(text,
               ", for rank 0, which was in send #1 of 1048576 f32 to rank 1, tag 5 (stopped_");
    snprintf(line, sizeof(line), "\nrank 2 waited%s in group world, recv #1 of 1 f32 from rank 1",
             of_rank_2);
    assert_has(text, line);
    assert_has_not(text, "which is in");
    assert_has_not(text, "(dead)");
}

/* " for 1.7 s": after `before`. */
static void how_long(const char *text, const char *before, char *out, size_t bytes)
{
    const char *at = strstr(text, before);

    assert_non_null(at);
    at += strlen(before);
    assert_true(strncmp(at, " for ", 5) == 0 && strtod(at + 5, NULL) >= 1.0);
    snprintf(out, bytes, "%.*s", (int)(strcspn(at, "s") + 1), at);
}

static void who_waited_for_whom(int number, int exit_code, const char *who_ended_it)
{
    launcher_job j;
    char times[2][40];
    spawn tool;

    start(&j);
    spawn_signal(&j.trirun, number);
    assert_int_equal(spawn_wait(&j.trirun), exit_code);
    spawn_expect_no_process(&j.trirun);
    ask(&j, &tool, "why", NULL);
    how_long(SPAWN_OUT(&tool), "\nrank 0 waited", times[0], sizeof(times[0]));
    how_long(SPAWN_OUT(&tool), "\nrank 2 waited", times[1], sizeof(times[1]));
    has_waits(SPAWN_OUT(&tool), times[0], times[1]);
    assert_has(SPAWN_OUT(&tool), who_ended_it);
    assert_has_not(SPAWN_OUT(&tool), "PEER_LOST"); /* that came of it */
    assert_has_not(SPAWN_OUT(&tool), "dead: ");
    spawn_free(&tool);
    ask(&j, &tool, "ps", "--all");
    assert_has(SPAWN_OUT(&tool), "in send #1 of 1048576 f32 to rank 1, tag 5 (stopped_job_test.c:");
    assert_has_not(SPAWN_OUT(&tool), "-1.0 s");
    assert_has(SPAWN_OUT(&tool), " s ago\n");
    spawn_free(&tool);
    trirun_end(&j, 1);
}

static void why_names_who_waited_for_whom_when_the_job_was_stopped(void **state)
{
    (void)state;
    who_waited_for_whom(SIGINT, 1, "\ntrirun ended the job: it received SIGINT\n");
}

/* trirun's guard notes when that was, before it kills the ranks one by one. */
static void why_names_who_waited_for_whom_when_trirun_was_killed(void **state)
{
    (void)state;
    who_waited_for_whom(SIGKILL, -SIGKILL,
                        "\ntrirun was killed or crashed, and the job ended with it\n");
}

/* To trirun's children, which are its guard and the workers, and to trirun. */
static void signal_all(const launcher_job *j, int number)
{
    char path[64], children[400] = "";
    size_t bytes;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", j->trirun.pid, j->trirun.pid);
    f = fopen(path, "r");
    assert_non_null(f);
    bytes = fread(children, 1, sizeof(children) - 1, f);
    fclose(f);
    assert_true(bytes > 0);
    for (char *at = children, *end; strtol(at, &end, 10) > 0; at = end)
        kill((pid_t)strtol(at, NULL, 10), number);
    spawn_signal(&j->trirun, number);
}

/* As by the kernel, for want of memory, or by `kill -9` of a whole job: nobody noted when. */
static void why_names_who_waited_for_whom_when_all_were_killed(void **state)
{
    launcher_job j;
    spawn tool;

    (void)state;
    start(&j);
    signal_all(&j, SIGSTOP); /* so that none sees another's end */
    signal_all(&j, SIGKILL);
    assert_int_equal(spawn_wait(&j.trirun), -SIGKILL);
    spawn_expect_no_process(&j.trirun);
    ask(&j, &tool, "why", NULL);
    has_waits(SPAWN_OUT(&tool), "", "");
    assert_has(SPAWN_OUT(&tool), "the job was killed as a whole");
    spawn_free(&tool);
    trirun_end(&j, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(why_names_who_waited_for_whom_when_the_job_was_stopped),
    cmocka_unit_test(why_names_who_waited_for_whom_when_trirun_was_killed),
    cmocka_unit_test(why_names_who_waited_for_whom_when_all_were_killed),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return wait_for_each_other();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
