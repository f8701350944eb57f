/*
 * launcher_logs_test.c - where the workers' output goes: files in torchrun's layout, the terminal,
 * both, or nowhere.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include "testing/launcher_job.h"

/* The one entry of a folder that begins with `begin`. */
static void only_entry(const char *folder, const char *begin, char *path, size_t bytes)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, begin, strlen(begin)) == 0 && entry->d_name[0] != '.') {
            snprintf(path, bytes, "%s/%s", folder, entry->d_name);
            n++;
        }
    }
    closedir(dir);
    assert_int_equal(n, 1);
}

static void expect_file(const char *run, const char *name, const char *text)
{
    char path[600], seen[4096];

    snprintf(path, sizeof(path), "%s/%s", run, name);
    if (!slurp(path, seen, sizeof(seen))) {
        if (text != NULL)
            fail_msg("%s is missing", path);
        return;
    }
    if (text == NULL)
        fail_msg("%s should not be there", path);
    assert_string_equal(seen, text);
}

#define SPEAK "echo out $RANK; echo err $RANK >&2"

static void redirected_output_is_in_torchruns_files_only(void **state)
{
    char folder[256], logs[300], run[400];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(logs, sizeof(logs), "%s/a/b", folder); /* made if it is missing */
    TRIRUN(&j, "--nproc-per-node=2", "--log-dir", logs, "--rdzv-id=job", "-r", "0:1,1:3", "sh",
           "-c", SPEAK);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "");
    assert_string_equal(SPAWN_ERR(&j.trirun), "err 0\n");
    only_entry(logs, "job_", run, sizeof(run));
    expect_file(run, "attempt_0/0/stdout.log", "out 0\n");
    expect_file(run, "attempt_0/0/stderr.log", NULL);
    expect_file(run, "attempt_0/1/stdout.log", "out 1\n");
    expect_file(run, "attempt_0/1/stderr.log", "err 1\n");
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

static void teed_output_is_in_both_places_with_torchruns_label(void **state)
{
    char logs[300], run[400];
    launcher_job j;

    (void)state;
    spawn_make_folder(logs, sizeof(logs));
    TRIRUN(&j, "--nproc-per-node=2", "--log-dir", logs, "--role=train", "-t3",
           "--local-ranks-filter=1", "--duplicate-stdout-filters=out 1,x,,y", "sh", "-c", SPEAK);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "[train1]:out 1\n");
    assert_string_equal(SPAWN_ERR(&j.trirun), "[train1]:err 1\n");
    only_entry(logs, "", run, sizeof(run));
    expect_file(run, "attempt_0/0/stdout.log", "out 0\n");
    expect_file(run, "attempt_0/0/stderr.log", "err 0\n");
    expect_file(run, "attempt_0/1/stdout.log", "out 1\n");
    expect_file(run, "attempt_0/filtered_stdout.log", "[train1]:out 1\n");
    expect_file(run, "attempt_0/filtered_stderr.log", NULL);
    trirun_end(&j, 0);
    spawn_remove_folder(logs);
}

/* How many lines the file has. */
static int count_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    int n = 0, c;

    assert_non_null(file);
    while ((c = getc(file)) != EOF)
        n += c == '\n';
    fclose(file);
    return n;
}

/* More than fits into pipes and queues: most of it comes when nobody reads any more. */
static void files_are_whole_after_the_reader_has_left(void **state)
{
    char logs[300], run[400], path[500];
    launcher_job j;

    (void)state;
    spawn_make_folder(logs, sizeof(logs));
    TRIRUN(&j, "--nproc-per-node=2", "--log-dir", logs, "--tee=3",
           "--duplicate-stdout-filters=keep", "awk",
           "BEGIN { for (i = 0; i < 60000; i++) printf \"%s %050d\\n\", i % 3 ? \"drop\" : "
           "\"keep\", i }");
    spawn_expect(&j.trirun, "keep");
    close(j.trirun.fd[0]);
    j.trirun.fd[0] = -1;
    assert_int_equal(spawn_wait(&j.trirun), 0);
    only_entry(logs, "", run, sizeof(run));
    snprintf(path, sizeof(path), "%s/attempt_0/0/stdout.log", run);
    assert_int_equal(count_lines(path), 60000);
    snprintf(path, sizeof(path), "%s/attempt_0/filtered_stdout.log", run);
    assert_int_equal(count_lines(path), 2 * 20000);
    trirun_end(&j, 0);
    spawn_remove_folder(logs);
}

static void the_users_label_takes_torchruns_variables(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN_ENV(&j, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${role_name}.$rank.$local_rank$$> ",
               "--nproc-per-node=1", "--tee=1", "echo", "hello");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "<default.0.0$> hello\n");
    /* without --log-dir the files are below TMPDIR, and the user is told where */
    assert_has(SPAWN_ERR(&j.trirun), "log files are in ");
    assert_has(SPAWN_ERR(&j.trirun), "/torchelastic_");
    trirun_end(&j, 0);
}

/* None is cut, and log files written elsewhere. */
/* The one in /tmp that it names. */
static void remove_log_folder(const launcher_job *j)
{
    static const char begin[] = "log files are in /tmp/torchelastic_";
    const char *at = strstr(SPAWN_ERR(&j->trirun), begin);
    char path[100];

    assert_non_null(at);
    snprintf(path, sizeof(path), "/tmp/torchelastic_%.6s", at + strlen(begin));
    spawn_remove_folder(path);
}

static void a_long_folder_for_temporary_files_gives_way_to_tmp(void **state)
{
    static const size_t lengths[] = {348, 349, 489, 490, 511, 512, 1000};
    char base[256], variable[1024] = "TMPDIR=";
    char *path = variable + strlen(variable);
    launcher_job j;

    (void)state;
    spawn_make_folder(base, sizeof(base));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        spawn make;

        memcpy(path, base, strlen(base));
        for (size_t n = strlen(base); n < lengths[i]; n++)
            path[n] = (n - strlen(base)) % 100 == 0 && n + 1 < lengths[i] ? '/' : 'x';
        path[lengths[i]] = '\0';
        spawn_start(&make, (const char *const[]){"mkdir", "-p", path, NULL}, NULL);
        assert_int_equal(spawn_wait(&make), 0);
        spawn_free(&make);
        trirun_start_by(&j,
                        (const char *const[]){"env", variable, spawn_bin("trirun"), "--tee=1",
                                              "echo", "hello", NULL},
                        NULL);
        assert_int_equal(spawn_wait(&j.trirun), 0);
        assert_has(SPAWN_OUT(&j.trirun), "hello");
        if (lengths[i] > 348) {
            assert_has(SPAWN_ERR(&j.trirun), "trirun: TMPDIR=/");
            assert_has(SPAWN_ERR(&j.trirun), "so log files go to /tmp: its name is too long");
            remove_log_folder(&j);
        } else {
            assert_has_not(SPAWN_ERR(&j.trirun), "TMPDIR");
        }
        trirun_end(&j, 0);
    }
    spawn_remove_folder(base);
}

static void a_missing_folder_for_temporary_files_gives_way_to_tmp(void **state)
{
    static const char *const folders[] = {"TMPDIR=/no/such", "TMPDIR=/etc/passwd"};
    launcher_job j;

    (void)state;
    for (int i = 0; i < 2; i++) {
        trirun_start_by(&j,
                        (const char *const[]){"env", folders[i], spawn_bin("trirun"), "-t", "3",
                                              "echo", "hello", NULL},
                        NULL);
        assert_int_equal(spawn_wait(&j.trirun), 0);
        assert_has(SPAWN_OUT(&j.trirun), "hello");
        assert_has(SPAWN_ERR(&j.trirun), " cannot be used, so log files go to /tmp: ");
        remove_log_folder(&j);
        trirun_end(&j, 0);
    }
}

/* A worker that changes its folder writes it all the same. */
static void an_error_file_has_a_name_that_holds_in_every_folder(void **state)
{
    char folder[256], *old = getcwd(NULL, 0);
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    assert_int_equal(chdir(folder), 0);
    TRIRUN(&j, "--log-dir", "logs", "--rdzv-id=7", "sh", "-c", "echo $TORCHELASTIC_ERROR_FILE");
    assert_int_equal(chdir(old), 0);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), folder);
    assert_int_equal(SPAWN_OUT(&j.trirun)[0], '/');
    trirun_end(&j, 0);
    free(old);
    spawn_remove_folder(folder);
}

static void ranks_that_are_filtered_out_are_silent(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=3", "--local-ranks-filter", "0,2", "--log-dir=/dev/null",
           "--redirects=3", "sh", "-c", SPEAK "; echo file \"$TORCHELASTIC_ERROR_FILE\"");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    /* Two write to one pipe: their lines may come between each other's. */
    assert_has(SPAWN_OUT(&j.trirun), "out 0\n");
    assert_has(SPAWN_OUT(&j.trirun), "out 2\n");
    assert_has_not(SPAWN_OUT(&j.trirun), "out 1");
    assert_int_equal(count_in(SPAWN_OUT(&j.trirun), "file \n"), 2);
    assert_has_not(SPAWN_ERR(&j.trirun), "err 1");
    trirun_end(&j, 0);
}

static void a_silent_rank_is_heard_when_it_fails(void **state)
{
    char logs[300];
    launcher_job j;

    (void)state;
    spawn_make_folder(logs, sizeof(logs));
    TRIRUN(&j, "--nproc-per-node=1", "--log-dir", logs, "-r3", "sh", "-c",
           "echo the reason >&2; exit 3");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "| the reason\n");
    assert_has(SPAWN_ERR(&j.trirun), "exitcode : 3");
    trirun_end(&j, 1);
    spawn_remove_folder(logs);
}

static void a_zero_byte_does_not_end_a_workers_last_words(void **state)
{
    char logs[300];
    launcher_job j;

    (void)state;
    spawn_make_folder(logs, sizeof(logs));
    TRIRUN(&j, "--nproc-per-node=1", "--log-dir", logs, "-r3", "sh", "-c",
           "printf '\\0one\\ntw\\0o\\n' >&2; exit 3");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "    | ?one\n    | tw?o\n");
    trirun_end(&j, 1);
    spawn_remove_folder(logs);
}

/* Neither a folder of half its name, nor a job that fails for the name of its folder. */
static void a_name_that_is_too_long_makes_no_folder_and_a_long_id_is_cut(void **state)
{
    char home[256], logs[900], id[400], option[420], line[420];
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(logs, sizeof(logs), "%s/%0200d/%0200d/%0200d", home, 1, 2, 3);
    TRIRUN(&j, "--log-dir", logs, "-r3", "true");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "...: the name is too long (at most ");
    assert_int_equal(spawn_count_entries(home), 0);
    trirun_end(&j, 0);
    snprintf(id, sizeof(id), "%0255d", 7);
    snprintf(option, sizeof(option), "--rdzv-id=%s", id);
    TRIRUN(&j, option, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost", "--log-dir", home, "-r1",
           "sh", "-c", "echo $TORCHELASTIC_RUN_ID");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    only_entry(home, "000", logs, sizeof(logs));
    snprintf(line, sizeof(line), "%s\n", id);
    expect_file(logs, "attempt_0/0/stdout.log", line);
    trirun_end(&j, 0);
    spawn_remove_folder(home);
}

static void a_large_log_is_turned_over_between_lines(void **state)
{
    char logs[300], run[400], path[500], text[8192], older[8192];
    launcher_job j;

    (void)state;
    spawn_make_folder(logs, sizeof(logs));
    TRIRUN(&j, "--log-dir", logs, "-r1", "--log-max-size=4k", "sh", "-c",
           "i=1000; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    only_entry(logs, "", run, sizeof(run));
    snprintf(path, sizeof(path), "%s/attempt_0/0/stdout.log", run);
    assert_true(slurp(path, text, sizeof(text)));
    snprintf(path, sizeof(path), "%s/attempt_0/0/stdout.log.1", run);
    assert_true(slurp(path, older, sizeof(older)));
    assert_true(strlen(text) <= 4096);
    assert_true(strlen(older) <= 4096 && strlen(older) > 4096 - 10);
    assert_has(text, "line 2999\n");
    assert_int_equal(strtol(text + 5, NULL, 10), strtol(older + strlen(older) - 5, NULL, 10) + 1);
    trirun_end(&j, 0);
    spawn_remove_folder(logs);
}

/* Nobody reads trirun's stdout. One worker fills it, the other prints now and then. */
static void a_worker_that_floods_does_not_stop_another(void **state)
{
    struct pollfd wait = {.events = POLLIN};
    char mark[300], home[256];
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(mark, sizeof(mark), "%s/done", home);
    assert_int_equal(mkfifo(mark, 0600), 0);
    wait.fd = open(mark, O_RDWR | O_NONBLOCK);
    assert_true(wait.fd >= 0);
    TRIRUN(&j, "--nproc-per-node=2", "sh", "-c",
           "[ $RANK = 1 ] || exec cat /dev/zero; i=0; while [ $i -lt 2000 ]; do echo $i 90 kB do "
           "not fit into a pipe of 64 kB; "
           "i=$((i+1)); done; echo over >$1; exec sleep 1000",
           "x", mark);
    if (poll(&wait, 1, SPAWN_DEADLINE_MS) != 1)
        fail_msg("the quiet worker waits for the other");
    close(wait.fd);
    while (spawn_count(&j.trirun) <
           4) /* trirun, its guard, which comes a little later, the workers */
        ;
    spawn_signal(&j.trirun, SIGKILL);
    spawn_wait(&j.trirun);
    spawn_expect_no_process(&j.trirun);
    spawn_free(&j.trirun);
    spawn_remove_folder(j.home);
    spawn_remove_folder(home);
}

static void a_label_is_coloured_on_a_terminal_only(void **state)
{
    static const char *const env[3][3] = {{"NO_COLOR", "TERM=xterm", NULL},
                                          {"NO_COLOR=1", "TERM=xterm", NULL},
                                          {"NO_COLOR", "TERM=dumb", NULL}};
    launcher_job j;

    (void)state;
    for (int plain = 0; plain < 3; plain++) {
        if (!trirun_start_on_terminal(&j, "--nproc-per-node=1 -l echo hello", env[plain]))
            return;
        assert_int_equal(spawn_wait(&j.trirun), 0);
        assert_has(SPAWN_OUT(&j.trirun), plain ? "[0]: hello" : "\033[36m[0]: \033[0mhello");
        if (plain)
            assert_has_not(SPAWN_OUT(&j.trirun), "\033");
        trirun_end(&j, 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(redirected_output_is_in_torchruns_files_only),
    cmocka_unit_test(teed_output_is_in_both_places_with_torchruns_label),
    cmocka_unit_test(files_are_whole_after_the_reader_has_left),
    cmocka_unit_test(the_users_label_takes_torchruns_variables),
    cmocka_unit_test(a_long_folder_for_temporary_files_gives_way_to_tmp),
    cmocka_unit_test(a_missing_folder_for_temporary_files_gives_way_to_tmp),
    cmocka_unit_test(an_error_file_has_a_name_that_holds_in_every_folder),
    cmocka_unit_test(ranks_that_are_filtered_out_are_silent),
    cmocka_unit_test(a_silent_rank_is_heard_when_it_fails),
    cmocka_unit_test(a_zero_byte_does_not_end_a_workers_last_words),
    cmocka_unit_test(a_name_that_is_too_long_makes_no_folder_and_a_long_id_is_cut),
    cmocka_unit_test(a_large_log_is_turned_over_between_lines),
    cmocka_unit_test(a_worker_that_floods_does_not_stop_another),
    cmocka_unit_test(a_label_is_coloured_on_a_terminal_only),
};

TEST_MAIN(tests)
