/*
 * launcher_test.c - trirun with real workers: what they are told, what the user sees, and that
 * nothing is left behind, however the job ends.
 *
 * Workers are shell scripts. In their text $$ reaches the shell as $, as with torchrun, so $$$$
 * is the shell's own process id.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing/launcher_job.h"

/* --- what workers are told ------------------------------------------------ */

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of `text` in order, those numbers that change from run to run replaced by N. */
static void sorted_lines(char *text, char *out, size_t bytes)
{
    char *line[200];
    int n = 0;

    for (char *at = text, *next; n < 200 && (next = next_line(at)) != NULL; at = next)
        line[n++] = at;
    qsort(line, (size_t)n, sizeof(*line), compare_lines);
    out[0] = '\0';
    for (int i = 0; i < n; i++) {
        size_t used = strlen(out);

        if (strncmp(line[i], "MASTER_PORT=", 12) == 0)
            snprintf(out + used, bytes - used, "MASTER_PORT=N\n");
        else if (strncmp(line[i], "TRI_AGENT_STORE=127.0.0.1 ", 26) == 0)
            snprintf(out + used, bytes - used, "TRI_AGENT_STORE=127.0.0.1 N%s\n",
                     line[i] + 26 + strcspn(line[i] + 26, " "));
        else
            snprintf(out + used, bytes - used, "%s\n", line[i]);
    }
}

static void workers_get_torchruns_variables_and_no_others(void **state)
{
    static const char *const args[] = {
        "--nproc-per-node", "2", "--rdzv-id", "golden", "--role", "r", "--no-python",
        "/usr/bin/env",     NULL};
    const char *argv[10] = {spawn_bin("trirun")};
    char seen[8192], expected[8192], folder[300], env_home[300], home[256];
    const char *const env[] = {"PATH=/usr/bin:/bin",   "RANK=77", "MASTER_PORT=1",
                               "TRI_RUN_DIR=/nowhere", env_home,  NULL};
    const char *at;
    spawn s;
    size_t used = 0;
    cpu_set_t cores;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(cores), &cores), 0);
    memcpy(argv + 1, args, sizeof(args));
    spawn_make_folder(home, sizeof(home));
    snprintf(env_home, sizeof(env_home), "XDG_RUNTIME_DIR=%s", home);
    spawn_start_bare(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 0);
    at = strstr(SPAWN_OUT(&s), "TRI_RUN_DIR=");
    assert_non_null(at);
    snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(at + 12, "\n"), at + 12);
    assert_true(strncmp(folder, home, strlen(home)) == 0);
    assert_int_not_equal(access(folder, F_OK), 0); /* removed after the success */

    expected[0] = '\0';
    for (int rank = 0; rank < 2; rank++) {
        used += (size_t)snprintf(
            expected + used, sizeof(expected) - used,
            "PATH=/usr/bin:/bin\n%s\n%s\n"
            "LOCAL_RANK=%d\nRANK=%d\nGROUP_RANK=0\nROLE_RANK=%d\nROLE_NAME=r\n"
            "LOCAL_WORLD_SIZE=2\nWORLD_SIZE=2\nGROUP_WORLD_SIZE=1\nROLE_WORLD_SIZE=2\n"
            "MASTER_ADDR=127.0.0.1\nMASTER_PORT=N\n"
            "TORCHELASTIC_RESTART_COUNT=0\nTORCHELASTIC_MAX_RESTARTS=0\n"
            "TORCHELASTIC_RUN_ID=golden\nTORCHELASTIC_USE_AGENT_STORE=True\n"
            "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT\n"
            "TORCHELASTIC_ERROR_FILE=%s/attempt_0/%d/"
            "error.json\nTORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
            "OMP_NUM_THREADS=1\nTRI_NUM_THREADS=%d\n"
            "TRI_AGENT_STORE=127.0.0.1 N new %s/attempt_0/%d/error.json\n"
            "TRI_STOP_GRACE_MS=30000\nTRI_RUN_DIR=%s\n",
            env_home, s.mark, rank, rank, rank, folder, rank,
            CPU_COUNT(&cores) > 2 ? CPU_COUNT(&cores) / 2 : 1, folder, rank, folder);
    }
    sorted_lines(SPAWN_OUT(&s), seen, sizeof(seen));
    {
        char copy[8192];

        memcpy(copy, expected, sizeof(copy));
        sorted_lines(copy, expected, sizeof(expected));
    }
    assert_string_equal(seen, expected);
    assert_string_equal(SPAWN_ERR(&s), "");
    spawn_expect_no_process(&s);
    spawn_free(&s);
    spawn_remove_folder(home);
}

static void a_thread_count_of_the_user_is_obeyed(void **state)
{
    static const char *const args[] = {"--nproc-per-node=2", "sh", "-c",
                                       "echo $OMP_NUM_THREADS,$TRI_NUM_THREADS", NULL};
    launcher_job j;

    (void)state;
    trirun_start(&j, args, (const char *const[]){"OMP_NUM_THREADS=3", NULL});
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "3,\n3,\n");
    trirun_end(&j, 0);
    trirun_start(&j, args, (const char *const[]){"TRI_NUM_THREADS=5", NULL});
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "1,5\n1,5\n");
    trirun_end(&j, 0);
}

static void arguments_are_passed_on_and_local_rank_is_filled_in(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--standalone", "--label-output", "--nproc_per_node", "2", "sh", "-c",
           "for a in \"$@\"; do echo \"<$a>\"; done", "x", "--nproc-per-node", "9", "a b", "",
           "${local_rank}.$local_rank", "$local_ranks $HOME $$");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    for (int rank = 0; rank < 2; rank++) {
        char line[80];

        snprintf(line, sizeof(line), "[%d]: <%d.%d>\n", rank, rank, rank);
        assert_has(SPAWN_OUT(&j.trirun), line);
    }
    assert_has(SPAWN_OUT(&j.trirun), "[1]: <--nproc-per-node>\n");
    assert_has(SPAWN_OUT(&j.trirun), "[0]: <a b>\n");
    assert_has(SPAWN_OUT(&j.trirun), "[0]: <>\n");
    assert_has(SPAWN_OUT(&j.trirun), "[0]: <$local_ranks $HOME $>\n");
    trirun_end(&j, 0);
}

static void write_file(const char *path, const char *text, int mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, (mode_t)mode), 0);
}

static void python_files_and_modules_are_run_by_the_interpreter(void **state)
{
    char folder[256], python[300], script[300], variable[320];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(python, sizeof(python), "%s/my-python", folder);
    snprintf(script, sizeof(script), "%s/train.py", folder);
    snprintf(variable, sizeof(variable), "PYTHON_EXEC=%s", python);
    write_file(python, "#!/bin/sh\necho \"python $*\"\n", 0755);
    write_file(script, "#!/bin/sh\necho \"script $*\"\n", 0755);

    trirun_start(&j, (const char *const[]){script, "--lr", "1", NULL},
                 (const char *const[]){variable, NULL});
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "python -u ");
    assert_has(SPAWN_OUT(&j.trirun), "/train.py --lr 1\n");
    trirun_end(&j, 0);
    trirun_start(&j, (const char *const[]){"-m", "some.module", "x", NULL},
                 (const char *const[]){variable, NULL});
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "python -u -m some.module x\n");
    trirun_end(&j, 0);
    trirun_start(&j, (const char *const[]){"--no-python", script, "y", NULL},
                 (const char *const[]){variable, NULL});
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "script y\n");
    trirun_end(&j, 0);
    trirun_start(&j, (const char *const[]){"--no-python", "-m", "some.module", NULL},
                 (const char *const[]){variable, NULL});
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

/* --- failures ------------------------------------------------------------- */

static void the_first_failure_is_named_with_its_last_lines(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "3", "sh", "-c",
           ("[ $RANK = 0 ] && { trap 'head -c 3000 /dev/zero | tr \"\\0\" x >&2; exit 1' TERM\n"
            "  : >$TRI_RUN_DIR/here; while :; do sleep 0.01; done; }\n"
            "[ $RANK = 2 ] && exec sleep 1000\n"
            "until [ -e $TRI_RUN_DIR/here ]; do sleep 0.01; done\n"
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do echo line $i >&2; done\n"
            "echo 'no file of this name' >&2; exit 3"));
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "sh failed: rank 1 exited with code 3");
    assert_has(SPAWN_ERR(&j.trirun), "rank     : 1 (local_rank: 1)");
    assert_has(SPAWN_ERR(&j.trirun), "exitcode : 3 (pid: ");
    assert_has(SPAWN_ERR(&j.trirun), "    | no file of this name\n");
    assert_has(SPAWN_ERR(&j.trirun), "    | line 3\n");
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "    | "), 12);
    assert_has(SPAWN_ERR(&j.trirun), "victims  : 2 stopped because of it, 0 failed after it");
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), " failed: "), 1);
    trirun_end(&j, 1); /* kept for `why` */
}

/* A reader of the report has just read the lines. */
static void lines_that_stand_right_above_are_not_said_again(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "sh", "-c", "echo 'no file of this name' >&2; exit 3");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "no file of this name"), 1);
    assert_has(SPAWN_ERR(&j.trirun), "its last lines on stderr are shown above\n");
    trirun_end(&j, 1);
    TRIRUN(&j, "-r", "2", "sh", "-c", "echo 'no file of this name' >&2; exit 3");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "    | no file of this name\n");
    trirun_end(&j, 1);
}

static void a_signal_that_kills_a_worker_is_named(void **state)
{
    static const struct {
        const char *script, *what, *code;
    } cases[] = {
        {"[ $RANK = 0 ] && kill -SEGV $$$$; exec sleep 1000", "rank 0 was killed by SIGSEGV",
         "exitcode : -11"},
        {"[ $RANK = 0 ] && kill -ABRT $$$$; exec sleep 1000", "rank 0 was killed by SIGABRT",
         "exitcode : -6"},
        {"[ $RANK = 0 ] && kill -KILL $$$$; exec sleep 1000", "rank 0 was killed by SIGKILL",
         "exitcode : -9"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_job j;

        TRIRUN(&j, "--nproc-per-node=2", "sh", "-c", cases[i].script);
        assert_int_equal(spawn_wait(&j.trirun), 1);
        assert_has(SPAWN_ERR(&j.trirun), cases[i].what);
        assert_has(SPAWN_ERR(&j.trirun), cases[i].code);
        assert_has(SPAWN_ERR(&j.trirun), "printed nothing to stderr");
        trirun_end(&j, 1);
    }
}

/* Rank 1 fails because rank 0 did and says so; rank 0 is the cause, even where the kernel has
 * closed rank 0's files, which rank 1 sees, but is not yet done with ending it. */
static void the_cause_comes_before_its_victims(void **state)
{
    char folder[256], fifo[300];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    TRIRUN(&j, "--nproc-per-node=2", "sh", "-c",
           ("trap '' TERM; if [ $RANK = 0 ]; then exec 3>$1; exit 7; fi\n"
            "cat $1; echo 'PEER_LOST: rank 0' >&2; exit 1"),
           "x", fifo);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "sh failed: rank 0 exited with code 7");
    trirun_end(&j, 1);
    spawn_remove_folder(folder);
}

/* An interpreter that fails closes its connections long before it has ended, and its peers are
 * quicker: they are no reason to stop it. */
static void a_cause_that_ends_after_its_victims_is_awaited(void **state)
{
    static const char *const words[] = {"Connection closed by peer", "PEER_LOST",
                                        "rank 0 aborted the group"};
    launcher_job j;

    (void)state;
    for (int i = 0; i < 3; i++) {
        TRIRUN(&j, "--nproc-per-node=3", "sh", "-c",
               ("if [ $RANK = 0 ]; then\n"
                "until [ -e $TRI_RUN_DIR/1 ] && [ -e $TRI_RUN_DIR/2 ]; do sleep 0.01; done\n"
                "echo boom >&2; exit 7; fi\n"
                "echo \"$1\" >&2; : >$TRI_RUN_DIR/$RANK; exit 1"),
               "x", words[i]);
        assert_int_equal(spawn_wait(&j.trirun), 1);
        assert_has(SPAWN_ERR(&j.trirun), "sh failed: rank 0 exited with code 7");
        trirun_end(&j, 1);
    }
}

/* Its cause may not end at all. */
static void a_victim_alone_stops_the_job_in_a_while(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "sh", "-c",
           "[ $RANK = 0 ] && exec sleep 1000; echo Connection reset by peer >&2; exit 1");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "exited with code 1; stopping the other\n");
    assert_has(SPAWN_ERR(&j.trirun), "sh failed: rank 1 exited with code 1");
    assert_has(SPAWN_ERR(&j.trirun), "victims  : 1 stopped because of it, 0 failed after it");
    trirun_end(&j, 1);
}

/* Until the process waits to be reaped. */
static void expect_zombie(int pid)
{
    char path[40], stat[512], *state;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    do {
        assert_true(slurp(path, stat, sizeof(stat)));
        state = strrchr(stat, ')');
        assert_non_null(state);
    } while (state[2] != 'Z');
}

/* All ranks refuse something, and rank 0 says what; here rank 1 has ended before it. */
static void a_worker_that_says_why_comes_before_one_that_ends_in_silence(void **state)
{
    char folder[256], fifo[300], go[300];
    const char *at;
    launcher_job j;
    int pid = 0, fd;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    snprintf(go, sizeof(go), "%s/go", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mkfifo(go, 0600), 0);
    TRIRUN(&j, "--nproc-per-node=2", "sh", "-c",
           ("if [ $RANK = 0 ]; then echo $$$$ is ready; read x <$1; echo 'bad width' >&2; exit 2; "
            "fi\n"
            "exec 3>$1; echo also ready; read x <$2; exit 2"),
           "x", fifo, go);
    spawn_expect(&j.trirun, " is ready\n");
    spawn_expect(&j.trirun, "also ready\n");
    at = strstr(SPAWN_OUT(&j.trirun), " is ready\n");
    while (at > SPAWN_OUT(&j.trirun) && at[-1] != '\n')
        at--;
    assert_int_equal(sscanf(at, "%d", &pid), 1);
    assert_int_equal(kill(j.trirun.pid, SIGSTOP), 0);
    fd = open(go, O_WRONLY);
    assert_true(fd >= 0);
    close(fd);
    expect_zombie(pid);
    assert_int_equal(kill(j.trirun.pid, SIGCONT), 0);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "sh failed: rank 0 exited with code 2");
    trirun_end(&j, 1);
    spawn_remove_folder(folder);
}

static void a_worker_deaf_to_sigterm_is_killed_after_the_grace(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--shutdown-timeout", "0.3", "--nproc-per-node", "2", "sh", "-c",
           ("if [ $RANK = 0 ]; then until [ -e $TRI_RUN_DIR/deaf ]; do :; done; exit 5; fi\n"
            "trap '' TERM; : >$TRI_RUN_DIR/deaf; while :; do sleep 1000; done"));
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "1 worker did not end within 0.3 s: killing");
    assert_has(SPAWN_ERR(&j.trirun), "rank 0 exited with code 5");
    trirun_end(&j, 1);
}

static void what_cannot_start_is_told_before_anything_runs(void **state)
{
    char folder[256], plain[300];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(plain, sizeof(plain), "%s/plain", folder);
    write_file(plain, "not a program\n", 0644);
    TRIRUN(&j, "--nproc-per-node", "2", "no-such-program-anywhere");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "cannot find program no-such-program-anywhere in PATH");
    trirun_end(&j, 0);
    TRIRUN(&j, "no-such-script.py");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "cannot run no-such-script.py");
    trirun_end(&j, 0);
    TRIRUN(&j, "--no-python", plain);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "it is not executable");
    trirun_end(&j, 0);
    chmod(plain, 0755); /* exec itself refuses it: no format */
    TRIRUN(&j, "--nproc-per-node", "2", "--no-python", plain);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "rank 0: cannot start");
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

/* As torchrun: 2 where argparse refuses, 1 where its own checks do. */
static void wrong_usage_ends_with_torchruns_status(void **state)
{
    static const struct {
        const char *args[4];
        int status;
    } cases[] = {
        {{"--no-such-flag", "true"}, 2},
        {{"--nproc-per-node"}, 2},
        {{"--max-restarts", "x", "true"}, 2},
        {{"--master-port", "x", "true"}, 2},
        {{"--n=2", "true"}, 2},
        {{"--standalone=1", "true"}, 2},
        {{"--standalone"}, 2},
        {{"-q", "true"}, 2},
        {{"-np", "2", "true"}, 2},
        {{"--start-method=x", "true"}, 2},
        {{"--numa-binding=x", "true"}, 2},
        {{"--max-restarts", "-1", "true"}, 1},
        {{"--nproc-per-node", "x", "true"}, 1},
        {{"--nproc-per-node=0", "true"}, 1},
        {{"--nnodes=2:1", "true"}, 1},
        {{"--nnodes=1:2:3", "true"}, 1},
        {{"--rdzv-backend=smoke", "true"}, 1},
        {{"--rdzv-conf=a", "true"}, 1},
        {{"--tee=4", "true"}, 1},
        {{"--redirects=10:1", "true"}, 1},
        {{"-m", "--no-python", "true"}, 1},
        {{"--local-ranks-filter=a", "true"}, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_job j;

        trirun_start(&j, cases[i].args, NULL);
        if (spawn_wait(&j.trirun) != cases[i].status)
            fail_msg("trirun %s: status %d", cases[i].args[0], j.trirun.status);
        assert_has(SPAWN_ERR(&j.trirun), "trirun: ");
        assert_has(SPAWN_ERR(&j.trirun), "trirun --help");
        trirun_end(&j, 0);
    }
}

/* --- nothing is left behind ----------------------------------------------- */

static void a_signal_ends_the_job_and_leaves_nothing(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

    (void)state;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        launcher_job j;

        TRIRUN(&j, "--nproc-per-node", "2", "sh", "-c",
               "sleep 1000 & echo ready $RANK $MASTER_PORT; wait");
        spawn_expect(&j.trirun, "ready 0");
        spawn_expect(&j.trirun, "ready 1");
        spawn_signal(&j.trirun, signals[i]);
        assert_int_equal(spawn_wait(&j.trirun), 1);
        assert_has(SPAWN_ERR(&j.trirun), "stopping 2 workers");
        assert_null(strstr(SPAWN_ERR(&j.trirun), " failed: "));
        trirun_end(&j, 0);
    }
}

static void workers_hear_the_signal_and_may_end_in_peace(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "sh", "-c",
           ("trap 'echo goodbye $RANK; exit 0' INT; echo ready $RANK\n"
            "while :; do sleep 0.01; done"));
    spawn_expect(&j.trirun, "ready 0");
    spawn_expect(&j.trirun, "ready 1");
    spawn_signal(&j.trirun, SIGINT);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_OUT(&j.trirun), "goodbye 0\n");
    assert_has(SPAWN_OUT(&j.trirun), "goodbye 1\n");
    trirun_end(&j, 0);
}

static void a_stopped_worker_hears_that_it_shall_end(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "sh", "-c",
           ("[ $RANK = 1 ] && { until grep -qs 'State:.T' /proc/$(cat $TRI_RUN_DIR/0)/status\n"
            "do sleep 0.01; done; exit 7; }\n"
            "trap 'echo goodbye; exit 0' TERM; echo $$$$ >$TRI_RUN_DIR/0; kill -STOP $$$$\n"
            "while :; do sleep 0.01; done"));
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "rank 1");
    assert_has(SPAWN_OUT(&j.trirun), "goodbye\n");
    trirun_end(&j, 1);
}

static void a_second_signal_means_now(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "sh", "-c",
           "trap 'echo heard $RANK' TERM; echo ready $RANK; while :; do sleep 0.01; done");
    spawn_expect(&j.trirun, "ready 0");
    spawn_expect(&j.trirun, "ready 1");
    spawn_signal(&j.trirun, SIGTERM);
    spawn_expect(&j.trirun, "heard 0");
    spawn_expect(&j.trirun, "heard 1");
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1); /* long before the grace of 30 s */
    assert_has(SPAWN_ERR(&j.trirun), "trirun: a second signal: killing 2 workers\n");
    trirun_end(&j, 0);
}

static void killing_trirun_kills_workers_and_what_they_started(void **state)
{
    launcher_job j;

    (void)state;
    /* a child in the worker's group, and one that left it for a session of its own */
    TRIRUN(&j, "--nproc-per-node", "2", "sh", "-c",
           ("sleep 1000 & setsid sleep 1000 & trap '' TERM INT HUP; echo ready $RANK\n"
            "while :; do sleep 1; done"));
    spawn_expect(&j.trirun, "ready 0");
    spawn_expect(&j.trirun, "ready 1");
    /* trirun, its guard, and four processes of each worker */
    while (spawn_count(&j.trirun) < 2 + 2 * 4)
        ;
    spawn_signal(&j.trirun, SIGKILL);
    assert_int_equal(spawn_wait(&j.trirun), -SIGKILL);
    trirun_end(&j, 1);
}

static void what_workers_leave_running_is_ended(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--shutdown-timeout=0.2", "--nproc-per-node", "2", "sh", "-c",
           ("(sleep 1000 & setsid sleep 1000 & setsid sh -c 'trap \"\" TERM; sleep 1000' &)\n"
            "echo done"));
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "done\ndone\n");
    trirun_end(&j, 0);
}

static void many_workers_end_as_few_do(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node", "100", "sh", "-c", "echo $RANK");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_int_equal(count_in(SPAWN_OUT(&j.trirun), "\n"), 100);
    assert_string_equal(SPAWN_ERR(&j.trirun), "");
    trirun_end(&j, 0);
}

/* A child that only ends when its own child has: both hear of the end, one after the other. */
static void a_chain_of_leftovers_ends_without_the_grace(void **state)
{
    struct timespec start, end;
    launcher_job j;

    (void)state;
    TRIRUN(&j, "sh", "-c",
           ("setsid sh -c 'setsid sh -c \": >$TRI_RUN_DIR/up; exec sleep 1000\" & wait' &\n"
            "until [ -e $TRI_RUN_DIR/up ]; do :; done; echo done"));
    spawn_expect(&j.trirun, "done\n");
    clock_gettime(CLOCK_MONOTONIC, &start);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "done\n");
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec < 4); /* the grace is 5 s */
    trirun_end(&j, 0);
}

static void only_the_last_five_failures_stay(void **state)
{
    char first[512] = "", home[256];

    (void)state;
    spawn_make_folder(home, sizeof(home));
    for (int i = 0; i < 7; i++) {
        const char *const argv[] = {spawn_bin("trirun"), "false", NULL};
        char variable[300];
        const char *const env[] = {variable, NULL};
        const char *at;
        spawn s;

        snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", home);
        spawn_start(&s, argv, env);
        assert_int_equal(spawn_wait(&s), 1);
        at = strstr(SPAWN_ERR(&s), "kept     : ");
        assert_non_null(at);
        if (i == 0)
            snprintf(first, sizeof(first), "%.*s", (int)strcspn(at + 11, "\n"), at + 11);
        assert_int_equal(access(first, F_OK), i < 5 ? 0 : -1);
        spawn_free(&s);
    }
    snprintf(first, sizeof(first), "%s/trireme-%d", home, (int)getuid());
    assert_int_equal(spawn_count_entries(first), 5);
    spawn_remove_folder(home);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(workers_get_torchruns_variables_and_no_others),
    cmocka_unit_test(a_thread_count_of_the_user_is_obeyed),
    cmocka_unit_test(arguments_are_passed_on_and_local_rank_is_filled_in),
    cmocka_unit_test(python_files_and_modules_are_run_by_the_interpreter),
    cmocka_unit_test(the_first_failure_is_named_with_its_last_lines),
    cmocka_unit_test(lines_that_stand_right_above_are_not_said_again),
    cmocka_unit_test(a_signal_that_kills_a_worker_is_named),
    cmocka_unit_test(the_cause_comes_before_its_victims),
    cmocka_unit_test(a_cause_that_ends_after_its_victims_is_awaited),
    cmocka_unit_test(a_victim_alone_stops_the_job_in_a_while),
    cmocka_unit_test(a_worker_that_says_why_comes_before_one_that_ends_in_silence),
    cmocka_unit_test(a_worker_deaf_to_sigterm_is_killed_after_the_grace),
    cmocka_unit_test(what_cannot_start_is_told_before_anything_runs),
    cmocka_unit_test(wrong_usage_ends_with_torchruns_status),
    cmocka_unit_test(a_signal_ends_the_job_and_leaves_nothing),
    cmocka_unit_test(workers_hear_the_signal_and_may_end_in_peace),
    cmocka_unit_test(a_stopped_worker_hears_that_it_shall_end),
    cmocka_unit_test(a_second_signal_means_now),
    cmocka_unit_test(killing_trirun_kills_workers_and_what_they_started),
    cmocka_unit_test(what_workers_leave_running_is_ended),
    cmocka_unit_test(many_workers_end_as_few_do),
    cmocka_unit_test(a_chain_of_leftovers_ends_without_the_grace),
    cmocka_unit_test(only_the_last_five_failures_stay),
};

TEST_MAIN(tests)
