/*
 * cases.c - see cases.h.
 */
#include "testing/cases.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_AT_ONCE 16

typedef struct child {
    pid_t pid; /* 0: none runs here */
    int output;
    const char *name;
    double began;
    bool late;
    bool *done; /* shared with it: cmocka came to its end */
} child;

typedef struct runner {
    const char *program;
    const struct CMUnitTest *tests;
    size_t n_tests;
    child children[MOST_AT_ONCE];
    long at_once;
    double deadline; /* 0: none */
    int results;     /* -1: none */
    size_t n_passed;
    size_t n_failed;
    sigset_t before; /* the signal mask that cases get */
} runner;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

/* What runs on is taken along: it was forked by this one and would wait for nobody. */
static void kill_all(runner *r)
{
    for (long i = 0; i < r->at_once; i++) {
        if (r->children[i].pid > 0)
            kill(-r->children[i].pid, SIGKILL);
    }
}

/* In the child: finds what it would find in a program of its own, and does not return. What a shell
 * in the background, nohup and Python let their programs ignore it does not ignore. */
static void run_case(runner *r, const char *name, int output, bool *done)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGXFSZ};
    int n_failed;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    close(output);
    if (r->results >= 0)
        close(r->results);
    for (long i = 0; i < r->at_once; i++) {
        if (r->children[i].pid > 0)
            close(r->children[i].output);
    }
    unsetenv("TRI_TEST_RESULTS");
    unsetenv("TRI_TEST_ONLY");
    setenv("TRI_TEST_CASE", name, 1);
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &r->before, NULL);
    cmocka_set_test_filter(name);
    n_failed = _cmocka_run_group_tests(name, r->tests, r->n_tests, NULL, NULL);
    *done = true;
    exit(n_failed);
}

static void start(runner *r, child *c, const char *name)
{
    /* A file and no pipe: it needs no reader, and a process that outlives its case keeps nobody
     * waiting. */
    int output = memfd_create("output", MFD_CLOEXEC);
    pid_t pid;

    *c->done = false;
    fflush(stdout);
    pid = output < 0 ? -1 : fork();
    if (pid < 0) {
        perror("start a case");
        kill_all(r);
        exit(1);
    }
    if (pid == 0)
        run_case(r, name, output, c->done);
    setpgid(pid, pid);
    c->pid = pid;
    c->output = output;
    c->name = name;
    c->began = now();
    c->late = false;
}

static void show_output(int output)
{
    char text[4096];
    ssize_t n;

    for (off_t at = 0; (n = pread(output, text, sizeof(text), at)) > 0; at += n)
        fwrite(text, 1, (size_t)n, stdout);
}

/* Of the case and of the processes that it has waited for. */
static double processor_seconds(const struct rusage *used)
{
    return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
           1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

/* Says what became of it: `status` as waitid() gives it. */
static void tell(runner *r, const child *c, const siginfo_t *end, const struct rusage *used)
{
    bool passed = end->si_code == CLD_EXITED && end->si_status == 0 && !c->late && *c->done;
    double seconds = now() - c->began;

    if (passed) {
        r->n_passed++;
        printf("passed %s, %.2f s\n", c->name, seconds);
    } else {
        r->n_failed++;
        show_output(c->output);
        if (c->late)
            printf("FAILED %s: no end after %.0f s\n", c->name, r->deadline);
        else if (end->si_code == CLD_EXITED && !*c->done)
            printf("FAILED %s: it left with status %d before its end\n", c->name, end->si_status);
        else if (end->si_code == CLD_EXITED)
            printf("FAILED %s: exit status %d after %.2f s\n", c->name, end->si_status, seconds);
        else
            printf("FAILED %s: %s after %.2f s\n", c->name, strsignal(end->si_status), seconds);
        printf("alone: %s %s\n", r->program, c->name);
    }
    fflush(stdout);
    if (r->results >= 0)
        dprintf(r->results, "%s %s %.2f %.2f\n", passed ? "passed" : "failed", c->name, seconds,
                processor_seconds(used));
}

/* Ends what has had its time, and takes the end of what has ended. */
static void look_after(runner *r)
{
    for (long i = 0; i < r->at_once; i++) {
        child *c = &r->children[i];
        siginfo_t end = {0};
        struct rusage used;

        if (c->pid == 0)
            continue;
        if (r->deadline > 0 && !c->late && now() - c->began > r->deadline) {
            c->late = true;
            kill(-c->pid, SIGKILL);
        }
        /* Its group is killed while its number is still its own. */
        if (waitid(P_PID, (id_t)c->pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0)
            continue;
        kill(-c->pid, SIGKILL);
        wait4(c->pid, NULL, 0, &used);
        tell(r, c, &end, &used);
        close(c->output);
        c->pid = 0;
    }
}

/* Until a child has ended or a deadline may have come; a signal that ends this one ends all. */
static void wait_for_some(runner *r, const sigset_t *watched)
{
    struct timespec patience = {.tv_sec = 1};
    int signal_number = sigtimedwait(watched, NULL, &patience);

    if (signal_number > 0 && signal_number != SIGCHLD) {
        kill_all(r);
        signal(signal_number, SIG_DFL);
        sigprocmask(SIG_SETMASK, &r->before, NULL);
        raise(signal_number);
    }
}

static long count_running(const runner *r)
{
    long n = 0;

    for (long i = 0; i < r->at_once; i++)
        n += r->children[i].pid != 0;
    return n;
}

/* A place for one more, once there is one. */
static child *free_place(runner *r, const sigset_t *watched)
{
    for (;;) {
        for (long i = 0; i < r->at_once; i++) {
            if (r->children[i].pid == 0)
                return &r->children[i];
        }
        wait_for_some(r, watched);
        look_after(r);
    }
}

int test_run_cases(const char *program, const struct CMUnitTest *tests, size_t n_tests)
{
    runner r = {.program = program, .tests = tests, .n_tests = n_tests, .results = -1};
    bool *done = mmap(NULL, MOST_AT_ONCE * sizeof(*done), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *only = getenv("TRI_TEST_ONLY");
    const char *results = getenv("TRI_TEST_RESULTS");
    sigset_t watched;

    r.deadline = (double)number("TRI_TEST_DEADLINE", 0);
    r.at_once = number("TRI_TEST_AT_ONCE", 1);
    r.at_once = r.at_once < 1 ? 1 : r.at_once > MOST_AT_ONCE ? MOST_AT_ONCE : r.at_once;
    if (results != NULL) {
        r.results = open(results, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
        if (r.results < 0) {
            fprintf(stderr, "%s: write %s: %s\n", program, results, strerror(errno));
            return 1;
        }
    }
    if (done == MAP_FAILED) {
        perror("share a page");
        return 1;
    }
    for (int i = 0; i < MOST_AT_ONCE; i++)
        r.children[i].done = &done[i];
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGHUP);
    sigprocmask(SIG_BLOCK, &watched, &r.before);
    for (size_t i = 0; i < n_tests; i++) {
        if (only == NULL || strcmp(only, tests[i].name) == 0)
            start(&r, free_place(&r, &watched), tests[i].name);
    }
    while (count_running(&r) > 0) {
        wait_for_some(&r, &watched);
        look_after(&r);
    }
    if (r.results >= 0)
        close(r.results);
    munmap(done, MOST_AT_ONCE * sizeof(*done));
    printf("%zu passed, %zu failed\n", r.n_passed, r.n_failed);
    return r.n_failed == 0 && r.n_passed > 0 ? 0 : 1;
}
