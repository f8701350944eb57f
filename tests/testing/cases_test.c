/*
 * cases_test.c - a case that crashes, hangs, fails or leaves costs no other case of its file
 * anything.
 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <sys/wait.h>

#include "testing/check.h"
#include "testing/scratch.h"
#include "testing/spawn.h"

/* --- cases, and what becomes of them -------------------------------------- */

static void passes(void **state)
{
    struct sigaction action;

    (void)state;
    assert_int_equal(sigaction(SIGINT, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
    assert_string_equal(getenv("TRI_TEST_CASE"), "passes");
}

static void fails(void **state)
{
    (void)state;
    fail_msg("one is not two");
}

static void crashes(void **state)
{
    (void)state;
    raise(SIGKILL);
}

static void leaves(void **state)
{
    (void)state;
    _exit(0);
}

static void hangs(void **state)
{
    (void)state;
    printf("it waits\n");
    fflush(stdout);
    for (;;)
        pause();
}

enum { OUTPUT_BYTES = 16384, RESULTS_BYTES = 1024 };

#define OUTCOME(name)                                                                              \
    {                                                                                              \
#name, name, NULL, NULL, NULL                                                              \
    }
static const struct CMUnitTest outcomes[] = {
    OUTCOME(crashes), OUTCOME(fails), OUTCOME(leaves),
    OUTCOME(passes),  OUTCOME(hangs), OUTCOME(passes),
};

static void read_text(scratch *s, const char *name, char *text, size_t n)
{
    size_t bytes;
    char *all = scratch_read(scratch_path(s, name), &bytes);

    assert_true(bytes < n);
    memcpy(text, all, bytes + 1);
    free(all);
}

/* Runs them in a process, whose output and results are then in these. */
static int run_outcomes(const char *at_once, const char *only, char *output, char *results)
{
    scratch s;
    int status;
    pid_t pid;

    scratch_begin(&s);
    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(scratch_path(&s, "output"), O_CREAT | O_WRONLY | O_APPEND, 0600);

        dup2(fd, STDOUT_FILENO);
        dup2(STDOUT_FILENO, STDERR_FILENO);
        signal(SIGINT, SIG_IGN); /* as of a program that a shell has put in the background */
        setenv("TRI_TEST_DEADLINE", "1", 1);
        setenv("TRI_TEST_AT_ONCE", at_once, 1);
        setenv("TRI_TEST_RESULTS", scratch_path(&s, "results"), 1);
        if (only != NULL)
            setenv("TRI_TEST_ONLY", only, 1);
        status = test_run_cases("outcomes", outcomes, sizeof(outcomes) / sizeof(outcomes[0]));
        fflush(stdout);
        _exit(status);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    read_text(&s, "output", output, OUTPUT_BYTES);
    read_text(&s, "results", results, RESULTS_BYTES);
    scratch_end(&s);
    return WEXITSTATUS(status);
}

/* --- tests ---------------------------------------------------------------- */

static void count(const char *results, const char *line, int times)
{
    int n = 0;

    for (const char *at = results; (at = strstr(at, line)) != NULL; at++)
        n++;
    if (n != times)
        fail_msg("\"%s\" %d times instead of %d in:\n%s", line, n, times, results);
}

static void each_case_has_an_outcome_of_its_own(void **state)
{
    static const char *const at_once[] = {"1", "4"};
    char output[OUTPUT_BYTES], results[RESULTS_BYTES];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_outcomes(at_once[i], NULL, output, results), 1);
        count(results, "\n", 6);
        count(results, "passed passes ", 2);
        count(results, "failed crashes ", 1);
        count(results, "failed fails ", 1);
        count(results, "failed leaves ", 1);
        count(results, "failed hangs ", 1);
    }
}

static void a_failed_case_shows_what_it_printed(void **state)
{
    char output[OUTPUT_BYTES], results[RESULTS_BYTES];

    (void)state;
    run_outcomes("1", NULL, output, results);
    count(output, "one is not two", 1);
    count(output, "it waits", 1);
    count(output, "FAILED hangs: no end after 1 s", 1);
    count(output, "FAILED crashes: Killed after", 1);
    count(output, "FAILED leaves: it left with status 0 before its end", 1);
    count(output, "2 passed, 4 failed", 1);
}

static void one_case_is_chosen(void **state)
{
    char output[OUTPUT_BYTES], results[RESULTS_BYTES];

    (void)state;
    assert_int_equal(run_outcomes("1", "passes", output, results), 0);
    count(results, "\n", 2);
    assert_int_equal(run_outcomes("1", "no_such", output, results), 1);
    count(results, "\n", 0);
}

static void what_a_killed_case_has_started_ends_with_it(void **state)
{
    static const char *const argv[] = {"sleep", "1000", NULL};
    int pipe_fd[2], status;
    pid_t pid;
    spawn s;

    (void)state;
    assert_int_equal(pipe(pipe_fd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        spawn_start(&s, argv, NULL);
        if (write(pipe_fd[1], &s, sizeof(s)) != sizeof(s))
            _exit(1);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(read(pipe_fd[0], &s, sizeof(s)), sizeof(s));
    spawn_expect_no_process(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_case_has_an_outcome_of_its_own),
    cmocka_unit_test(a_failed_case_shows_what_it_printed),
    cmocka_unit_test(one_case_is_chosen),
    cmocka_unit_test(what_a_killed_case_has_started_ends_with_it),
};

TEST_MAIN(tests)
