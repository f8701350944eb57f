/*
 * cgroup_test.c - where our control group is, on many systems; and its life, where this
 * machine allows one: where it does not, that this is said and processes start all the same. The
 * output says which of the two was tested.
 */
#include "launch/os/cgroup.h"
#include "os/descriptor.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/folder.h"
#include "os/process.h"
#include "testing/check.h"
#include "testing/scratch.h"
#include "testing/spawn.h"

/* --- where it is ---------------------------------------------------------- */

/* A file below a copy of the system's files, with the folders above it. */
static void put(const scratch *s, const char *name, const char *text)
{
    char path[300];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", s->dir, name);
    CHECK_OK(trii_folder_create_above(path));
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A group of version 2. */
static void put_group(const scratch *s, const char *mount, const char *inside)
{
    char name[200];

    snprintf(name, sizeof(name), "sys/fs/%s%s/cgroup.controllers", mount, inside);
    put(s, name, "cpu memory\n");
}

static const struct {
    const char *groups, *mount, *inside; /* another group below the mount */
    const char *path;                    /* NULL = none */
} systems[] = {
    /* systemd, version 2 only */
    {"0::/user.slice/session-3.scope\n", "cgroup", "/user.slice/session-3.scope",
     "cgroup/user.slice/session-3.scope"},
    {"0::/\n", "cgroup", "/unified", "cgroup"},
    /* both versions */
    {"4:memory:/a\n1:name=systemd:/\n0::/\n", "cgroup/unified", "", "cgroup/unified"},
    {"4:memory:/a\n0::/a b\n", "cgroup/unified", "/a b", "cgroup/unified/a b"},
    /* a container that sees its own group as the root */
    {"0::/docker/12ab\n", "cgroup", "/other", "cgroup"},
    {"0::/docker/12ab\n", "cgroup/unified", "", "cgroup/unified"},
    /* outside of the namespace */
    {"0::/..\n", "cgroup", "", NULL},
    {"0::/../other\n", "cgroup", "/other", NULL},
    /* version 1 only, nothing mounted, nothing at all */
    {"4:memory:/a\n", "cgroup", "", NULL},
    {"10::/a\n", "cgroup", "/a", NULL},
    {"0::/a\n", "elsewhere", "/a", NULL},
    {"", "cgroup", "", NULL},
    {NULL, "cgroup", "", NULL},
    /* malformed */
    {"0::a\n", "cgroup", "/a", NULL},
    {"0::", "cgroup", "", NULL},
};

static void the_folder_of_our_group_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++) {
        char path[TRII_CGROUP_BYTES] = "untouched", expected[300] = "untouched";
        scratch s;

        scratch_begin(&s);
        if (systems[i].groups != NULL)
            put(&s, "proc/self/cgroup", systems[i].groups);
        put_group(&s, systems[i].mount, "");
        put_group(&s, systems[i].mount, systems[i].inside);
        if (systems[i].path != NULL) {
            snprintf(expected, sizeof(expected), "%s/sys/fs/%s", s.dir, systems[i].path);
            CHECK_OK(trii_cgroup_own(s.dir, path));
        } else {
            CHECK_FAILS(trii_cgroup_own(s.dir, path), TRI_ERR_UNSUPPORTED, "no control groups of");
        }
        assert_string_equal(path, expected);
        scratch_end(&s);
    }
}

/* A name that the kernel allows and nobody gives. */
static void a_path_that_is_too_long_is_not_cut(void **state)
{
    static char longer[2 * TRII_CGROUP_BYTES];
    char path[TRII_CGROUP_BYTES] = "untouched";
    scratch s;

    (void)state;
    memset(longer, 'x', sizeof(longer) - 1);
    memcpy(longer, "0::/", 4);
    scratch_begin(&s);
    put_group(&s, "cgroup", "");
    put(&s, "proc/self/cgroup", longer);
    CHECK_FAILS(trii_cgroup_own(s.dir, path), TRI_ERR_UNSUPPORTED, "no control groups of");
    assert_string_equal(path, "untouched");
    scratch_end(&s);
}

static void names_of_ours_are_cut_off(void **state)
{
    static const struct {
        const char *path, *outside;
    } cases[] = {{"/", "/"},
                 {"", ""},
                 {"/a/b", "/a/b"},
                 {"/trireme-12-0", ""},
                 {"/a/trireme-12-0/trireme-13-1", "/a"},
                 {"/trireme-12-0/a", "/trireme-12-0/a"},
                 {"/a/trireme-test-1", "/a/trireme-test-1"},
                 {"/a/trireme-", "/a/trireme-"},
                 {"/a/trireme-1", "/a/trireme-1"},
                 {"/a/trireme-1-", "/a/trireme-1-"},
                 {"/a/trireme-1-0a", "/a/trireme-1-0a"},
                 {"/a/trireme-1.service", "/a/trireme-1.service"}};
    char path[80];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(path, sizeof(path), "%s", cases[i].path);
        trii_cgroup_outside(path);
        assert_string_equal(path, cases[i].outside);
    }
}

/* --- its life ------------------------------------------------------------- */

/* Whether a process lives in it or below; one that has ended and is not reaped does not count. */
static bool is_populated(const trii_cgroup *group)
{
    char path[TRII_CGROUP_BYTES + 16], text[256] = "";
    FILE *file;

    snprintf(path, sizeof(path), "%s/cgroup.events", group->path);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    return strstr(text, "populated 1") != NULL;
}

/* False: not on this machine, or not by this user; then what is said of it was checked. */
static bool make_group(trii_cgroup *group)
{
    char own[TRII_CGROUP_BYTES], expected[TRII_CGROUP_BYTES];
    tri_status status = trii_cgroup_own("", own);

    *group = (trii_cgroup)TRII_CGROUP_NONE;
    if (status == TRI_OK)
        status = trii_cgroup_create(own, group);
    if (status != TRI_OK) {
        print_message("tested without control groups: %s\n", tri_last_error());
        assert_int_equal(status, TRI_ERR_UNSUPPORTED);
        assert_string_not_equal(tri_last_error(), "");
        assert_int_equal(group->fd, -1);
        trii_cgroup_kill(group); /* all of it does nothing */
        trii_cgroup_clear(group);
        trii_cgroup_remove(group);
        return false;
    }
    print_message("tested with control groups: %s\n", group->path);
    snprintf(expected, sizeof(expected), "%s/trireme-%d-", own, (int)getpid());
    assert_memory_equal(group->path, expected, strlen(expected));
    return true;
}

static void start_sleep(const trii_cgroup *group, trii_process *process)
{
    static const char *const argv[] = {"/bin/sleep", "1000", NULL}, *const envp[] = {NULL};
    const trii_process_spec spec = {.path = argv[0],
                                    .argv = argv,
                                    .envp = envp,
                                    .in_fd = -1,
                                    .out_fd = -1,
                                    .err_fd = -1,
                                    .cgroup_fd = &group->fd};

    CHECK_OK(trii_process_start(&spec, process));
}

static void expect_killed(trii_process *process)
{
    trii_process_exit how;
    tri_status status;

    while ((status = trii_process_reap(process, &how)) == TRI_INPROGRESS)
        poll(NULL, 0, 1);
    CHECK_OK(status);
    assert_int_equal(how.signal, SIGKILL);
}

static void a_group_ends_all_that_is_in_it(void **state)
{
    trii_process process[3];
    trii_cgroup group;
    char inner[TRII_CGROUP_BYTES + 8];

    (void)state;
    if (!make_group(&group))
        return;
    assert_false(is_populated(&group));
    for (int i = 0; i < 3; i++)
        start_sleep(&group, &process[i]);
    assert_true(is_populated(&group));
    trii_cgroup_kill(&group);
    for (int i = 0; i < 3; i++)
        expect_killed(&process[i]);
    trii_cgroup_clear(&group);
    assert_false(is_populated(&group));

    start_sleep(&group, &process[0]); /* it can be used again, and has a group below */
    snprintf(inner, sizeof(inner), "%s/inner", group.path);
    assert_int_equal(mkdir(inner, 0755), 0);
    trii_cgroup_remove(&group);
    assert_int_equal(group.fd, -1);
    assert_int_equal(access(group.path, F_OK), -1);
    expect_killed(&process[0]);
}

/* Also in a group that was killed before, in which some kernels let nobody be born. */
static void what_a_process_starts_at_once_is_in_its_group(void **state)
{
    enum { ROUNDS = 20 };
    static const char *const argv[] = {"/bin/sh", "-c", "setsid sleep 1000 &", NULL};
    static const char *const envp[] = {"PATH=/usr/bin:/bin", NULL};
    trii_process_spec spec = {
        .path = argv[0], .argv = argv, .envp = envp, .in_fd = -1, .out_fd = -1, .err_fd = -1};
    trii_cgroup group;

    (void)state;
    if (!make_group(&group))
        return;
    spec.cgroup_fd = &group.fd;
    for (int i = 0; i < ROUNDS; i++) {
        trii_process_exit how;
        trii_process process;
        tri_status status;

        CHECK_OK(trii_process_start(&spec, &process));
        while ((status = trii_process_reap(&process, &how)) == TRI_INPROGRESS)
            poll(NULL, 0, 1);
        CHECK_OK(status);
        assert_int_equal(how.code, 0);
        assert_true(is_populated(&group));
        trii_cgroup_clear(&group);
        assert_false(is_populated(&group));
    }
    trii_cgroup_remove(&group);
}

static void what_cannot_start_in_a_group_says_so(void **state)
{
    static const char *const argv[] = {"/no/such/file", NULL}, *const envp[] = {NULL};
    trii_process_spec spec = {
        .path = argv[0], .argv = argv, .envp = envp, .in_fd = -1, .out_fd = -1, .err_fd = -1};
    trii_process process;
    trii_cgroup group;

    (void)state;
    spec.cgroup_fd = make_group(&group) ? &group.fd : NULL;
    CHECK_FAILS(trii_process_start(&spec, &process), TRI_ERR_NOT_FOUND,
                "cannot start /no/such/file: exec: No such file");
    trii_cgroup_remove(&group);
}

/* As where a filter of system calls forbids clone3, or our group is not ours to leave. */
static void a_group_that_the_kernel_refuses_is_done_without(void **state)
{
    trii_cgroup group = TRII_CGROUP_NONE;
    trii_process process;
    char folder[256];

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    CHECK_FAILS(trii_cgroup_create(folder, &group), TRI_ERR_UNSUPPORTED,
                "no control groups with cgroup.kill");
    assert_int_equal(spawn_count_entries(folder), 0);
    group.fd = 0; /* no folder of control groups */
    start_sleep(&group, &process);
    trii_process_signal(&process, SIGKILL);
    expect_killed(&process);
    spawn_remove_folder(folder);
    group.fd = -1;
    CHECK_FAILS(trii_cgroup_create(folder, &group), TRI_ERR_UNSUPPORTED, "cannot create");
    assert_int_equal(group.fd, -1);
}

static void a_group_whose_owner_is_gone_is_swept(void **state)
{
    trii_cgroup left, used, next;
    trii_process process;
    char path[TRII_CGROUP_BYTES];

    (void)state;
    if (!make_group(&used))
        return;
    assert_true(make_group(&left));
    assert_string_not_equal(left.path, used.path);
    start_sleep(&left, &process);
    assert_true(make_group(&next));
    assert_int_equal(access(left.path, F_OK), 0); /* all three are locked */
    trii_cgroup_remove(&next);
    memcpy(path, left.path, sizeof(path));
    trii_fd_close(left.fd); /* and its lock, as if we had been killed */
    assert_true(make_group(&next));
    /* Somebody else may have had the lock at that moment: another job that sweeps, or the process
     * in the group, since the kernel lets a parent of CLONE_VFORK go on before exec has closed what
     * it closes. Then it is swept by a job that comes later. */
    for (int i = 0; i < 2000 && strcmp(next.path, path) != 0 && access(path, F_OK) == 0; i++) {
        trii_cgroup_remove(&next);
        poll(NULL, 0, 5);
        assert_true(make_group(&next));
    }
    expect_killed(&process);
    assert_true(strcmp(next.path, path) == 0 || access(path, F_OK) != 0);
    assert_false(is_populated(&next));
    assert_int_equal(access(used.path, F_OK), 0);
    trii_cgroup_remove(&next);
    trii_cgroup_remove(&used);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_folder_of_our_group_is_found),
    cmocka_unit_test(a_path_that_is_too_long_is_not_cut),
    cmocka_unit_test(names_of_ours_are_cut_off),
    cmocka_unit_test(a_group_ends_all_that_is_in_it),
    cmocka_unit_test(what_a_process_starts_at_once_is_in_its_group),
    cmocka_unit_test(what_cannot_start_in_a_group_says_so),
    cmocka_unit_test(a_group_that_the_kernel_refuses_is_done_without),
    cmocka_unit_test(a_group_whose_owner_is_gone_is_swept),
};

TEST_MAIN(tests)
