/*
 * memory_room_test.c - how much memory is left, out of files as the kernel has them.
 */
#include "testing/check.h"
#include "testing/scratch.h"

#include <sys/stat.h>

#include "os/memory_room.h"

static void put(scratch *s, const char *name, const char *text)
{
    char folder[256];
    const char *path = scratch_path(s, name);

    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof(folder), "%s/%.*s", s->dir, (int)(slash - name), name);
        (void)mkdir(folder, 0700);
    }
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static trii_memory_room look(const scratch *s)
{
    trii_memory_room room;

    trii_memory_room_look(s->dir, &room);
    return room;
}

static void nothing_known_is_no_limit(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_true(look(&s).host_bytes == SIZE_MAX);
    assert_true(look(&s).cgroup_bytes == SIZE_MAX);
    assert_true(look(&s).cgroup == 0);
    scratch_end(&s);
}

/* The tightest group counts, whichever it is, and file caches do not. */
static void the_tightest_group_counts(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    put(&s, "proc/meminfo", "MemTotal:  900 kB\nMemAvailable:   500 kB\nSwapFree:  20 kB\n");
    put(&s, "proc/self/cgroup", "0::/job/worker\n");
    put(&s, "sys/fs/cgroup/job/memory.max", "100000\n");
    put(&s, "sys/fs/cgroup/job/memory.current", "70000\n");
    put(&s, "sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 300\nactive_file 700\n");
    put(&s, "sys/fs/cgroup/job/worker/memory.max", "max\n");
    put(&s, "sys/fs/cgroup/job/worker/memory.current", "60000\n");
    assert_int_equal(look(&s).host_bytes, 520 * 1024);
    assert_int_equal(look(&s).cgroup_bytes, 31000);
    assert_true(look(&s).cgroup != 0);
    put(&s, "sys/fs/cgroup/job/worker/memory.max", "60500\n");
    assert_int_equal(look(&s).cgroup_bytes, 500);
    put(&s, "sys/fs/cgroup/job/worker/memory.current", "70000\n"); /* above its limit */
    assert_int_equal(look(&s).cgroup_bytes, 0);
    scratch_end(&s);
}

/* Version 1, in a container that sees its own group as the root. */
static void the_older_layout_is_read(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    put(&s, "proc/self/cgroup", "12:pids:/x\n5:memory:/docker/abc\n1:name=systemd:/x\n");
    put(&s, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9000\n");
    put(&s, "sys/fs/cgroup/memory/memory.usage_in_bytes", "2000\n");
    assert_int_equal(look(&s).cgroup_bytes, 7000);
    put(&s, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(look(&s).cgroup_bytes == SIZE_MAX);
    scratch_end(&s);
}

static void this_system_says_what_it_has(void **state)
{
    trii_memory_room room;

    (void)state;
    trii_memory_room_look("", &room);
    assert_true(room.host_bytes > 1 << 20 && room.host_bytes < (size_t)1 << 50);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_known_is_no_limit),
    cmocka_unit_test(the_tightest_group_counts),
    cmocka_unit_test(the_older_layout_is_read),
    cmocka_unit_test(this_system_says_what_it_has),
};

TEST_MAIN(tests)
