/*
 * daemon_test.c - a worker's descendant that hides: twice removed, in a session of its own, with an
 * empty environment. It ends with the job, whichever process is killed, where trirun may make a
 * control group; where it may not, what docs/TORCHRUN.md says of that. The output says which of the
 * two was tested.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include "launch/os/cgroup.h"
#include "os/process.h"
#include "testing/launcher_job.h"

/* In a worker whose first argument is a folder: its file `daemon` gets the process id. */
#define START_DAEMON                                                                               \
    "(setsid env -i /bin/sh -c 'echo $$$$ >$0.new; mv $0.new $0; exec sleep 1000' $1/daemon "      \
    "</dev/null >/dev/null 2>&1 &)\n"                                                              \
    "until [ -e $1/daemon ]; do sleep 0.01; done\n"

/* The folder of our own control group; false: trirun can make none there. */
static bool find_own_group(char own[TRII_CGROUP_BYTES])
{
    trii_cgroup group = TRII_CGROUP_NONE;
    bool may = trii_cgroup_own("", own) == TRI_OK && trii_cgroup_create(own, &group) == TRI_OK;

    trii_cgroup_remove(&group);
    if (may)
        print_message("tested with control groups\n");
    else
        print_message("tested without control groups: %s\n", tri_last_error());
    return may;
}

static int read_pid(const char *folder)
{
    char path[300], text[40];
    long pid;

    snprintf(path, sizeof(path), "%s/daemon", folder);
    assert_true(slurp(path, text, sizeof(text)));
    pid = strtol(text, NULL, 10);
    assert_true(pid > 1);
    return (int)pid;
}

/* Once nothing that carries trirun's mark is left. */
static void expect_daemon(int pid, bool lives)
{
    if (trii_process_exists(pid) != lives) {
        kill(pid, SIGKILL);
        fail_msg("the daemon %s", lives ? "has ended" : "lives");
    }
    if (lives)
        kill(pid, SIGKILL);
}

static void a_daemon_ends_with_the_job(void **state)
{
    static const char *const last[] = {"exit 0", "exit 3"};
    char own[TRII_CGROUP_BYTES], folder[256];

    (void)state;
    find_own_group(own);
    for (int i = 0; i < 2; i++) {
        char script[600];
        launcher_job j;

        spawn_make_folder(folder, sizeof(folder));
        snprintf(script, sizeof(script), START_DAEMON "%s", last[i]);
        TRIRUN(&j, "sh", "-c", script, "x", folder);
        assert_int_equal(spawn_wait(&j.trirun), i);
        expect_daemon(read_pid(folder), false);
        trirun_end(&j, i);
        spawn_remove_folder(folder);
    }
}

static void a_daemon_deaf_to_sigterm_ends_with_the_job(void **state)
{
    char own[TRII_CGROUP_BYTES], folder[256];
    launcher_job j;

    (void)state;
    find_own_group(own);
    spawn_make_folder(folder, sizeof(folder));
    TRIRUN(&j, "--shutdown-timeout=0.1", "sh", "-c", "trap '' TERM\n" START_DAEMON "exit 0", "x",
           folder);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    expect_daemon(read_pid(folder), false);
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

static void a_daemon_ends_before_the_workers_start_again(void **state)
{
    char own[TRII_CGROUP_BYTES], folder[256];
    launcher_job j;

    (void)state;
    find_own_group(own);
    spawn_make_folder(folder, sizeof(folder));
    TRIRUN(&j, "--max-restarts=1", "sh", "-c",
           "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then\n"
           "  kill -0 $(cat $1/daemon) 2>/dev/null && echo lives || echo gone; exit 0\n"
           "fi\n" START_DAEMON "exit 3",
           "x", folder);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "gone\n");
    expect_daemon(read_pid(folder), false);
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

/* Its group was killed for it: some kernels end at once what begins there afterwards. */
static void workers_start_again_after_a_deaf_daemon(void **state)
{
    char own[TRII_CGROUP_BYTES], folder[256];
    bool grouped = find_own_group(own);
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    TRIRUN(&j, "--max-restarts=2", "--nproc-per-node=2", "--shutdown-timeout=0.1", "sh", "-c",
           "if [ $TORCHELASTIC_RESTART_COUNT = 2 ]; then\n"
           "  kill -0 $(cat $1/daemon) 2>/dev/null && echo lives || echo gone\n"
           "  grep -q '^0:.*/trireme-' /proc/self/cgroup && echo inside || echo outside; exit 0\n"
           "fi\n[ $RANK = 0 ] || exec sleep 1000\n"
           "trap '' TERM; rm -f $1/daemon\n" START_DAEMON "exit 3",
           "x", folder);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_int_equal(count_in(SPAWN_OUT(&j.trirun), "gone\n"), 2);
    assert_int_equal(count_in(SPAWN_OUT(&j.trirun), grouped ? "inside\n" : "outside\n"), 2);
    expect_daemon(read_pid(folder), false);
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

/* Starts one, and waits until its daemon, and its guard, are there. */
static void start_with_guard(launcher_job *j, const char *folder)
{
    TRIRUN(j, "sh", "-c", START_DAEMON "echo ready; exec sleep 1000", "x", folder);
    spawn_expect(&j->trirun, "ready\n");
    while (spawn_count(&j->trirun) < 3) /* trirun, its guard, the worker */
        ;
    j->trirun.guarded = true;
}

static void a_daemon_ends_with_a_killed_trirun(void **state)
{
    char own[TRII_CGROUP_BYTES], folder[256];
    bool grouped = find_own_group(own);
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    start_with_guard(&j, folder);
    spawn_signal(&j.trirun, SIGKILL);
    assert_int_equal(spawn_wait(&j.trirun), -SIGKILL);
    spawn_expect_no_process(&j.trirun);
    expect_daemon(read_pid(folder), !grouped);
    trirun_end(&j, 1);
    spawn_remove_folder(folder);
}

/* The child of trirun that is trirun. */
static int find_guard(int pid)
{
    char path[64], children[400], name[40], *at = children, *end;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    assert_true(slurp(path, children, sizeof(children)));
    for (;; at = end) {
        int child = (int)strtol(at, &end, 10);

        assert_true(end != at);
        snprintf(path, sizeof(path), "/proc/%d/comm", child);
        if (slurp(path, name, sizeof(name)) && strcmp(name, "trirun\n") == 0)
            return child;
    }
}

static void a_stopped_guard_does_not_hold_up_the_end(void **state)
{
    char folder[256];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    start_with_guard(&j, folder);
    kill(find_guard(j.trirun.pid), SIGSTOP);
    spawn_signal(&j.trirun, SIGTERM);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    expect_daemon(read_pid(folder), false);
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

/* Nobody is left to end it but the next job. */
static void a_daemon_whose_guard_is_killed_too_ends_with_the_next_job(void **state)
{
    char own[TRII_CGROUP_BYTES], folder[256];
    bool grouped = find_own_group(own);
    launcher_job j, next;
    int pid;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    start_with_guard(&j, folder);
    pid = read_pid(folder);
    kill(find_guard(j.trirun.pid), SIGKILL);
    j.trirun.guarded = false;
    spawn_signal(&j.trirun, SIGKILL);
    assert_int_equal(spawn_wait(&j.trirun), -SIGKILL);
    while (spawn_count(&j.trirun) > 0) /* the worker ends with its parent */
        ;
    assert_true(grouped || trii_process_exists(pid));
    TRIRUN(&next, "true");
    assert_int_equal(spawn_wait(&next.trirun), 0);
    trirun_end(&next, 0);
    /* A job that starts at this moment may be the one that sweeps. */
    for (int i = 0; i < 2000 && grouped && trii_process_exists(pid); i++)
        poll(NULL, 0, 5);
    expect_daemon(pid, !grouped);
    trirun_end(&j, 1);
    spawn_remove_folder(folder);
}

/* The inner trirun is in the group of the outer, and so is its own group. */
static void a_daemon_of_a_trirun_in_a_trirun_ends_too(void **state)
{
    char own[TRII_CGROUP_BYTES], folder[256];
    bool grouped = find_own_group(own);
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    TRIRUN(&j, spawn_bin("trirun"), "sh", "-c",
           /* the outer trirun makes one $ of two, and the inner one too */
           "(setsid env -i /bin/sh -c 'echo $$$$$$$$ >$0.new; mv $0.new $0; exec sleep 1000' "
           "$1/daemon </dev/null >/dev/null 2>&1 &)\n"
           "until [ -e $1/daemon ]; do sleep 0.01; done; echo ready; exec sleep 1000",
           "x", folder);
    spawn_expect(&j.trirun, "ready\n");
    while (spawn_count(&j.trirun) < 5) /* two triruns, their guards, the worker */
        ;
    j.trirun.guarded = true;
    spawn_signal(&j.trirun, SIGKILL);
    assert_int_equal(spawn_wait(&j.trirun), -SIGKILL);
    spawn_expect_no_process(&j.trirun);
    expect_daemon(read_pid(folder), !grouped);
    trirun_end(&j, 2);
    spawn_remove_folder(folder);
}

/* The line of version 2 in /proc/self/cgroup, "" if there is none. */
static void read_group_line(char *text, char *line, size_t bytes)
{
    const char *at = strstr(text, "0::");

    snprintf(line, bytes, "%.*s", at != NULL ? (int)strcspn(at, "\n") : 0, at != NULL ? at : "");
}

/* Another trirun that starts may sweep a group away before it is locked: then the next number. */
static void find_group_of(const char *own, int pid, char *procs, size_t bytes)
{
    int n = 0;

    do
        snprintf(procs, bytes, "%s/trireme-%d-%d/cgroup.procs", own, pid, n);
    while (access(procs, W_OK) != 0 && ++n < 4);
}

/* As another program could have put it there: it is no descendant of trirun. */
static void what_comes_into_the_group_ends_with_the_job(void **state)
{
    char own[TRII_CGROUP_BYTES], folder[256], procs[TRII_CGROUP_BYTES + 60], pid[16], flag[300];
    bool grouped = find_own_group(own);
    launcher_job j;
    spawn stranger;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    spawn_start(&stranger, (const char *const[]){"sleep", "1000", NULL}, NULL);
    TRIRUN(&j, "sh", "-c", "echo ready; until [ -e $1/go ]; do sleep 0.01; done", "x", folder);
    spawn_expect(&j.trirun, "ready\n");
    if (grouped) {
        find_group_of(own, j.trirun.pid, procs, sizeof(procs));
        snprintf(pid, sizeof(pid), "%d", stranger.pid);
        write_text(procs, pid, 0644);
    }
    snprintf(flag, sizeof(flag), "%s/go", folder);
    write_text(flag, "", 0644);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    if (!grouped) {
        assert_true(trii_process_exists(stranger.pid)); /* nothing makes it trirun's */
        spawn_signal(&stranger, SIGKILL);
    }
    assert_int_equal(spawn_wait(&stranger), -SIGKILL);
    spawn_free(&stranger);
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

static void the_setting_turns_control_groups_off(void **state)
{
    char own[TRII_CGROUP_BYTES], ours[TRII_CGROUP_BYTES], theirs[TRII_CGROUP_BYTES], text[4096];
    bool grouped = find_own_group(own);
    launcher_job j;

    (void)state;
    assert_true(slurp("/proc/self/cgroup", text, sizeof(text)));
    read_group_line(text, ours, sizeof(ours));
    TRIRUN(&j, "cat", "/proc/self/cgroup");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    read_group_line(SPAWN_OUT(&j.trirun), theirs, sizeof(theirs));
    if (grouped) {
        snprintf(text, sizeof(text), "/trireme-%d-", j.trirun.pid);
        assert_has(theirs, text);
    } else {
        assert_string_equal(theirs, ours);
    }
    assert_string_equal(SPAWN_ERR(&j.trirun), "");
    trirun_end(&j, 0);
    TRIRUN_ENV(&j, "TRI_CGROUP=0", "cat", "/proc/self/cgroup");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    read_group_line(SPAWN_OUT(&j.trirun), theirs, sizeof(theirs));
    assert_string_equal(theirs, ours);
    trirun_end(&j, 0);
    TRIRUN_ENV(&j, "TRI_CGROUP=2", "true");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "TRI_CGROUP=2 must be an integer from 0 to 1");
    trirun_end(&j, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_daemon_ends_with_the_job),
    cmocka_unit_test(a_daemon_deaf_to_sigterm_ends_with_the_job),
    cmocka_unit_test(a_daemon_ends_before_the_workers_start_again),
    cmocka_unit_test(workers_start_again_after_a_deaf_daemon),
    cmocka_unit_test(a_stopped_guard_does_not_hold_up_the_end),
    cmocka_unit_test(a_daemon_ends_with_a_killed_trirun),
    cmocka_unit_test(a_daemon_whose_guard_is_killed_too_ends_with_the_next_job),
    cmocka_unit_test(a_daemon_of_a_trirun_in_a_trirun_ends_too),
    cmocka_unit_test(what_comes_into_the_group_ends_with_the_job),
    cmocka_unit_test(the_setting_turns_control_groups_off),
};

TEST_MAIN(tests)
