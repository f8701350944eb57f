/*
 * memory_kills_test.c - a worker that the kernel kills for lack of memory is told from one that
 * somebody kills: by a control group of its own where one can be made, else by the counters' texts
 * alone.
 */
#include "launch/report/memory_kills.h"

#include "testing/launcher_job.h"

static bool put(const char *folder, const char *name, const char *text)
{
    char path[300];
    FILE *file;
    bool ok;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    if (file == NULL)
        return false;
    ok = fputs(text, file) >= 0;
    return fclose(file) == 0 && ok;
}

/* A group whose processes may use 64 MiB; false: not on this machine, or not by this user. */
static bool make_group(char *path, size_t bytes)
{
    static const char *const roots[] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"};
    static const char *const limits[] = {"memory.limit_in_bytes", "memory.max"};

    for (int i = 0; i < 2; i++) {
        snprintf(path, bytes, "%s/trireme-test-%d", roots[i], (int)getpid());
        if (mkdir(path, 0755) != 0)
            continue;
        if (put(path, limits[i], "67108864")) {
            (void)put(path, i == 0 ? "memory.memsw.limit_in_bytes" : "memory.swap.max",
                      i == 0 ? "67108864" : "0"); /* where there is swap */
            return true;
        }
        rmdir(path);
    }
    return false;
}

static void texts_are_understood(void)
{
    static const char events[] = "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n";
    const trii_memory_kills unknown = {.group = -1, .host = -1};
    trii_memory_kills before = {.group = 1, .host = 4}, after = {.group = 2, .host = 5};

    assert_int_equal(trii_memory_kills_find(events, "oom_kill"), 2);
    assert_int_equal(trii_memory_kills_find(events, "oom"), 3);
    assert_int_equal(trii_memory_kills_find(events, "om"), -1);
    assert_int_equal(trii_memory_kills_find("oom_kill_disable 0\n", "oom_kill"), -1);
    assert_null(trii_memory_kills_explain(&unknown, &after));
    assert_has(trii_memory_kills_explain(&before, &after), "limit of our control group");
    after.group = 1;
    assert_has(trii_memory_kills_explain(&before, &after), "of this host");
    after.host = 4;
    assert_null(trii_memory_kills_explain(&before, &after));
}

static void a_kill_for_lack_of_memory_is_told(void **state)
{
    char group[200], home[256], variable[300];
    const char *argv[] = {"sh",
                          "-c",
                          "echo $$ >$0/cgroup.procs && exec \"$@\"",
                          group,
                          spawn_bin("trirun"),
                          "tail",
                          "/dev/zero",
                          NULL};
    const char *env[] = {variable, "TRI_RUN_DIR", NULL};
    spawn s;

    (void)state;
    texts_are_understood();
    if (!make_group(group, sizeof(group)))
        return; /* what the kernel says elsewhere was checked above */
    spawn_make_folder(home, sizeof(home));
    snprintf(variable, sizeof(variable), "XDG_RUNTIME_DIR=%s", home);
    spawn_start(&s, argv, env);
    spawn_wait(&s);
    spawn_expect_no_process(&s);
    while (rmdir(group) != 0) /* until the kernel has let go; the deadline of the test ends it */
        ;
    assert_int_equal(s.status, 1);
    assert_has(SPAWN_ERR(&s), "exitcode : -9");
    assert_has(SPAWN_ERR(&s), "reason   : out of memory: the kernel killed it at the limit of our "
                              "control group\n");
    spawn_free(&s);
    spawn_remove_folder(home);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_kill_for_lack_of_memory_is_told),
};

TEST_MAIN(tests)
