/*
 * launcher_report_test.c - what trirun tells about a job: why it failed, who hangs, what happens
 * while it runs, and what would happen.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

#include <trireme/comm.h>

#include "launch/report/hang.h"
#include "os/clock.h"
#include "testing/launcher_job.h"

#define PS ((const char *const[]){"ps", NULL})
#define PS_JSON ((const char *const[]){"ps", "--json", NULL})

/* What `trireme WORDS` says of the user's jobs. */
static void ask(const launcher_job *j, const char *const *words, char *text, size_t bytes)
{
    const char *argv[8] = {spawn_bin("trireme")};
    char home[300];
    const char *env[] = {home, "TRI_RUN_DIR", NULL};
    spawn s;

    for (int i = 0; words[i] != NULL; i++)
        argv[i + 1] = words[i];
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", j->home);
    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 0);
    snprintf(text, bytes, "%s", SPAWN_OUT(&s));
    spawn_free(&s);
}

/* A worker that writes an error file as torchelastic's @record does, then fails. */
static void a_workers_error_file_is_reported_and_handed_on(void **state)
{
    char home[256], ours[300], variable[340], script[600], text[1024];
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(ours, sizeof(ours), "%s/error.json", home);
    snprintf(variable, sizeof(variable), "TORCHELASTIC_ERROR_FILE=%s", ours);
    snprintf(script, sizeof(script),
             "cat >$TORCHELASTIC_ERROR_FILE <<'E'\n"
             "{\"message\": {\"message\": \"ValueError: bo\\\"om\", \"extraInfo\": "
             "{\"py_callstack\": \"Traceback\\n  line 7\\n\", \"timestamp\": \"1700000000\"}}}\n"
             "E\nexit 3");
    TRIRUN_ENV(&j, variable, "--nproc-per-node=1", "sh", "-c", script);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "message  : ValueError: bo\"om\n");
    assert_has(SPAWN_ERR(&j.trirun), "/attempt_0/0/error.json\n");
    assert_has(SPAWN_ERR(&j.trirun), "    | Traceback\n    |   line 7\n");
    assert_true(slurp(ours, text, sizeof(text)));
    assert_has(text, "{\"message\": {\"message\": \"ValueError: bo\\\"om\", \"extraInfo\": {");
    assert_has(text, "}, \"errorCode\": 3}}");
    trirun_end(&j, 1);
    spawn_remove_folder(home);
}

/* Python prints the traceback too: right above the report it is not told again. */
static void a_traceback_is_told_once(void **state)
{
    static const char script[] =
        "printf '%s' '{\"message\": {\"message\": \"E: x\", \"extraInfo\": {\"py_callstack\": "
        "\"Traceback\\n  line 7\\nE: x\\n\", \"timestamp\": \"1700000000\"}}}' "
        ">$TORCHELASTIC_ERROR_FILE; [ $0 = quiet ] || printf '[rank0]: %s\\n' Traceback '  line 7' "
        "'E: x' >&2;"
        "exit 3";
    launcher_job j;

    (void)state;
    TRIRUN(&j, "sh", "-c", script, "loud");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "message  : E: x\n");
    assert_has(SPAWN_ERR(&j.trirun), "  traceback: shown above\n");
    assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "line 7"), 1);
    trirun_end(&j, 1);
    TRIRUN(&j, "sh", "-c", script, "quiet");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "  traceback:\n    | Traceback\n    |   line 7\n    | E: x\n");
    trirun_end(&j, 1);
}

/* Writes down who it is, as a whole. */
#define NOTE_PID "echo $$$$ >$TRI_RUN_DIR/new.$RANK; mv $TRI_RUN_DIR/new.$RANK $TRI_RUN_DIR/$RANK;"
/* Tries the condition again until it holds, for a minute at most. */
#define UNTIL(condition)                                                                           \
    "n=6000; until " condition "; do n=$((n-1)); [ $n = 0 ] && exit 9; sleep 0.01; done;"

static void a_worker_that_left_before_the_failure_is_named(void **state)
{
    launcher_job j;

    (void)state;
    /* rank 0 fails once rank 1 is no more, which is so when trirun has taken its status */
    TRIRUN(&j, "--nproc-per-node=2", "sh", "-c",
           "[ $RANK = 1 ] && { " NOTE_PID " exit 0; };" UNTIL("[ -s $TRI_RUN_DIR/1 ]")
               UNTIL("! kill -0 $(cat $TRI_RUN_DIR/1) 2>/dev/null") "exit 5");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "exitcode : 5");
    assert_has(SPAWN_ERR(&j.trirun), "left     : rank 1 had ended with status 0 ");
    trirun_end(&j, 1);
}

/* Two workers, of which both have ended when trirun comes to look: it is stopped meanwhile. The
 * second one ends after the first. */
static void run_two_ends(launcher_job *j, int first, const char *end_first, const char *end_second)
{
    char script[1200];

    /* trirun is stopped once it watches both: then it writes job.json */
    snprintf(script, sizeof(script),
             "zombie() { grep -q ') Z ' /proc/$(cat $TRI_RUN_DIR/$1)/stat; };"
             "[ $RANK = %d ] && { " UNTIL("[ -e $TRI_RUN_DIR/job.json ]") "kill -STOP $PPID;" UNTIL(
                 "grep -q ') T ' /proc/$PPID/stat") NOTE_PID
             "%s; };" UNTIL("[ -s $TRI_RUN_DIR/%d ]") UNTIL("zombie %d") NOTE_PID
             "{ " UNTIL("zombie $RANK") "kill -CONT $PPID; } & %s",
             first, end_first, first, first, end_second);
    TRIRUN(j, "--nproc-per-node=2", "sh", "-c", script);
    assert_int_equal(spawn_wait(&j->trirun), 1);
}

static void workers_that_ended_in_the_same_moment_are_asked_before_the_verdict(void **state)
{
    launcher_job j;

    (void)state;
    run_two_ends(&j, 0, "exit 5", "exit 0");
    assert_has(SPAWN_ERR(&j.trirun), "rank 0 exited with code 5");
    assert_has(SPAWN_ERR(&j.trirun), "left     : rank 1 had ended with status 0 just before");
    assert_has_not(SPAWN_ERR(&j.trirun), "stopping the other");
    trirun_end(&j, 1);
    run_two_ends(&j, 1, "exit 7", "exit 5");
    assert_has(SPAWN_ERR(&j.trirun), "rank 1 exited with code 7");
    assert_has(SPAWN_ERR(&j.trirun), "victims  : 0 stopped because of it, 1 failed after it");
    assert_has_not(SPAWN_ERR(&j.trirun), "stopping the other");
    trirun_end(&j, 1);
}

static void a_stopped_job_names_who_left(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "--events=/dev/stdout", "sh", "-c",
           "[ $RANK = 1 ] && exit 0; exec sleep 1000");
    spawn_expect(&j.trirun, "\"event\": \"worker_ended\"");
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "rank 1 had left with status 0 ");
    assert_has(SPAWN_ERR(&j.trirun), "1 other continued");
    trirun_end(&j, 0);
}

static void a_crash_says_where_its_core_is_and_sigkill_who_sent_it(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "sh", "-c", "ulimit -c 0; kill -SEGV $$$$");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "exitcode : -11");
    assert_has(SPAWN_ERR(&j.trirun), "ulimit -c unlimited");
    trirun_end(&j, 1);
    TRIRUN(&j, "sh", "-c", "kill -KILL $$$$");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "reason   : another process sent SIGKILL");
    trirun_end(&j, 1);
}

static void a_hang_is_ended_and_says_who_hangs(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nproc-per-node=2", "--hang-timeout=1.5", "sh", "-c",
           "[ $RANK = 1 ] && exit 0; exec sleep 1000");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "the job hangs: for 1.5 s");
    assert_has(SPAWN_ERR(&j.trirun), "rank 1 left with status 0");
    assert_has(SPAWN_ERR(&j.trirun), "rank 0 (pid ");
    assert_has(SPAWN_ERR(&j.trirun), ") is sleeping");
    trirun_end(&j, 1);
}

/* Workers that are deaf to SIGTERM for a while, or that wait for the cause of another's failure. */
static void a_job_that_ends_does_not_hang(void **state)
{
    static const char *const words[] = {"boom", "Broken pipe"};
    launcher_job j;

    (void)state;
    for (int i = 0; i < 2; i++) {
        TRIRUN(&j, "--nproc-per-node=2", "--max-restarts=1", "--hang-timeout=1.5", "sh", "-c",
               ("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; trap '' TERM\n"
                "[ $RANK = 1 ] && echo $0 >&2 && exit 1; for i in 1 2 3 4 5; do sleep 0.4; done"),
               words[i]);
        assert_int_equal(spawn_wait(&j.trirun), 0);
        assert_has_not(SPAWN_ERR(&j.trirun), "the job hangs");
        trirun_end(&j, 0);
    }
}

/* What prints lives, however slowly. */
static void a_job_that_prints_does_not_hang(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--hang-timeout=2", "sh", "-c",
           "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.3; done");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_ERR(&j.trirun), "");
    trirun_end(&j, 0);
}

/* Nor does one live that only says, each minute, that it waits: to trirun's pipe, to a file. */
static void our_own_warnings_are_no_sign_of_life(void **state)
{
    static const char *const where[] = {"--redirects=0", "--redirects=3"};
    launcher_job j;

    (void)state;
    for (int i = 0; i < 2; i++) {
        TRIRUN(
            &j, "--hang-timeout=0.6", where[i], "sh", "-c",
            "while :; do echo trireme warn group: rank 0 has waited 9.9 s >&2; sleep 0.05; done");
        assert_int_equal(spawn_wait(&j.trirun), 1);
        assert_has(SPAWN_ERR(&j.trirun), "the job hangs: for 0.6 s");
        trirun_end(&j, 1);
    }
}

/* What a worker of the test below runs: rank 1 never makes the call, and prints until the other one
 * has. */
static int call_alone(void)
{
    float x = 1;

    if (tri_init(NULL) != TRI_OK)
        return 9;
    if (tri_rank() == 1) {
        while (trii_rank_calls(getenv("TRI_RUN_DIR"), 0) < 1) {
            puts("rank 0 has begun no call");
            fflush(stdout);
            trii_sleep_until(trii_deadline_ms(20));
        }
        pause();
    }
    return tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL) != TRI_OK;
}

/* Rank 1 ends with status 0 after the first of two calls. */
static int leave_early(void)
{
    float x[7] = {1};

    if (tri_init(NULL) != TRI_OK ||
        tri_all_reduce(NULL, x, x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL) != TRI_OK)
        return 9;
    if (tri_rank() == 1) {
        while (trii_rank_calls(getenv("TRI_RUN_DIR"), 0) < 2 ||
               trii_rank_calls(getenv("TRI_RUN_DIR"), 2) < 2)
            sched_yield(); /* they wait soon */
        _exit(0);
    }
    return tri_all_reduce(NULL, x, x, 7, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL) != TRI_OK;
}

/* It is the cause, and the others, which failed, are its victims. */
static void a_worker_that_ended_well_while_others_waited_for_it_is_the_cause(void **state)
{
    char self[4096] = "";
    launcher_job j;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN(&j, "--nproc-per-node=3", self, "--early");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "failed: rank 1 returned 0 after ");
    assert_has(SPAWN_ERR(&j.trirun),
               " s without tri_finalize while 2 others waited in all_reduce #2 "
               "of 7 f32, sum (launcher_report_test.c:");
    assert_has(SPAWN_ERR(&j.trirun), "exitcode : 0 (pid: ");
    assert_has(SPAWN_ERR(&j.trirun), "  victims  : ");
    assert_has_not(SPAWN_ERR(&j.trirun), "left     :");
    ask(&j, (const char *const[]){"why", NULL}, self, sizeof(self));
    assert_has(self, "returned 0 after ");
    assert_has(self, " s without tri_finalize: the first failure; it was in its own code after "
                     "all_reduce #1");
    trirun_end(&j, 1);
}

/* Ranks that use this library have flight records: the call and its line are named. */
static void a_hang_in_a_collective_names_the_call(void **state)
{
    static const char waited[] = "\nrank 0 waited for ";
    char self[4096] = "", text[4096], *rest;
    int64_t began_ns = trii_now_ns();
    launcher_job j;
    double took, seconds;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN(&j, "--nproc-per-node=2", "--hang-timeout=2", "--shutdown-timeout=1", self, "--worker");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "the job hangs");
    assert_has(SPAWN_ERR(&j.trirun), "launcher_report_test.c:");
    assert_has(SPAWN_ERR(&j.trirun), "all_reduce");
    took = (double)(trii_now_ns() - began_ns) / TRII_NS_PER_S;
    trii_sleep_until(trii_deadline_ms(300)); /* it has waited no longer for that */
    ask(&j, (const char *const[]){"why", NULL}, text, sizeof(text));
    assert_has(text, waited);
    seconds = strtod(strstr(text, waited) + strlen(waited), &rest);
    assert_true(seconds > 0.2 && seconds < took + 0.1);
    assert_has(rest, ", for rank 1, which had called nothing yet");
    assert_has(text, "\ntrirun ended the job: for 2 s no rank began a call and none printed "
                     "(--hang-timeout)\n");
    assert_has_not(text, "killed");
    trirun_end(&j, 1);
}

/* The log has promised that `trireme why` knows more. */
static void a_signal_to_a_job_that_waits_keeps_its_records(void **state)
{
    char self[300] = {0};
    launcher_job j;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN(&j, "--nproc-per-node=2", "--shutdown-timeout=1", self, "--worker");
    spawn_expect(&j.trirun, "trireme why");
    spawn_signal(&j.trirun, SIGINT);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "workers waited in a call; see for whom: trireme why /");
    trirun_end(&j, 1);
}

/* Reduces for ever; rank 1 works between two calls, so that rank 0 nearly always waits for it. */
static int call_for_ever(void)
{
    float x = 1;

    if (tri_init(NULL) != TRI_OK)
        return 9;
    for (unsigned n = 0;; n++) {
        if (tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_MAX, NULL) != TRI_OK)
            return 1;
        if (n == 0)
            printf("rank %d reduces\n", tri_rank());
        fflush(stdout);
        for (volatile unsigned work = 0; tri_rank() == 1 && work < 1000000;)
            work++;
    }
}

/* Ranks of a healthy job wait for each other too: that is no trouble to be kept. */
static void a_signal_to_a_healthy_job_leaves_nothing(void **state)
{
    char self[300] = {0};
    launcher_job j;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN(&j, "--nproc-per-node=2", self, "--for-ever");
    spawn_expect(&j.trirun, "rank 0 reduces");
    spawn_expect(&j.trirun, "rank 1 reduces");
    spawn_signal(&j.trirun, SIGINT);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has_not(SPAWN_ERR(&j.trirun), "waited in a call");
    trirun_end(&j, 0);
}

static void every_change_is_a_line_of_json(void **state)
{
    static const char *const names[] = {"job_started",  "attempt_started", "worker_started",
                                        "worker_ended", "failure",         "attempt_ended",
                                        "job_ended"};
    char home[256], path[300], text[8192];
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(path, sizeof(path), "%s/events", home);
    TRIRUN(&j, "--nproc-per-node=2", "--rdzv-id=j\"1", "--events", path, "sh", "-c",
           "[ $RANK = 0 ] || exec sleep 1000; exit 3");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_true(slurp(path, text, sizeof(text)));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char part[80];

        snprintf(part, sizeof(part), "\"event\": \"%s\", \"run_id\": \"j\\\"1\", ", names[i]);
        assert_has(text, part);
    }
    assert_int_equal(count_in(text, "\"event\": \"worker_started\""), 2);
    assert_has(text, "\"rank\": 0, \"pid\": ");
    assert_has(text, "\"code\": 3, \"signal\": 0, \"stopped_by_us\": false");
    assert_has(text, "\"exit_status\": 1}\n");
    for (char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        assert_true(line[0] == '{' && strchr(line, '\n')[-1] == '}');
    trirun_end(&j, 1);
    spawn_remove_folder(home);
}

/* Bytes of an id or a name are anything; the files are JSON all the same. */
static void what_is_no_utf8_is_told_in_json(void **state)
{
    char home[256], path[300], text[16384], name[320];
    launcher_job j;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(path, sizeof(path), "%s/events", home);
    snprintf(name, sizeof(name), "%s/Gr\xfc\xdf\x65", home);
    write_text(name, "#!/bin/sh\nsleep 1000\n", 0755);
    TRIRUN(&j, "--rdzv-id=\xff\n\"id", "--events", path, name);
    do /* until the job file is there; the deadline of the test ends it */
        ask(&j, PS_JSON, text, sizeof(text));
    while (strstr(text, "Gr\\ufffd\\ufffde") == NULL && strstr(text, "Gr\xef\xbf\xbd") == NULL);
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_true(slurp(path, text, sizeof(text)));
    assert_has(text, "\"run_id\": \"\xef\xbf\xbd\\u000a\\\"id\", ");
    assert_has_not(text, "\xff");
    trirun_end(&j, 0);
    spawn_remove_folder(home);
}

static void a_report_is_whole_and_has_no_control_characters(void **state)
{
    char folder[300], name[3000], line[3100];
    size_t used;
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    used = (size_t)snprintf(name, sizeof(name), "%s/", folder);
    for (int i = 0; i < 10; i++) { /* more than fits where most lines fit */
        memset(name + used, 'a' + i, 220);
        name[used += 220] = '\0';
        assert_int_equal(mkdir(name, 0700), 0);
        name[used++] = '/';
    }
    snprintf(name + used, sizeof(name) - used, "x\033[2J");
    write_text(name,
               "#!/bin/sh\nprintf '%s\\n' '{\"message\": {\"message\": \"bad\\u001b[2J\\nend\", "
               "\"extraInfo\": {}}}' >$TORCHELASTIC_ERROR_FILE\nexit 3\n",
               0755);
    TRIRUN(&j, "--role=a\033b", "-t3", "--nproc-per-node=1", name);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    snprintf(line, sizeof(line), "trirun: %.*sx\\x1b[2J failed: rank 0", (int)strlen(name) - 5,
             name);
    assert_has(SPAWN_ERR(&j.trirun), line);
    assert_has(SPAWN_ERR(&j.trirun), "  message  : bad\\x1b[2J\\nend\n");
    assert_has_not(SPAWN_ERR(&j.trirun), "\033");
    trirun_end(&j, 1);
    spawn_remove_folder(folder);
}

/* Hosts that meet need one, and it is known before they have met. */
static void all_lines_of_a_job_have_one_id(void **state)
{
    char endpoint[40];
    launcher_job j;

    (void)state;
    snprintf(endpoint, sizeof(endpoint), "--rdzv-endpoint=127.0.0.1:%d", spawn_free_port());
    TRIRUN(&j, "--nnodes=1:2", "--rdzv-backend=c10d", endpoint,
           "--rdzv-conf=last_call_timeout=0.05", "--events=/dev/stdout", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "\"event\": \"job_started\", \"run_id\": \"none\", ");
    assert_int_equal(count_in(SPAWN_OUT(&j.trirun), "\"run_id\": \"none\""),
                     count_in(SPAWN_OUT(&j.trirun), "\"event\": "));
    trirun_end(&j, 0);
}

static void ps_shows_the_ranks_of_jobs_that_run(void **state)
{
    char self[4096] = "", text[8192];
    launcher_job j;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN(&j, "--nproc-per-node=2", "--rdzv-id=job7", self, "--worker");
    do /* until rank 0 is in its call; the deadline of the test ends it */
        ask(&j, PS, text, sizeof(text));
    while (strstr(text, "in all_reduce") == NULL);
    assert_has(text, "id job7  host 1 of 1  world 2");
    assert_has(text, "launcher_report_test.c:");
    ask(&j, PS_JSON, text, sizeof(text));
    assert_has(text, "\"steps_per_s\": ");
    assert_has(text, "\"world_size\": 2");
    while (spawn_count(&j.trirun) <
           4) /* trirun, its guard, which comes a little later, the workers */
        ;
    spawn_signal(&j.trirun, SIGKILL);
    spawn_wait(&j.trirun);
    spawn_expect_no_process(&j.trirun);
    ask(&j, PS, text, sizeof(text));
    assert_has(text, "no job of this user runs on this host");
    trirun_end(&j, 1);
}

static void ps_shows_who_waits_for_other_hosts(void **state)
{
    char port[40], text[8192], says[100];
    int number = spawn_free_port();
    launcher_job j;

    (void)state;
    snprintf(port, sizeof(port), "--master-port=%d", number);
    TRIRUN(&j, "--nnodes=2", "--master-addr=127.0.0.1", port, "--rdzv-id=job8", "true");
    do /* the deadline of the test ends it */
        ask(&j, PS, text, sizeof(text));
    while (strstr(text, "1 of 2 hosts joined") == NULL);
    assert_has(text, "  waiting  true  id job8  for ");
    snprintf(says, sizeof(says),
             "\n  1 of 2 hosts joined job job8 at 127.0.0.1:%d; start trirun on 1 more\n", number);
    assert_has(text, says);
    ask(&j, PS_JSON, text, sizeof(text));
    assert_has(text, "\"state\": \"waiting\"");
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
}

static void a_dry_run_shows_the_plan_and_runs_nothing(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--dry-run", "--nnodes=2", "--node-rank=1", "--nproc-per-node=2",
           "--master-addr=10.0.0.1", "sh", "-c", "echo a b $RANK", "${local_rank}");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "runs nothing");
    assert_has(SPAWN_OUT(&j.trirun), "static at 10.0.0.1:29500");
    assert_has(SPAWN_OUT(&j.trirun), "  rank 3    : sh -c 'echo a b $RANK' 1\n");
    assert_has(SPAWN_OUT(&j.trirun), "      WORLD_SIZE=4\n");
    assert_has(SPAWN_OUT(&j.trirun), "      RANK=2\n");
    assert_has(SPAWN_OUT(&j.trirun), "      MASTER_PORT=29500\n");
    assert_has(SPAWN_OUT(&j.trirun), "      TORCHELASTIC_RUN_ID=none\n");
    assert_has(SPAWN_OUT(&j.trirun), "as if every host had 2 workers\n");
    trirun_end(&j, 0);
    TRIRUN(&j, "--dry-run", "--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=h:1",
           "--rdzv-conf=username=me,password=s3cret,ttl=5", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "      MASTER_PORT=(decided by the rendezvous)\n");
    assert_has(SPAWN_OUT(&j.trirun), "      GROUP_WORLD_SIZE=2\n");
    assert_has(SPAWN_OUT(&j.trirun), "      TORCHELASTIC_ERROR_FILE=(made at the start)\n");
    assert_has(SPAWN_OUT(&j.trirun), "  rendezvous: etcd at h:1\n");
    assert_has_not(SPAWN_OUT(&j.trirun), "s3cret");
    trirun_end(&j, 0);
    TRIRUN(&j, "--dry-run", "--nnodes=1:3", "--nproc-per-node=2", "--rdzv-backend=c10d", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "  rendezvous: c10d at localhost:29400\n");
    assert_has(SPAWN_OUT(&j.trirun), "  store     : on the host that gets rank 0, any free port\n");
    assert_has(SPAWN_OUT(&j.trirun), "  worker 1  : true\n");
    assert_int_equal(count_in(SPAWN_OUT(&j.trirun), "=(decided by the rendezvous)"), 2 * 9);
    assert_has_not(SPAWN_OUT(&j.trirun), "127.0.0.1");
    trirun_end(&j, 0);
    TRIRUN(&j, "--dry-run", "--rdzv-backend=etcd", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "one host needs none, so etcd is not asked\n");
    assert_has(SPAWN_OUT(&j.trirun), "      TRI_AGENT_STORE=(made at the start)\n");
    trirun_end(&j, 0);
    TRIRUN(&j, "--dry-run", "no-such-program-anywhere");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    trirun_end(&j, 0);
}

static void a_busy_port_is_told_with_what_to_do(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char port[16];
    launcher_job j;

    (void)state;
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    snprintf(port, sizeof(port), "%d", ntohs(at.sin_port));
    TRIRUN(&j, "--master-port", port, "true");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), port);
    assert_has(SPAWN_ERR(&j.trirun),
               "in use: another job or program uses the port (which: ss -ltnp | grep :");
    assert_has(SPAWN_ERR(&j.trirun),
               "; choose another --master-port, or --master-port 0 for any\n");
    trirun_end(&j, 0);
    close(fd);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_workers_error_file_is_reported_and_handed_on),
    cmocka_unit_test(a_traceback_is_told_once),
    cmocka_unit_test(a_worker_that_left_before_the_failure_is_named),
    cmocka_unit_test(workers_that_ended_in_the_same_moment_are_asked_before_the_verdict),
    cmocka_unit_test(a_stopped_job_names_who_left),
    cmocka_unit_test(a_crash_says_where_its_core_is_and_sigkill_who_sent_it),
    cmocka_unit_test(a_hang_is_ended_and_says_who_hangs),
    cmocka_unit_test(a_job_that_ends_does_not_hang),
    cmocka_unit_test(a_job_that_prints_does_not_hang),
    cmocka_unit_test(our_own_warnings_are_no_sign_of_life),
    cmocka_unit_test(a_worker_that_ended_well_while_others_waited_for_it_is_the_cause),
    cmocka_unit_test(a_hang_in_a_collective_names_the_call),
    cmocka_unit_test(a_signal_to_a_job_that_waits_keeps_its_records),
    cmocka_unit_test(a_signal_to_a_healthy_job_leaves_nothing),
    cmocka_unit_test(every_change_is_a_line_of_json),
    cmocka_unit_test(all_lines_of_a_job_have_one_id),
    cmocka_unit_test(what_is_no_utf8_is_told_in_json),
    cmocka_unit_test(a_report_is_whole_and_has_no_control_characters),
    cmocka_unit_test(ps_shows_the_ranks_of_jobs_that_run),
    cmocka_unit_test(ps_shows_who_waits_for_other_hosts),
    cmocka_unit_test(a_dry_run_shows_the_plan_and_runs_nothing),
    cmocka_unit_test(a_busy_port_is_told_with_what_to_do),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return call_alone();
    if (argc > 1 && strcmp(argv[1], "--for-ever") == 0)
        return call_for_ever();
    if (argc > 1 && strcmp(argv[1], "--early") == 0)
        return leave_early();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
