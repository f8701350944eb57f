/*
 * cgroup_test.c - where our control group is, from texts of many systems; and its life, where this
 * machine allows one: where it does not, that this is said and processes start all the same. The
 * output says which of the two was tested.
 */
#include "launch/os/cgroup.h"
#include "os/descriptor.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/process.h"
#include "testing/check.h"
#include "testing/spawn.h"

#define LEGACY "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"

/* --- where it is ---------------------------------------------------------- */

static const struct {
    const char *groups, *mounts, *path; /* NULL = none */
} systems[] = {
    /* systemd, version 2 only */
    {"0::/user.slice/user-1000.slice/session-3.scope\n",
     "24 30 0:22 / /proc rw - proc proc rw\n"
     "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
     "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"},
    /* both versions */
    {"4:memory:/a\n1:name=systemd:/\n0::/\n",
     LEGACY "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
     "/sys/fs/cgroup/unified"},
    /* a container that sees its own group as the root, by a namespace */
    {"0::/\n", "35 24 0:30 / /sys/fs/cgroup ro - cgroup2 cgroup rw", "/sys/fs/cgroup"},
    /* and by a mount */
    {"0::/docker/12ab\n",
     "35 24 0:30 /docker/12ab /sys/fs/cgroup ro master:4 propagate_from:2 - cgroup2 cgroup rw\n",
     "/sys/fs/cgroup"},
    {"0::/docker/12ab/in\n", "35 24 0:30 /docker/12ab /cg ro - cgroup2 cgroup rw\n", "/cg/in"},
    /* a mount of somebody else's groups does not show ours */
    {"0::/docker/12abc\n",
     "35 24 0:30 /docker/12ab /cg rw - cgroup2 c rw\n36 24 0:30 / /all rw - cgroup2 c rw\n",
     "/all/docker/12abc"},
    /* names with spaces and backslashes */
    {"0::/a b\\x2dc\n", "35 24 0:30 /a\\040b\\134x2dc /my\\040cg rw - cgroup2 c rw\n", "/my cg"},
    /* outside of the namespace */
    {"0::/..\n", "35 24 0:30 / /cg rw - cgroup2 c rw\n", NULL},
    {"0::/../other\n", "35 24 0:30 / /cg rw - cgroup2 c rw\n", NULL},
    /* version 1 only, nothing mounted, nothing at all */
    {"4:memory:/a\n", LEGACY, NULL},
    {"0::/a\n", LEGACY "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", NULL},
    {"10::/a\n", "35 24 0:30 / /cg rw - cgroup2 c rw\n", NULL},
    {"", "35 24 0:30 / /cg rw - cgroup2 c rw\n", NULL},
    {"0::/a\n", "", NULL},
    /* malformed */
    {"0::a\n", "35 24 0:30 / /cg rw - cgroup2 c rw\n", NULL},
    {"0::/a\n", "35 24 0:30 / cg rw - cgroup2 c rw\n", NULL},
    {"0::/a\n", "35 24 0:30 / /cg\\04 rw - cgroup2 c rw\n", NULL},
    {"0::/a\n", "35 24 0:30 / /cg\\000 rw - cgroup2 c rw\n", NULL},
    {"0::/a\n", "35 24 0:30 / /cg\\777 rw - cgroup2 c rw\n", NULL},
    {"0::/a\n", "35 24 0:30 / /cg\\189 rw - cgroup2 c rw\n", NULL},
    {"0::/a\n", "35 24 0:30 / /cg rw - cgroup2\n36 24 0:30 / - cgroup2 x", NULL},
    {"0::/a\n", "35 24 0:30 / /a-cgroup2 rw - ext4 - cgroup2\n", NULL},
    {"0::/a\n", "    - cgroup2 \n- cgroup2 c rw\n\n\n", NULL},
};

static void the_folder_of_our_group_is_found(void **state)
{
    char path[256];

    (void)state;
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++) {
        snprintf(path, sizeof(path), "untouched");
        assert_int_equal(trii_cgroup_find(systems[i].groups, systems[i].mounts, path, sizeof(path)),
                         systems[i].path != NULL);
        assert_string_equal(path, systems[i].path != NULL ? systems[i].path : "untouched");
    }
    assert_false(trii_cgroup_find(systems[0].groups, systems[0].mounts, path, 57));
    assert_true(trii_cgroup_find(systems[0].groups, systems[0].mounts, path, 58));
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

/* On the heap, so that a sanitizer sees each byte that is read behind the end. */
static void look(const char *groups, size_t n_groups, const char *mounts, size_t n_mounts)
{
    char *a = malloc(n_groups + 1), *b = malloc(n_mounts + 1), *path = malloc(40);

    assert_true(a != NULL && b != NULL && path != NULL);
    memcpy(a, groups, n_groups);
    memcpy(b, mounts, n_mounts);
    a[n_groups] = b[n_mounts] = '\0';
    if (trii_cgroup_find(a, b, path, 40)) {
        assert_int_equal(path[0], '/');
        assert_true(strlen(path) < 40);
    }
    free(a);
    free(b);
    free(path);
}

/* Each text, cut anywhere, and with any one character replaced by each of those that mean much. */
static void torn_texts_do_no_harm(void **state)
{
    static const char letters[] = "\n /\\-0:79x\t";

    (void)state;
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++) {
        char groups[400], mounts[400];
        size_t n_groups = strlen(systems[i].groups), n_mounts = strlen(systems[i].mounts);

        memcpy(groups, systems[i].groups, n_groups);
        memcpy(mounts, systems[i].mounts, n_mounts);
        for (size_t n = 0; n <= n_groups; n++)
            look(groups, n, mounts, n_mounts);
        for (size_t n = 0; n <= n_mounts; n++)
            look(groups, n_groups, mounts, n);
        for (size_t at = 0; at < n_mounts; at++) {
            for (size_t k = 0; k < sizeof(letters) - 1; k++) {
                mounts[at] = letters[k];
                look(groups, n_groups, mounts, n_mounts);
            }
            mounts[at] = systems[i].mounts[at];
        }
    }
    {
        static char longer[8 * TRII_CGROUP_BYTES];

        memset(longer, 'x', sizeof(longer));
        memcpy(longer, "0::/", 4);
        look(longer, sizeof(longer), systems[0].mounts, strlen(systems[0].mounts));
        memcpy(longer, "1 2 3 / /", 9);
        memcpy(longer + sizeof(longer) - 20, " rw - cgroup2 cg rw\n", 20);
        look("0::/a\n", 6, longer, sizeof(longer));
    }
}

/* --- its life ------------------------------------------------------------- */

/* False: not on this machine, or not by this user; then what is said of it was checked. */
static bool make_group(trii_cgroup *group)
{
    char own[TRII_CGROUP_BYTES], expected[TRII_CGROUP_BYTES];
    tri_status status = trii_cgroup_own(own);

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
        assert_false(trii_cgroup_is_populated(group));
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
    assert_false(trii_cgroup_is_populated(&group));
    for (int i = 0; i < 3; i++)
        start_sleep(&group, &process[i]);
    assert_true(trii_cgroup_is_populated(&group));
    trii_cgroup_kill(&group);
    for (int i = 0; i < 3; i++)
        expect_killed(&process[i]);
    trii_cgroup_clear(&group);
    assert_false(trii_cgroup_is_populated(&group));

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
        assert_true(trii_cgroup_is_populated(&group));
        trii_cgroup_clear(&group);
        assert_false(trii_cgroup_is_populated(&group));
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
    trii_fd_close(left.kill_fd);
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
    assert_false(trii_cgroup_is_populated(&next));
    assert_int_equal(access(used.path, F_OK), 0);
    trii_cgroup_remove(&next);
    trii_cgroup_remove(&used);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_folder_of_our_group_is_found),
    cmocka_unit_test(torn_texts_do_no_harm),
    cmocka_unit_test(names_of_ours_are_cut_off),
    cmocka_unit_test(a_group_ends_all_that_is_in_it),
    cmocka_unit_test(what_a_process_starts_at_once_is_in_its_group),
    cmocka_unit_test(what_cannot_start_in_a_group_says_so),
    cmocka_unit_test(a_group_that_the_kernel_refuses_is_done_without),
    cmocka_unit_test(a_group_whose_owner_is_gone_is_swept),
};

TEST_MAIN(tests)
