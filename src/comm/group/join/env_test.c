/* env_test.c - what each launcher's variables and the URLs mean, and what is wrong. */
/* ctest: threads=none */
#include "comm/group/join/env.h"
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

/* Python's int() takes them. */
static void blanks_around_a_number_are_no_part_of_it(void **state)
{
    (void)state;
    GIVEN("RANK=0\n", "WORLD_SIZE= 2 ", "MASTER_ADDR=here", "MASTER_PORT=29611 ");
    check_world(NULL, 0, 2, 0, 2);
    check_place("env://", "here", 29611, false);
    GIVEN("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=here", "MASTER_PORT=2 9611");
    check_bad(NULL, "MASTER_PORT=2 9611 is not an integer");
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
    check_bad(NULL, "WORLD_SIZE=two is not an integer");
    GIVEN("WORLD_SIZE=2", "RANK=2", "MASTER_ADDR=h", "MASTER_PORT=1");
    check_bad(NULL, "rank 2 is out of range (world of 2): RANK=2 has to be below WORLD_SIZE=2");
    GIVEN("RANK=3", "WORLD_SIZE=2");
    check_bad(NULL, "rank 3 is out of range (world of 2)");
    GIVEN("WORLD_SIZE=2", "RANK=0", "MASTER_ADDR=h", "MASTER_PORT=70000");
    check_bad(NULL, "MASTER_PORT=70000 is outside 1 to 65535");
}

static void mpirun_meets_by_the_name_of_its_job(void **state)
{
    trii_launch_env first, second;

    (void)state;
    GIVEN("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=1031995393");
    check_world(NULL, 1, 2, 1, 2);
    CHECK_OK(trii_launch_env_read(NULL, &first));
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    CHECK_OK(trii_launch_env_read(NULL, &second));
    assert_non_null(strstr(first.host, "@trireme-"));
    assert_string_equal(first.host, second.host);
    assert_string_equal(first.job, "mpirun 1031995393");
    setenv("PMIX_NAMESPACE", "1031995394", 1);
    CHECK_OK(trii_launch_env_read(NULL, &second));
    assert_string_not_equal(first.host, second.host);
    unsetenv("PMIX_NAMESPACE");
    check_bad(NULL, "set MASTER_ADDR");
    setenv("MASTER_ADDR", "node1", 1);
    setenv("MASTER_PORT", "4000", 1);
    check_place(NULL, "node1", 4000, false);
    setenv("MASTER_ADDR", "[fd00::1]", 1);
    check_place(NULL, "fd00::1", 4000, false);
}

static void mpirun_on_several_hosts_meets_at_mpirun(void **state)
{
    trii_launch_env first, second;

    (void)state;
    GIVEN("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=7",
          "OMPI_MCA_orte_hnp_uri=7.0;tcp://192.0.2.2,198.51.100.2:44693;tcp6://[fd00::2]:47735",
          "OMPI_MCA_orte_local_daemon_uri=7.0;tcp://192.0.2.2,198.51.100.2:44693;"
          "tcp6://[fd00::2]:47735");
    CHECK_OK(trii_launch_env_read(NULL, &first));
    assert_string_equal(first.host, "192.0.2.2,198.51.100.2,fd00::2");
    assert_in_range(first.port, 20000, 31999);
    /* rank 0 has another daemon: not on mpirun's host */
    setenv("OMPI_MCA_orte_local_daemon_uri", "7.1;tcp://192.0.2.3:1", 1);
    check_bad(NULL, "which runs on another host than rank 0: set MASTER_ADDR");
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    CHECK_OK(trii_launch_env_read(NULL, &second));
    assert_string_equal(first.host, second.host);
    assert_int_equal(first.port, second.port);
    setenv("OMPI_MCA_orte_hnp_uri", "7.0;nonsense", 1);
    check_bad(NULL, "on several hosts: set MASTER_ADDR");
}

static void mpiexec_names_rank_and_size(void **state)
{
    trii_launch_env env;

    (void)state;
    GIVEN("PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2",
          "PMI_PORT=host:4711");
    check_world(NULL, 1, 2, 1, 2);
    CHECK_OK(trii_launch_env_read(NULL, &env));
    assert_string_equal(env.job, "mpiexec host:4711");
    assert_non_null(strstr(env.host, "@trireme-"));
    unsetenv("PMI_PORT");
    setenv("PMI_FD", "99", 1); /* nothing there */
    check_bad(NULL, "env:// under mpiexec: set MASTER_ADDR");
    setenv("PMI_SIZE", "1", 1);
    setenv("PMI_RANK", "0", 1);
    unsetenv("MPI_LOCALRANKID");
    unsetenv("MPI_LOCALNRANKS");
    check_world(NULL, 0, 1, 0, 1);
    /* mpiexec in a Slurm job starts a helper on each node with srun: the ranks are not tasks */
    GIVEN("PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "SLURM_PROCID=1",
          "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0",
          "SLURM_JOB_NODELIST=gpu[03-05]");
    check_world(NULL, 3, 4, 1, 2);
    CHECK_OK(trii_launch_env_read(NULL, &env));
    assert_string_equal(env.host, "gpu03");
    /* srun with PMI: they are */
    GIVEN("PMI_RANK=1", "PMI_SIZE=2", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1",
          "SLURM_JOB_ID=12", "SLURM_STEP_ID=0");
    CHECK_OK(trii_launch_env_read(NULL, &env));
    assert_string_equal(env.job, "slurm 12.0");
}

static void srun_names_tasks_and_nodes(void **state)
{
    trii_launch_env env, other;

    (void)state;
    GIVEN("SLURM_PROCID=6", "SLURM_NTASKS=7", "SLURM_LOCALID=0", "SLURM_NODEID=3",
          "SLURM_STEP_TASKS_PER_NODE=2(x3),1", "SLURM_JOB_ID=12", "SLURM_STEP_ID=0",
          "SLURM_STEP_NODELIST=gpu[03-05,9]");
    check_world(NULL, 6, 7, 0, 1);
    CHECK_OK(trii_launch_env_read(NULL, &env));
    assert_string_equal(env.host, "gpu03");
    assert_in_range(env.port, 20000, 31999);
    setenv("SLURM_STEP_ID", "1", 1); /* another step of the same job does not meet this one */
    CHECK_OK(trii_launch_env_read(NULL, &other));
    assert_int_not_equal(env.port, other.port);
    setenv("SLURM_NODEID", "9", 1);
    check_bad(NULL, "says nothing of node 9");
    /* one host */
    GIVEN("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "SLURM_TASKS_PER_NODE=2",
          "SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_NODELIST=node7");
    check_world(NULL, 1, 2, 1, 2);
    CHECK_OK(trii_launch_env_read(NULL, &env));
    assert_non_null(strstr(env.host, "@trireme-"));
    assert_string_equal(env.job, "slurm 12.0");
    /* the bare three variables and an address */
    GIVEN("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=4000");
    check_world(NULL, 1, 2, 1, 2);
    check_place(NULL, "127.0.0.1", 4000, false);
    unsetenv("SLURM_LOCALID");
    check_bad(NULL, "SLURM_LOCALID is not set");
    /* a batch script that starts the program itself */
    GIVEN("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=12", "SLURM_LOCALID=0");
    check_world(NULL, 0, 1, 0, 1);
}

static void slurms_lists_of_nodes_begin_with_a_host(void **state)
{
    static const char *const rows[][2] = {
        {"node7", "node7"},
        {"alpha,beta", "alpha"},
        {"gpu[03-05,9],cpu1", "gpu03"},
        {"gpu[7],cpu1", "gpu7"},
        {"rack[0-1]node[2-3]", "rack0node2"},
        {"n[1,3-4]-ib.cluster,m1", "n1-ib.cluster"},
        {"10.0.0.[5-9]", "10.0.0.5"},
        {"broken[", "broken"},
    };
    char host[256];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK_OK(trii_launch_slurm_host(rows[i][0], host));
        assert_string_equal(host, rows[i][1]);
    }
    CHECK_FAILS(trii_launch_slurm_host("", host), TRI_ERR_INVALID_ARG,
                "not begin with a host name");
    CHECK_FAILS(trii_launch_slurm_host(",a", host), TRI_ERR_INVALID_ARG,
                "not begin with a host name");
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
    check_bad("tcp://h:4000?rank=x&world_size=3", "rank=x is not an integer");
    check_bad("tcp://h:4000?rank=3&world_size=3",
              "rank 3 is out of range (world of 3): rank=3 has to be below world_size=3");
    check_bad("tcp://h:4000?color=3", "unknown parameter \"color=3\"");
    check_bad("mpi://", "neither env:// nor tcp://");
    GIVEN("RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1");
    check_world("tcp://h:4000", 2, 3, 0, 1); /* the URL says where, the launcher says who */
    /* and what it serves lies in one place only */
    GIVEN("RANK=2", "WORLD_SIZE=3", "MASTER_ADDR=h", "MASTER_PORT=4000",
          "TORCHELASTIC_USE_AGENT_STORE=True");
    check_place("tcp://h:4000", "h", 4000, true);
    check_place("tcp://h:4001", "h", 4001, false);
    GIVEN("UNUSED=1");
    check_bad("tcp://h:4000", "rank parameter missing");
}

static void check_new(const char *url, const char *host, bool new_store)
{
    trii_launch_env env;

    CHECK_OK(trii_launch_env_read(url, &env));
    assert_string_equal(env.host, host);
    assert_int_equal(env.new_store, new_store);
}

/* As each tutorial of DDP does: os.environ["MASTER_ADDR"] = "localhost", MASTER_PORT = "12355". */
static void rank_0_serves_where_a_program_names_a_place_of_its_own(void **state)
{
    (void)state;
    GIVEN("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=12355",
          "TORCHELASTIC_USE_AGENT_STORE=True", "TRI_AGENT_STORE=127.0.0.1 4000 new ");
    check_place(NULL, "localhost", 12355, false);
    check_new(NULL, "localhost", false);
    check_place("tcp://h:12355", "h", 12355, false);
    /* that of the launcher by chance, under another name of this host */
    setenv("MASTER_PORT", "4000", 1);
    check_place(NULL, "127.0.0.1", 4000, true);
    check_new(NULL, "127.0.0.1", true);
    check_new("tcp://h:4000", "h", true);
    setenv("TRI_AGENT_STORE", "127.0.0.1 4000 kept ", 1);
    check_place(NULL, "127.0.0.1", 4000, true);
    check_new(NULL, "127.0.0.1", false);
    /* torchrun in a worker of trirun: its agent serves, and sets another error file */
    GIVEN("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=12355",
          "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_ERROR_FILE=/tmp/b/error.json",
          "TRI_AGENT_STORE=127.0.0.1 4000 new /tmp/a/error.json");
    check_place(NULL, "localhost", 12355, true);
    check_new(NULL, "localhost", false);
}

static void check_given(const char *url, int rank, int size, const char *host, bool agent_store)
{
    trii_launch_env env;

    CHECK_OK(trii_launch_env_read_as(url, rank, size, &env));
    assert_int_equal(env.rank, rank);
    assert_int_equal(env.size, size);
    assert_string_equal(env.host, host);
    assert_int_equal(env.agent_store, agent_store);
    assert_false(env.new_store);
}

/* init_process_group(init_method=url, rank=r, world_size=n) */
static void a_program_may_give_its_rank_and_the_size(void **state)
{
    trii_launch_env env;

    (void)state;
    GIVEN("UNUSED=1");
    check_given("tcp://h:4000", 1, 3, "h", false);
    check_given("file:///tmp/x", 2, 3, "", false);
    check_given(NULL, 0, 1, "", false); /* a single rank meets no other */
    CHECK_FAILS(trii_launch_env_read_as(NULL, 0, 2, &env), TRI_ERR_INVALID_ARG,
                "env:// needs MASTER_ADDR and MASTER_PORT: ");
    CHECK_FAILS(trii_launch_env_read_as("tcp://h:1", 2, 2, &env), TRI_ERR_INVALID_ARG,
                "rank 2 is out of range (world_size 2)");
    CHECK_FAILS(trii_launch_env_read_as("tcp://h:1", 0, -2, &env), TRI_ERR_INVALID_ARG,
                "world_size -2 is outside 1 to ");
    CHECK_FAILS(trii_launch_env_read_as("tcp://h:1?rank=0", 0, 2, &env), TRI_ERR_INVALID_ARG,
                "both say rank or world_size");
    GIVEN("MASTER_ADDR=h", "MASTER_PORT=1");
    check_given("env://", 3, 4, "h", false);
    /* the launcher's numbers do not count, and its store does not hear of these ranks */
    GIVEN("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=h",
          "MASTER_PORT=1", "TORCHELASTIC_USE_AGENT_STORE=True", "TRI_AGENT_STORE=h 1 new ");
    check_given(NULL, 2, 4, "h", true);
    CHECK_OK(trii_launch_env_read_as(NULL, 0, 2, &env));
    assert_true(env.new_store);
    CHECK_OK(trii_launch_env_at_store(3, 4, &env));
    assert_int_equal(env.local_size, 2);
    assert_string_equal(env.host, "");
}

static void a_rank_without_a_size_counts_nowhere(void **state)
{
    trii_launch_env env;

    (void)state;
    GIVEN("UNUSED=1");
    CHECK_OK(trii_launch_env_read_as(NULL, 5, 0, &env)); /* a world of one */
    assert_int_equal(env.rank, 0);
    assert_int_equal(env.size, 1);
    GIVEN("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1");
    CHECK_OK(trii_launch_env_read_as(NULL, 5, 0, &env));
    assert_int_equal(env.rank, 1);
    CHECK_OK(trii_launch_env_read_as("tcp://h:1?rank=0&world_size=2", 5, 0, &env));
    assert_int_equal(env.rank, 0);
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
    check_bad("file:///tmp/?rank=0&world_size=1", "not the name of a file");
    memset(url, 'x', sizeof(url));
    memcpy(url, "file:///", 8);
    url[sizeof(url) - 1] = '\0';
    check_bad(url, "not the name of a file");
    GIVEN("SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1");
    check_world("file:///tmp/x", 1, 2, 1, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_a_world_of_one),
    cmocka_unit_test(blanks_around_a_number_are_no_part_of_it),
    cmocka_unit_test(torchrun_names_all),
    cmocka_unit_test(a_missing_or_bad_variable_is_named),
    cmocka_unit_test(mpirun_meets_by_the_name_of_its_job),
    cmocka_unit_test(mpirun_on_several_hosts_meets_at_mpirun),
    cmocka_unit_test(mpiexec_names_rank_and_size),
    cmocka_unit_test(srun_names_tasks_and_nodes),
    cmocka_unit_test(slurms_lists_of_nodes_begin_with_a_host),
    cmocka_unit_test(urls_name_host_rank_and_size),
    cmocka_unit_test(rank_0_serves_where_a_program_names_a_place_of_its_own),
    cmocka_unit_test(a_program_may_give_its_rank_and_the_size),
    cmocka_unit_test(a_rank_without_a_size_counts_nowhere),
    cmocka_unit_test(file_urls_name_a_path),
};

TEST_MAIN(tests)
