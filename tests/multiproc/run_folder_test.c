/*
 * run_folder_test.c - where trirun keeps what belongs to a job, in surroundings that are not as
 * they should be: it runs the job all the same, and `trireme ps` finds it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "testing/launcher_job.h"

/* In a mount namespace of its own, where this system lets us make one, with a new /tmp and /dev/shm
 * in which there is nothing but the build, if it lies there. $0 is trirun, $1 the tool. */
static void run_script(launcher_job *j, const char *script)
{
    static const char begin[] =
        "build=$(cd \"${0%/*}/..\" && pwd) || exit 9\n"
        "(\n"
        "    cd \"$build\" && mount -t tmpfs none /tmp && mount -t tmpfs none /dev/shm || exit 9\n"
        "    [ ! -e \"$build\" ] || exit 0\n"
        "    mkdir -p \"$build\" && mount --no-canonicalize --bind . \"$build\"\n"
        ") || exit 9\n";
    static char all[4096];
    const char *const argv[] = {
        "unshare", "-rm", "sh", "-c", all, spawn_bin("trirun"), spawn_bin("trireme"), NULL};

    snprintf(all, sizeof(all), "%s%s", begin, script);
    trirun_start_by(j, argv, NULL);
    assert_int_equal(spawn_wait(&j->trirun), 0);
}

static bool may_mount(void)
{
    const char *const argv[] = {"unshare", "-rm", "mount", "-t", "tmpfs", "none", "/tmp", NULL};
    spawn s;
    bool may;

    spawn_start(&s, argv, NULL);
    may = spawn_wait(&s) == 0;
    spawn_free(&s);
    return may;
}

static void a_runtime_folder_that_is_no_use_is_not_used(void **state)
{
    launcher_job j;

    (void)state;
    if (!may_mount())
        return;
    run_script(&j, "for x in /no/such relative /dev/null ''; do\n"
                   "    XDG_RUNTIME_DIR=$x \"$0\" sh -c 'echo $TRI_RUN_DIR' || exit 1\n"
                   "done\n"
                   "mkdir -m 777 /tmp/x; touch /tmp/x/trireme-0\n"
                   "XDG_RUNTIME_DIR=/tmp/x \"$0\" sh -c 'echo $TRI_RUN_DIR' || exit 1\n");
    assert_int_equal(count_in(SPAWN_OUT(&j.trirun), "/tmp/trireme-0/20"), 5);
    assert_string_equal(SPAWN_ERR(&j.trirun), "");
    trirun_end(&j, 0);
}

static void a_name_that_somebody_has_taken_stops_no_job(void **state)
{
    launcher_job j;

    (void)state;
    if (!may_mount())
        return;
    run_script(
        &j,
        "unset XDG_RUNTIME_DIR; touch /tmp/trireme-0\n"
        "\"$0\" sh -c 'echo A $TRI_RUN_DIR' || exit 1\n"
        "rm -r /dev/shm/trireme-0; touch /dev/shm/trireme-0; mkdir -m 777 /tmp/trireme-0-aaaaaa\n"
        "\"$0\" sh -c 'echo B $TRI_RUN_DIR; exit 3' 2>/dev/null && exit 1\n"
        "\"$0\" sh -c 'echo C $TRI_RUN_DIR; sleep 0.1; \"$0\" ps' \"$1\" || exit 1\n"
        "ls -d /tmp/trireme-0-* | wc -l\n");
    assert_has(SPAWN_OUT(&j.trirun), "A /dev/shm/trireme-0/20");
    assert_has(SPAWN_OUT(&j.trirun), "B /tmp/trireme-0-");
    assert_has(SPAWN_OUT(&j.trirun), "C /tmp/trireme-0-");
    assert_has(SPAWN_OUT(&j.trirun), "host 1 of 1"); /* ps found it */
    assert_has(SPAWN_OUT(&j.trirun), "\n2\n");       /* theirs and ours: that is used again */
    trirun_end(&j, 0);
}

/* What `trireme ps` does, and nothing else: looks whether a folder is locked. */
static void look_at_locks(const char *folder)
{
    for (;;) {
        DIR *dir = opendir(folder);
        const struct dirent *entry;

        while (dir != NULL && (entry = readdir(dir)) != NULL) {
            int fd = entry->d_name[0] != '.' ? openat(dirfd(dir), entry->d_name, O_RDONLY) : -1;

            if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
                sched_yield();
            if (fd >= 0)
                close(fd);
        }
        if (dir != NULL)
            closedir(dir);
    }
}

static void jobs_begin_while_others_look_at_their_locks(void **state)
{
    const char *const argv[] = {
        "sh",
        "-c",
        "i=0; while [ $i -lt $1 ]; do \"$0\" true || exit; i=$((i+1)); done",
        spawn_bin("trirun"),
        TEST_SANITIZED ? "15" : "60",
        NULL};
    launcher_job j;
    int looker;

    (void)state;
    trirun_start_by(&j, argv, NULL);
    looker = fork();
    assert_true(looker >= 0);
    if (looker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        look_at_locks(j.folder);
    }
    spawn_wait(&j.trirun);
    kill(looker, SIGKILL);
    waitpid(looker, NULL, 0);
    assert_string_equal(SPAWN_ERR(&j.trirun), "");
    assert_int_equal(j.trirun.status, 0);
    trirun_end(&j, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_runtime_folder_that_is_no_use_is_not_used),
    cmocka_unit_test(a_name_that_somebody_has_taken_stops_no_job),
    cmocka_unit_test(jobs_begin_while_others_look_at_their_locks),
};

TEST_MAIN(tests)
