/* launch_env_test.c - what each launcher's variables and the URLs mean, and what is wrong. */
#include "group/launch_env.h"
#include "testing/check.h"

/* Empties the environment, then sets "NAME=value" texts. */
static void given(const char *const *entries)
{
    clearenv();
    for (; *entries != NULL; entries++) {
        char name[64];
        const char *value = strchr(*entries, '=');

        snprintf(name, sizeof(name), "%.*s", (int)(value - *entries), *entries);
        setenv(name, value + 1, 1);
    }
}
#define GIVEN(...) given((const char *const[]){__VA_ARGS__, NULL})

static void check_world(const char *url, int rank, int size, int local_rank, int local_size)
{
    trii_launch_env env;

    CHECK_OK(trii_launch_env_read(url, &env));
    assert_int_equal(env.rank, rank);
    assert_int_equal(env.size, size);
    assert_int_equal(env.local_rank, local_rank);
    assert_int_equal(env.local_size, local_size);
}

static void check_place(const char *url, const char *host, int port, bool agent_store)
{
    trii_launch_env env;

    CHECK_OK(trii_launch_env_read(url, &env));
    assert_string_equal(env.host, host);
    assert_int_equal(env.port, port);
    assert_int_equal(env.agent_store, agent_store);
}

static void check_bad(const char *url, const char *text)
{
    trii_launch_env env = {.rank = 77};

    CHECK_FAILS(trii_launch_env_read(url, &env), TRI_ERR_INVALID_ARG, text);
    assert_int_equal(env.rank, 77);
}

static void nothing_is_a_world_of_one(void **state)
{
    (void)state;
    GIVEN("HOME=/");
    check_world(NULL, 0, 1, 0, 1);
    check_place("env://", "", 0, false);
    /* a batch script of Slurm, where the program was not started by srun */
    GIVEN("SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=8");
    check_world(NULL, 0, 1, 0, 1);
}

static void torchrun_names_all(void **state)
{
    (void)state;
    GIVEN("RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node1",
          "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True");
    check_world(NULL, 5, 8, 1, 4);
    check_place(NULL, "node1", 29500, true);
    /* four variables by hand: one host, rank 0 serves */
    GIVEN("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4000");
    check_world(NULL, 1, 2, 1, 2);
    check_place(NULL, "127.0.0.1", 4000, false);
}

static void a_missing_or_bad_variable_is_named(void **state)
{
    (void)state;
    GIVEN("RANK=1", "MASTER_ADDR=h", "MASTER_PORT=1");
    check_bad(NULL, "WORLD_SIZE is not set");
    GIVEN("WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1");
    check_bad(NULL, "RANK is not set");
    GIVEN("WORLD_SIZE=2", "RANK=0", "MASTER_PORT=1");
    check_bad(NULL, "MASTER_ADDR is not set");
    GIVEN("WORLD_SIZE=2", "RANK=0", "MASTER_ADDR=h", "MASTER_PORT=");
    check_bad(NULL, "MASTER_PORT is not set");
    GIVEN("WORLD_SIZE=two", "RANK=0", "MASTER_ADDR=h", "MASTER_PORT=1");
    check_bad(NULL, "WORLD_SIZE=two is no integer");
    GIVEN("WORLD_SIZE=2", "RANK=2", "MASTER_ADDR=h", "MASTER_PORT=1");
    check_bad(NULL, "RANK=2 is not below WORLD_SIZE=2");
    GIVEN("WORLD_SIZE=2", "RANK=0", "MASTER_ADDR=h", "MASTER_PORT=70000");
    check_bad(NULL, "MASTER_PORT=70000 is outside 1 to 65535");
}

static void mpirun_meets_by_the_number_of_its_job(void **state)
{
    trii_launch_env first, second;

    (void)state;
    GIVEN("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=1031995393");
    check_world(NULL, 1, 2, 1, 2);
    CHECK_OK(trii_launch_env_read(NULL, &first));
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    CHECK_OK(trii_launch_env_read(NULL, &second));
    assert_string_equal(first.host, "127.0.0.1");
    assert_int_equal(first.port, second.port);
    setenv("PMIX_NAMESPACE", "1031995394", 1);
    CHECK_OK(trii_launch_env_read(NULL, &second));
    assert_int_not_equal(first.port, second.port);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1); /* more hosts than this */
    check_bad(NULL, "under mpirun needs MASTER_ADDR and MASTER_PORT");
    setenv("MASTER_ADDR", "node1", 1);
    setenv("MASTER_PORT", "4000", 1);
    check_place(NULL, "node1", 4000, false);
}

static void srun_names_tasks_and_nodes(void **state)
{
    trii_launch_env env;

    (void)state;
    GIVEN("SLURM_PROCID=6", "SLURM_NTASKS=7", "SLURM_LOCALID=0", "SLURM_NODEID=3",
          "SLURM_STEP_TASKS_PER_NODE=2(x3),1", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0",
          "SLURM_STEP_NODELIST=gpu[03-05,9]");
    check_world(NULL, 6, 7, 0, 1);
    CHECK_OK(trii_launch_env_read(NULL, &env));
    assert_string_equal(env.host, "gpu03");
    setenv("SLURM_STEP_NODELIST", "alpha,beta", 1);
    CHECK_OK(trii_launch_env_read(NULL, &env));
    assert_string_equal(env.host, "alpha");
    setenv("SLURM_NODEID", "9", 1);
    check_bad(NULL, "says nothing of node 9");
    /* the bare three variables and an address */
    GIVEN("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=4000");
    check_world(NULL, 1, 2, 1, 2);
    check_place(NULL, "127.0.0.1", 4000, false);
    unsetenv("SLURM_LOCALID");
    check_bad(NULL, "SLURM_LOCALID is not set");
}

static void urls_name_host_rank_and_size(void **state)
{
    (void)state;
    GIVEN("RANK=5");
    check_world("tcp://h:4000?rank=1&world_size=3", 1, 3, 1, 3);
    check_place("tcp://[::1]:4000?world_size=3&rank=1&use_libuv=0", "::1", 4000, false);
    check_bad("tcp://h?rank=1&world_size=3", "port number missing");
    check_bad("tcp://h:4000?world_size=3", "rank parameter missing");
    check_bad("tcp://h:4000?rank=0", "world size parameter missing");
    check_bad("tcp://h:4000?rank=x&world_size=3", "rank=x is no integer");
    check_bad("tcp://h:4000?rank=3&world_size=3", "rank=3 is not below world_size=3");
    check_bad("tcp://h:4000?color=3", "unknown parameter \"color=3\"");
    check_bad("mpi://", "neither env:// nor tcp://");
    GIVEN("RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1");
    check_world("tcp://h:4000", 2, 3, 0, 1); /* the URL says where, the launcher says who */
    GIVEN("UNUSED=1");
    check_bad("tcp://h:4000", "rank parameter missing");
}

static void file_urls_name_a_path(void **state)
{
    trii_launch_env env;
    char url[1100];

    (void)state;
    GIVEN("UNUSED=1");
    check_world("file:///tmp/x?rank=1&world_size=3", 1, 3, 1, 3);
    CHECK_OK(trii_launch_env_read("file://localhost/a b/x?world_size=3&rank=0", &env));
    assert_string_equal(env.file, "/a b/x");
    assert_string_equal(env.host, "");
    check_bad("file:///tmp/x", "rank parameter missing");
    check_bad("file:///tmp/x?rank=0", "world size parameter missing");
    check_bad("file://elsewhere/x?rank=0&world_size=1", "must be absolute");
    check_bad("file:///tmp/?rank=0&world_size=1", "no name of a file");
    memset(url, 'x', sizeof(url));
    memcpy(url, "file:///", 8);
    url[sizeof(url) - 1] = '\0';
    check_bad(url, "no name of a file");
    GIVEN("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1");
    check_world("file:///tmp/x", 1, 2, 1, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_a_world_of_one),
    cmocka_unit_test(torchrun_names_all),
    cmocka_unit_test(a_missing_or_bad_variable_is_named),
    cmocka_unit_test(mpirun_meets_by_the_number_of_its_job),
    cmocka_unit_test(srun_names_tasks_and_nodes),
    cmocka_unit_test(urls_name_host_rank_and_size),
    cmocka_unit_test(file_urls_name_a_path),
};

TEST_MAIN(tests)
