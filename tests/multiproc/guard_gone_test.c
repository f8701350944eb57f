/*
 * guard_gone_test.c - the guard of a job is killed: the agent says so, and does not take who has
 * its number later for it.
 */
#include <signal.h>

#include "testing/trirun_job.h"

/* Kills the guard, the child of trirun that keeps its name once both workers are `sleep` (until it
 * has executed its program a worker is called trirun, too); in a process namespace of its own
 * another process gets its number then. Ends the job and says what became of that one. */
static const char script[] = "\"$1\" --nproc-per-node=2 --no-python sleep 1000 & t=$!\n"
                             "workers=\n"
                             "until [ \"$workers\" = xx ] && [ -n \"$g\" ]; do\n"
                             "    g= workers=\n"
                             "    for p in $(cat /proc/$t/task/$t/children); do\n"
                             "        case $(cat /proc/$p/comm) in\n"
                             "        sleep) workers=x$workers ;;\n"
                             "        trirun) g=$p ;;\n"
                             "        esac\n"
                             "    done\n"
                             "done\n"
                             "kill -9 $g\n"
                             "while [ -e /proc/$g ]; do :; done\n"
                             "v=0\n"
                             "while [ \"$2\" = own ] && [ $v != $g ]; do\n"
                             "    [ $v = 0 ] || kill $v\n"
                             "    echo $((g - 1)) >/proc/sys/kernel/ns_last_pid\n"
                             "    sleep 999 & v=$!\n"
                             "done\n"
                             "kill $t; wait $t\n"
                             "[ $v = 0 ] || kill -0 $v && echo alive\n"
                             "[ $v = 0 ] || kill $v\n";

static void a_process_with_the_number_of_the_guard_lives(void **state)
{
    const char *const head[] = {"unshare", "-pf", "--mount-proc", "--kill-child",
                                "sh",      "-c",  "true",         NULL};
    const char *argv[12];
    char home[300], own[256];
    const char *env[] = {home, "OMP_NUM_THREADS", "TRI_NUM_THREADS", "TRI_RUN_DIR", NULL};
    bool may;
    int n = 0;
    spawn s;

    (void)state;
    spawn_start(&s, head, NULL);
    may = spawn_wait(&s) == 0;
    spawn_free(&s);
    for (; may && n < 4; n++)
        argv[n] = head[n];
    argv[n++] = "sh";
    argv[n++] = "-c";
    argv[n++] = script;
    argv[n++] = "sh";
    argv[n++] = spawn_bin("trirun");
    argv[n++] = may ? "own" : "shared";
    argv[n] = NULL;
    spawn_make_folder(own, sizeof(own));
    snprintf(home, sizeof(home), "XDG_RUNTIME_DIR=%s", own);
    spawn_start(&s, argv, env);
    spawn_wait(&s);
    trirun_has(SPAWN_OUT(&s), "alive\n");
    trirun_has(SPAWN_ERR(&s), "was killed: if trirun is killed too");
    spawn_expect_no_process(&s);
    spawn_free(&s);
    spawn_remove_folder(own);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_process_with_the_number_of_the_guard_lives),
};

TEST_MAIN(tests)
