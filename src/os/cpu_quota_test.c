/*
 * cpu_quota_test.c - the cores that control groups allow, out of files as the kernel has them.
 */
#include "os/cpu_quota.h"

#include <limits.h>
#include <sys/stat.h>

#include "testing/check.h"
#include "testing/scratch.h"

static void put(scratch *s, const char *name, const char *text)
{
    char folder[256];
    const char *path = scratch_path(s, name);
    FILE *file;

    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof(folder), "%s/%.*s", s->dir, (int)(slash - name), name);
        (void)mkdir(folder, 0700);
    }
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static trii_cpu_quota look(const scratch *s)
{
    trii_cpu_quota quota;

    trii_cpu_quota_look(s->dir, &quota);
    return quota;
}

static void no_file_is_no_limit(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(look(&s).cores, 0);
    put(&s, "proc/self/cgroup", "0::/\n");
    assert_int_equal(look(&s).cores, 0);
    put(&s, "proc/self/cgroup", "no line of it\n:\n0:\n1::\n2:cpu:\n0::relative");
    put(&s, "sys/fs/cgroup/cpu.max", "200000 100000\n");
    put(&s, "sys/fs/cgrouprelative/cpu.max", "200000 100000\n");
    assert_int_equal(look(&s).cores, 0);
    scratch_end(&s);
}

static void a_limit_counts_in_whole_cores(void **state)
{
    static const struct {
        const char *text;
        int cores;
    } files[] = {
        {"max 100000\n", 0},
        {"200000 100000\n", 2},
        {"250000 100000\n", 2},
        {"50000 100000\n", 1},
        {"75000 25000\n", 3},
        {"400000 100000", 4},
        {"9223372036854775807 1\n", INT_MAX},
        {"99999999999999999999 100000\n", 0},
        {"200000\n", 0},
        {"200000 0\n", 0},
        {"-1 100000\n", 0},
        {"", 0},
    };
    scratch s;

    (void)state;
    scratch_begin(&s);
    put(&s, "proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        put(&s, "sys/fs/cgroup/cpu.max", files[i].text);
        assert_int_equal(look(&s).cores, files[i].cores);
    }
    scratch_end(&s);
}

/* Whichever it is: a pod's, or that of a container in it. */
static void the_tightest_group_counts(void **state)
{
    trii_cpu_quota quota;
    scratch s;

    (void)state;
    scratch_begin(&s);
    put(&s, "proc/self/cgroup", "0::/pod/worker\n");
    put(&s, "sys/fs/cgroup/pod/cpu.max", "300000 100000\n");
    put(&s, "sys/fs/cgroup/pod/worker/cpu.max", "max 100000\n");
    quota = look(&s);
    assert_int_equal(quota.cores, 3);
    assert_true(quota.group != 0);
    put(&s, "proc/self/cgroup", "0::/pod/other\n"); /* shares it */
    assert_true(look(&s).group == quota.group);
    put(&s, "sys/fs/cgroup/pod/other/cpu.max", "150000 100000\n");
    assert_int_equal(look(&s).cores, 1);
    assert_true(look(&s).group != quota.group);
    put(&s, "sys/fs/cgroup/pod/other/cpu.max", "800000 100000\n"); /* more than the pod has */
    assert_int_equal(look(&s).cores, 3);
    assert_true(look(&s).group == quota.group);
    scratch_end(&s);
}

/* What the host calls our group is not to be seen in a container: its own is the root. */
static void a_container_finds_its_own_limit(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    put(&s, "proc/self/cgroup", "0::/kubepods.slice/pod7/cri-12ab.scope\n");
    put(&s, "sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(look(&s).cores, 2);
    scratch_end(&s);
}

static void the_older_layout_is_read(void **state)
{
    static const char *const lines[] = {"12:pids:/x\n5:cpu,cpuacct:/docker/abc\n0::/\n",
                                        "5:cpuacct,cpu:/docker/abc\n", "5:cpu:/\n"};
    scratch s;

    (void)state;
    scratch_begin(&s);
    put(&s, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
    put(&s, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        put(&s, "proc/self/cgroup", lines[i]);
        assert_int_equal(look(&s).cores, 3);
    }
    put(&s, "sys/fs/cgroup/cpu.max", "100000 100000\n"); /* not of the layout that has it */
    put(&s, "proc/self/cgroup", lines[0]);
    assert_int_equal(look(&s).cores, 3);
    put(&s, "proc/self/cgroup", "6:cpuset:/\n7:cpuacct:/\n8:name=cpu:/\n");
    assert_int_equal(look(&s).cores, 0);
    put(&s, "proc/self/cgroup", "5:cpu:/\n");
    put(&s, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(look(&s).cores, 0);
    scratch_end(&s);
}

static void processes_share_the_quota_of_their_group(void **state)
{
    const trii_cpu_quota one_group[] = {{2, 7}, {2, 7}, {2, 7}},
                         own_groups[] = {{1, 7}, {2, 8}, {1, 9}, {2, 8}},
                         one_is_free[] = {{1, 7}, {0, 0}};

    (void)state;
    assert_int_equal(trii_cpu_quota_share(16, one_group, 3), 2);
    assert_int_equal(trii_cpu_quota_share(1, one_group, 3), 1);
    assert_int_equal(trii_cpu_quota_share(16, own_groups, 4), 4);
    assert_int_equal(trii_cpu_quota_share(16, one_is_free, 2), 16);
    assert_int_equal(trii_cpu_quota_share(16, NULL, 0), 16);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_file_is_no_limit),
    cmocka_unit_test(a_limit_counts_in_whole_cores),
    cmocka_unit_test(the_tightest_group_counts),
    cmocka_unit_test(a_container_finds_its_own_limit),
    cmocka_unit_test(the_older_layout_is_read),
    cmocka_unit_test(processes_share_the_quota_of_their_group),
};

TEST_MAIN(tests)
