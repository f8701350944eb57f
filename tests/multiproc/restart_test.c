/*
 * restart_test.c - --max-restarts on one host: every attempt starts with an empty store and
 * without anything of the attempt before, and says what ended it.
 *
 * Workers are shell scripts; $$$$ is the shell's own process id. ATTEMPT is short for
 * TORCHELASTIC_RESTART_COUNT in what they print.
 */
#include <signal.h>

#include "testing/trirun_job.h"

#define ATTEMPT "$TORCHELASTIC_RESTART_COUNT"

static void a_failed_job_starts_again_with_all_workers(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--max-restarts", "3", "--nproc-per-node", "2", "sh", "-c",
                 ("echo attempt " ATTEMPT " of $TORCHELASTIC_MAX_RESTARTS rank $RANK\n"
                  "[ " ATTEMPT " = 2 ] && exit 0\n"
                  "[ $RANK = 1 ] && exit $((5 + " ATTEMPT ")); exec sleep 1000"));
    assert_int_equal(spawn_wait(&j.run), 0);
    for (int attempt = 0; attempt < 3; attempt++) {
        for (int rank = 0; rank < 2; rank++) {
            char line[80];

            snprintf(line, sizeof(line), "attempt %d of 3 rank %d\n", attempt, rank);
            /* rank 0 may be stopped before it has said anything */
            if (attempt == 2 || rank == 1)
                trirun_has(SPAWN_OUT(&j.run), line);
        }
    }
    trirun_has(SPAWN_ERR(&j.run), "rank 1 exited with code 5");
    trirun_has(SPAWN_ERR(&j.run), "restarting (restart 1 of 3)");
    trirun_has(SPAWN_ERR(&j.run), "rank 1 exited with code 6");
    trirun_has(SPAWN_ERR(&j.run), "restarting (restart 2 of 3)");
    trirun_end(&j, 0);
}

static void each_attempt_names_its_own_cause_and_the_last_one_counts(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--max-restarts=1", "--nproc-per-node", "3", "sh", "-c",
                 ("[ $RANK = $((1 + " ATTEMPT ")) ] || exec sleep 1000\n"
                  "echo words of attempt " ATTEMPT " >&2; kill -SEGV $$$$"));
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "sh failed: rank 1 was killed by SIGSEGV");
    trirun_has(SPAWN_ERR(&j.run), "words of attempt 0\n");
    trirun_has(SPAWN_ERR(&j.run), "sh failed: rank 2 was killed by SIGSEGV");
    trirun_has(SPAWN_ERR(&j.run), "words of attempt 1\n");
    assert_int_equal(trirun_count(SPAWN_ERR(&j.run), " failed: "), 2);
    assert_int_equal(trirun_count(SPAWN_ERR(&j.run), "restarting"), 1);
    assert_int_equal(trirun_count(SPAWN_ERR(&j.run), "  kept     : "), 1);
    trirun_end(&j, 1);
}

/* torchrun 2.13: keys of the attempt before are still there, and workers connect to the dead. */
static void no_key_of_an_earlier_attempt_is_there(void **state)
{
    char script[1024];
    trirun_job j;

    (void)state;
    snprintf(script, sizeof(script),
             "%s store set address/%s here || exit 9\n"
             "[ $RANK = 0 ] || exec sleep 1000\n"
             "%s store keys | sort | sed 's/^/key /'\n"
             "[ " ATTEMPT " = 2 ] && exit 0; exit 1",
             spawn_bin("trireme"), ATTEMPT, spawn_bin("trireme"));
    TRIRUN_START(&j, "--max-restarts=2", "sh", "-c", script);
    assert_int_equal(spawn_wait(&j.run), 0);
    assert_string_equal(SPAWN_OUT(&j.run), "key address/0\nkey address/1\nkey address/2\n");
    trirun_end(&j, 0);
}

static void a_port_that_was_asked_for_stays_through_restarts(void **state)
{
    char port[8], script[256], line[80];
    trirun_job j;

    (void)state;
    snprintf(port, sizeof(port), "%d", spawn_free_port());
    snprintf(script, sizeof(script),
             "%s store set k" ATTEMPT " v && %s store num-keys; echo $MASTER_PORT; "
             "[ " ATTEMPT " = 1 ]",
             spawn_bin("trireme"), spawn_bin("trireme"));
    TRIRUN_START(&j, "--max-restarts=1", "--master-port", port, "sh", "-c", script);
    if (spawn_wait(&j.run) != 0)
        fail_msg("%s", SPAWN_ERR(&j.run));
    snprintf(line, sizeof(line), "1\n%s\n1\n%s\n", port, port);
    assert_string_equal(SPAWN_OUT(&j.run), line);
    trirun_end(&j, 0);
}

static void workers_meet_again_after_a_restart(void **state)
{
    char script[512];
    trirun_job j;

    (void)state;
    snprintf(script, sizeof(script), "[ $RANK" ATTEMPT " = 10 ] && kill -KILL $$$$; exec %s",
             spawn_bin("plain_ddp"));
    TRIRUN_START(&j, "--max-restarts=1", "--nproc-per-node", "2", "sh", "-c", script);
    assert_int_equal(spawn_wait(&j.run), 0);
    trirun_has(SPAWN_ERR(&j.run), "rank 1 was killed by SIGKILL");
    trirun_end(&j, 0);
}

/* torchrun 2.13 waits 30 s here, whatever --shutdown-timeout says. */
static void the_shutdown_timeout_holds_between_attempts(void **state)
{
    double start = trirun_seconds();
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--shutdown-timeout", "0.2", "--max-restarts=1", "--nproc-per-node", "2", "sh",
                 "-c",
                 ("[ " ATTEMPT " = 1 ] && exit 0\n"
                  "if [ $RANK = 0 ]; then until [ -e $TRI_RUN_DIR/deaf ]; do :; done; exit 5; fi\n"
                  "trap '' TERM; : >$TRI_RUN_DIR/deaf; while :; do sleep 1000; done"));
    assert_int_equal(spawn_wait(&j.run), 0);
    trirun_has(SPAWN_ERR(&j.run), "1 worker did not end within 0.2 s: killing");
    assert_true(trirun_seconds() - start < 10);
    trirun_end(&j, 0);
}

static void what_an_attempt_left_running_is_ended_before_the_next(void **state)
{
    trirun_job j;

    (void)state;
    /* a child of its own session that notes its life in a file, and takes the note back at the
     * end */
    TRIRUN_START(
        &j, "--max-restarts=2", "sh", "-c",
        ("n=$TRI_RUN_DIR/alive\n"
         "[ -e $n ] && echo still there\n"
         "setsid sh -c \"trap 'rm $n; exit' TERM; : >$n; while :; do sleep 0.01; done\" &\n"
         "until [ -e $n ]; do :; done; [ " ATTEMPT " = 2 ]"));
    assert_int_equal(spawn_wait(&j.run), 0);
    assert_string_equal(SPAWN_OUT(&j.run), "");
    trirun_end(&j, 0);
}

static void a_signal_of_the_user_ends_it_in_the_middle_of_a_restart(void **state)
{
    char home[256], told[300];
    trirun_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(told, sizeof(told), "%s/told", home);
    setenv("TOLD", told, 1);
    TRIRUN_START(&j, "--max-restarts=100", "--nproc-per-node=2", "sh", "-c",
                 ("trap 'until [ -e $TOLD ]; do sleep 0.01; done; echo ended $RANK; exit 0' TERM\n"
                  "if [ $RANK = 0 ]; then until [ -e $TRI_RUN_DIR/up ]; do :; done; exit 1; fi\n"
                  ": >$TRI_RUN_DIR/up; while :; do sleep 0.01; done"));
    spawn_expect(&j.run, "stopping the other");
    spawn_signal(&j.run, SIGTERM);
    fclose(fopen(told, "w")); /* the worker does not end, and no restart begins, before */
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_OUT(&j.run), "ended 1\n");
    assert_null(strstr(SPAWN_ERR(&j.run), "restarting"));
    trirun_end(&j, 1);
    spawn_remove_folder(home);
}

static void killing_trirun_in_a_later_attempt_leaves_nothing(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--max-restarts=3", "--nproc-per-node", "2", "sh", "-c",
                 ("[ " ATTEMPT " = 2 ] || exit 1\n"
                  "setsid sleep 1000 & trap '' TERM; echo ready $RANK; while :; do sleep 1; done"));
    spawn_expect(&j.run, "ready 0");
    spawn_expect(&j.run, "ready 1");
    while (spawn_count(&j.run) < 2 + 2 * 3) /* trirun, its guard, three of each worker */
        ;
    spawn_signal(&j.run, SIGKILL);
    assert_int_equal(spawn_wait(&j.run), -SIGKILL);
    trirun_end(&j, 1);
}

static void many_restarts_use_nothing_up(void **state)
{
    trirun_job j;

    (void)state;
    /* descriptors of an attempt are given back: the last one has no higher numbers than the
     * first */
    TRIRUN_START(&j, "--max-restarts=60", "--nproc-per-node", "4", "sh", "-c",
                 ("[ $RANK = 0 ] || [ " ATTEMPT " = 60 ] || exec sleep 1000\n"
                  "[ $RANK = 0 ] || exit 0\n"
                  "echo descriptors $(ls /proc/$PPID/fd | wc -l); [ " ATTEMPT " = 60 ]"));
    (void)spawn_wait(&j.run);
    assert_int_equal(j.run.status, 0);
    assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "descriptors "), 61);
    {
        int first = 0, last = 0;

        assert_int_equal(sscanf(SPAWN_OUT(&j.run), "descriptors %d", &first), 1);
        for (const char *at = SPAWN_OUT(&j.run); (at = strstr(at, "descriptors ")) != NULL; at++)
            assert_int_equal(sscanf(at, "descriptors %d", &last), 1);
        assert_in_range(last, 1, first + 20); /* the guard, and workers that were not yet started */
    }
    trirun_end(&j, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_failed_job_starts_again_with_all_workers),
    cmocka_unit_test(each_attempt_names_its_own_cause_and_the_last_one_counts),
    cmocka_unit_test(no_key_of_an_earlier_attempt_is_there),
    cmocka_unit_test(a_port_that_was_asked_for_stays_through_restarts),
    cmocka_unit_test(workers_meet_again_after_a_restart),
    cmocka_unit_test(the_shutdown_timeout_holds_between_attempts),
    cmocka_unit_test(what_an_attempt_left_running_is_ended_before_the_next),
    cmocka_unit_test(a_signal_of_the_user_ends_it_in_the_middle_of_a_restart),
    cmocka_unit_test(killing_trirun_in_a_later_attempt_leaves_nothing),
    cmocka_unit_test(many_restarts_use_nothing_up),
};

TEST_MAIN(tests)
