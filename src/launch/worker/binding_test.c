/* binding_test.c - cores of workers on a made-up host: two sockets of two nodes of four cores. */
#include "launch/worker/binding.h"

#include "os/folder.h"
#include "testing/check.h"
#include "testing/spawn.h"

static char host[256];

static void write_file(const char *name, const char *text)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", host, name);
    CHECK_OK(trii_folder_create_above(path));
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_host(void **state)
{
    static const char *const nodes[] = {"0-3\n", "4-7\n", "8-11\n", "12-15\n"};
    char name[128];

    (void)state;
    spawn_make_folder(host, sizeof(host));
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "devices/system/node/node%d/cpulist", i);
        write_file(name, nodes[i]);
    }
    for (int i = 0; i < 16; i++) {
        snprintf(name, sizeof(name), "devices/system/cpu/cpu%d/topology/package_cpus_list", i);
        write_file(name, i < 8 ? "0-7\n" : "8-15\n");
    }
    return 0;
}

static int remove_host(void **state)
{
    (void)state;
    spawn_remove_folder(host);
    return 0;
}

static uint64_t cores_of(const char *how, uint64_t allowed, int local_rank, int local_size)
{
    trii_cpu_set set = {.words = {allowed}}, cores;
    trii_binding binding;

    CHECK_OK(trii_binding_open(&binding, how, host, &set));
    trii_binding_of(&binding, local_rank, local_size, &cores);
    trii_binding_close(&binding);
    return cores.words[0];
}

static void workers_are_spread_over_the_groups(void **state)
{
    (void)state;
    assert_int_equal(cores_of("node", 0xffff, 0, 4), 0x000f);
    assert_int_equal(cores_of("node", 0xffff, 3, 4), 0xf000);
    assert_int_equal(cores_of("node", 0xffff, 1, 2), 0x0f00);
    assert_int_equal(cores_of("node", 0xffff, 5, 8), 0x0f00);
    assert_int_equal(cores_of("socket", 0xffff, 1, 2), 0xff00);
    assert_int_equal(cores_of("exclusive", 0xffff, 4, 8), 0x0300);
    assert_int_equal(cores_of("exclusive", 0xffff, 5, 8), 0x0c00);
    assert_int_equal(cores_of("exclusive", 0x3, 5, 8), 0x3);
    /* only what we may use is handed out, and a host that does not say is one group */
    assert_int_equal(cores_of("node", 0x0ff0, 0, 2), 0x00f0);
    assert_int_equal(cores_of("core-complex", 0xffff, 1, 2), 0xffff);
}

static void a_gpu_draws_its_worker(void **state)
{
    (void)state;
    write_file("bus/pci/drivers/nvidia/0000:17:00.0/local_cpulist", "12-15\n");
    write_file("bus/pci/drivers/nvidia/0000:65:00.0/local_cpulist", "0-3\n");
    assert_int_equal(cores_of("node", 0xffff, 0, 2), 0xf000);
    assert_int_equal(cores_of("node", 0xffff, 1, 2), 0x000f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(workers_are_spread_over_the_groups, make_host, remove_host),
    cmocka_unit_test_setup_teardown(a_gpu_draws_its_worker, make_host, remove_host),
};

TEST_MAIN(tests)
