/*
 * launcher_disk_test.c - trirun where its files cannot be written: a disk that is full, a limit of
 * file sizes, a FIFO whose reader is missing, slow or gone. Lines are lost, never a worker.
 */
#include <fcntl.h>
#include <signal.h>

#include "testing/launcher_job.h"

/* A shell's `words`, in which "$@" is trirun with these arguments. */
#define TRIRUN_SHELL(j, words, ...)                                                                \
    trirun_start_by(                                                                               \
        j, (const char *const[]){"sh", "-c", words, "sh", spawn_bin("trirun"), __VA_ARGS__, NULL}, \
        NULL)

static void a_full_disk_loses_lines_and_no_worker(void **state)
{
    static const char speak[] = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; "
                                "echo over >&2; echo done >$1.$RANK";
    char home[256], mark[300], path[320], text[16], n[4];
    launcher_job j;

    (void)state;
    for (int workers = 1; workers <= 3; workers += 2) {
        spawn_make_folder(home, sizeof(home));
        snprintf(mark, sizeof(mark), "%s/mark", home);
        snprintf(n, sizeof(n), "%d", workers);
        TRIRUN_SHELL(&j, "exec \"$@\" >/dev/full", "--nproc-per-node", n, "sh", "-c", speak, "x",
                     mark);
        assert_int_equal(spawn_wait(&j.trirun), 0);
        assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "No space left on device"), 1);
        assert_has(SPAWN_ERR(&j.trirun), "trirun: stdout: ");
        assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "over\n"), workers);
        for (int i = 0; i < workers; i++) {
            snprintf(path, sizeof(path), "%s.%d", mark, i);
            if (!slurp(path, text, sizeof(text)))
                fail_msg("rank %d did not come to its end", i);
        }
        trirun_end(&j, 0);
        spawn_remove_folder(home);
    }
}

static void a_full_disk_beneath_stderr_is_no_failure(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN_SHELL(&j, "exec \"$@\" >/dev/full 2>&1", "--nproc-per-node=2", "sh", "-c",
                 "for i in 1 2 3; do echo $i; echo $i >&2; done");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    trirun_end(&j, 0);
    TRIRUN_SHELL(&j, "exec \"$@\" 2>/dev/full", "--nproc-per-node=2", "sh", "-c",
                 "for i in 1 2 3; do echo $i; echo $i >&2; done; [ $RANK = 0 ]");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_OUT(&j.trirun), "3\n");
    trirun_end(&j, 1);
}

/* A status alone would be a riddle, and status 0 a lie. */
static void a_full_disk_beneath_what_was_asked_for_is_told(void **state)
{
    static const char *const options[] = {"--help", "--version", "--dry-run"};
    launcher_job j;

    (void)state;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        TRIRUN_SHELL(&j, "exec \"$@\" >/dev/full", options[i], "true");
        if (spawn_wait(&j.trirun) != 1)
            fail_msg("%s: status %d", options[i], j.trirun.status);
        assert_has(SPAWN_ERR(&j.trirun), "trirun: cannot write to stdout: No space left on device");
        trirun_end(&j, 0);
    }
}

/* As under torchrun: Python sees an error where others die of SIGXFSZ, its children die again. */
static void a_limit_of_file_sizes_costs_lines_and_workers_may_die_of_it(void **state)
{
    char home[256], out[300], logs[300];
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(out, sizeof(out), "OUT=%s/out", home);
    snprintf(logs, sizeof(logs), "--log-dir=%s/logs", home);
    trirun_start_by(&j,
                    (const char *const[]){"sh", "-c", "ulimit -f 8; exec \"$@\" >$OUT", "sh",
                                          spawn_bin("trirun"), "--nproc-per-node=2", logs,
                                          "--tee=1", "sh", "-c",
                                          "i=0; while [ $i -lt 3000 ]; do echo line $i; "
                                          "i=$((i+1)); done; grep SigIgn /proc/self/status >&2",
                                          NULL},
                    (const char *const[]){out, NULL});
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_ERR(&j.trirun), "trirun: stdout: File too large");
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "File too large"), 3); /* and two log files */
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "SigIgn:\t0000000000000000\n"), 2);
    trirun_end(&j, 0);
    spawn_remove_folder(home);
}

static void a_file_that_may_not_grow_is_told_and_trirun_lives(void **state)
{
    char home[256], option[300];
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(option, sizeof(option), "--metrics=%s/no-room.prom", home);
    TRIRUN_SHELL(&j, "ulimit -f 1; exec \"$@\"", option, "true");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "/no-room.prom: write ");
    assert_has(SPAWN_ERR(&j.trirun), "File too large");
    trirun_end(&j, 0);
    spawn_remove_folder(home);
    /* what trirun notes for others in its run folder */
    TRIRUN_SHELL(&j, "ulimit -f 1; exec \"$@\"", "--nproc-per-node=16", "sh", "-c",
                 "sleep 0.1; exit 3");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "exitcode : 3");
    trirun_end(&j, 1);
}

/* The first attempt takes the folder away, as a disk that fills up would. */
static void a_restart_goes_on_without_logs_that_cannot_be_made(void **state)
{
    static const char spoil[] =
        "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { echo second $RANK; exit 0; }\n"
        "run=${TORCHELASTIC_ERROR_FILE%%/attempt_*}\n"
        "[ $RANK = 0 ] || { : >$run/here; exec sleep 1000; }\n"
        "while [ ! -e $run/here ]; do :; done\n"
        "rm -rf $run; echo full >$run; exit 1";
    static const char *const kinds[] = {"-t3", "-r0:3,1:0", "--nnodes=1"};
    char logs[300], home[256];
    launcher_job j;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        spawn_make_folder(home, sizeof(home));
        snprintf(logs, sizeof(logs), "--log-dir=%s", home);
        TRIRUN(&j, "--nproc-per-node=2", "--max-restarts=1", logs, kinds[i],
               "--duplicate-stdout-filters=second", "sh", "-c", spoil);
        assert_int_equal(spawn_wait(&j.trirun), 0);
        assert_has(SPAWN_OUT(&j.trirun), "second 1\n");
        assert_int_equal(
            count_in(SPAWN_ERR(&j.trirun), "trirun: cannot create the log files of this attempt: "),
            1);
        trirun_end(&j, 0);
        spawn_remove_folder(home);
    }
}

/* A FIFO that nobody reads is reported at once: a process that waits in open() hears no Ctrl-C. */
static void events_go_to_a_fifo_that_is_read(void **state)
{
    char home[256], path[300], text[65536];
    launcher_job j;
    ssize_t n;
    int fd;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(path, sizeof(path), "%s/fifo", home);
    assert_int_equal(mkfifo(path, 0600), 0);
    TRIRUN(&j, "--events", path, "true");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "nobody reads this FIFO");
    trirun_end(&j, 0);

    fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    TRIRUN(&j, "--events", path, "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    n = read(fd, text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_has(text, "\"event\": \"job_ended\"");
    trirun_end(&j, 0);

    /* its reader has stopped: the pipe is full */
    {
        int own = open(path, O_WRONLY | O_NONBLOCK);

        memset(text, '\n', sizeof(text));
        while (write(own, text, sizeof(text)) > 0)
            ;
        while (write(own, text, 1) > 0)
            ;
        close(own);
    }
    TRIRUN(&j, "--events", path, "--nproc-per-node=2", "sh", "-c", "echo I live; exec sleep 1000");
    spawn_expect(&j.trirun, "I live");
    spawn_signal(&j.trirun, SIGINT);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
    TRIRUN(&j, "--events", path, "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_ERR(&j.trirun), path);
    close(fd);
    trirun_end(&j, 0);
    spawn_remove_folder(home);
}

/* `>file` has a place where it writes, and appending has none: each wrote over the other. */
static void events_and_output_of_one_file_stand_one_after_the_other(void **state)
{
    static const char *const names[] = {"/dev/stdout", "/dev/stderr", NULL};
    char home[256], path[300], words[340], text[8192];
    launcher_job j;

    (void)state;
    for (int i = 0; i < 3; i++) {
        spawn_make_folder(home, sizeof(home));
        snprintf(path, sizeof(path), "%s/out", home);
        snprintf(words, sizeof(words), "exec \"$@\" >%s 2>&1", path);
        TRIRUN_SHELL(&j, words, "--events", names[i] != NULL ? names[i] : path, "sh", "-c",
                     "echo first; echo second");
        assert_int_equal(spawn_wait(&j.trirun), 0);
        assert_true(slurp(path, text, sizeof(text)));
        assert_has(text, "first\n"); /* an event may come between them */
        assert_has(text, "second\n");
        assert_int_equal(count_in(text, "\n"), 2 + 6);
        assert_int_equal(count_in(text, "{\"time\": "), 6);
        trirun_end(&j, 0);
        spawn_remove_folder(home);
    }
}

static void an_error_file_that_is_a_fifo_does_not_hang_trirun(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "sh", "-c", "mkfifo $TORCHELASTIC_ERROR_FILE; exit 3");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "exitcode : 3");
    trirun_end(&j, 1);
}

static void an_error_file_that_is_too_large_is_named_and_not_read(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "sh", "-c",
           "{ echo '{\"message\": \"boom\"}'; head -c 1048576 /dev/zero | tr '\\0' ' '; } "
           ">$TORCHELASTIC_ERROR_FILE; echo last words >&2; exit 3");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "/error.json is not read: it has more than 1048576 bytes\n");
    assert_has(SPAWN_ERR(&j.trirun), "last lines on stderr are shown above");
    assert_has_not(SPAWN_ERR(&j.trirun), "boom");
    trirun_end(&j, 1);
}

/* What has the name is a link: it stays one, and what it leads to is not always a file. */
static void metrics_replace_files_only(void **state)
{
    char home[256], file[300], path[300], text[16384];
    struct stat info;
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(file, sizeof(file), "%s/job.prom", home);
    snprintf(path, sizeof(path), "%s/link", home);
    write_text(file, "old\n", 0600);
    assert_int_equal(symlink("job.prom", path), 0);
    TRIRUN(&j, "--metrics", path, "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_true(slurp(file, text, sizeof(text)));
    assert_has(text, "\ntrirun_workers 0\n");
    assert_int_equal(spawn_count_entries(home), 2);
    trirun_end(&j, 0);

    /* /dev/stdout is such a link, and here it leads to a file; to replace it would destroy it */
    assert_int_equal(remove(path), 0);
    assert_int_equal(symlink("/proc/self/fd/1", path), 0);
    TRIRUN_SHELL(&j, "out=${3%/*}/out; exec \"$@\" >$out", "--metrics", path, "true");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "is this program's own output");
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    trirun_end(&j, 0);
    spawn_remove_folder(home);
}

/* The worker writes to its log itself, and dies of it as Python would. */
static void a_full_disk_beneath_redirected_output_is_named(void **state)
{
    static const char script[] =
        "mount -t tmpfs -o size=64k none \"$1\" || exit 9\n"
        "speak='head -c 200000 /dev/zero || exit 5'\n"
        "\"$0\" -r3 --log-dir=\"$1\" sh -c \"$speak\"; test $? = 1 || exit 2\n"
        "rm -r \"$1\"/*\n"
        "\"$0\" -r3 --log-max-size=1G --log-dir=\"$1\" sh -c \"$speak\"\n";
    const char *const try_it[] = {"unshare", "-rm", "mount", "-t", "tmpfs", "none", "/tmp", NULL};
    char folder[256];
    const char *const argv[] = {"unshare",           "-rm",  "sh", "-c", script,
                                spawn_bin("trirun"), folder, NULL};
    launcher_job j;
    spawn s;
    bool may;

    (void)state;
    spawn_start(&s, try_it, NULL);
    may = spawn_wait(&s) == 0;
    spawn_free(&s);
    if (!may) /* this system lets nobody mount */
        return;
    spawn_make_folder(folder, sizeof(folder));
    trirun_start_by(&j, argv, NULL);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "  disk     : the disk of "), 1);
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "No space left on device"), 1);
    trirun_end(&j, 1);
    spawn_remove_folder(folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_full_disk_loses_lines_and_no_worker),
    cmocka_unit_test(a_full_disk_beneath_redirected_output_is_named),
    cmocka_unit_test(a_full_disk_beneath_stderr_is_no_failure),
    cmocka_unit_test(a_full_disk_beneath_what_was_asked_for_is_told),
    cmocka_unit_test(a_limit_of_file_sizes_costs_lines_and_workers_may_die_of_it),
    cmocka_unit_test(a_file_that_may_not_grow_is_told_and_trirun_lives),
    cmocka_unit_test(a_restart_goes_on_without_logs_that_cannot_be_made),
    cmocka_unit_test(events_go_to_a_fifo_that_is_read),
    cmocka_unit_test(events_and_output_of_one_file_stand_one_after_the_other),
    cmocka_unit_test(an_error_file_that_is_a_fifo_does_not_hang_trirun),
    cmocka_unit_test(an_error_file_that_is_too_large_is_named_and_not_read),
    cmocka_unit_test(metrics_replace_files_only),
};

TEST_MAIN(tests)
