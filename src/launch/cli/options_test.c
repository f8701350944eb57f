/* options_test.c - every spelling of the command line and its twins in the environment. */
/* ctest: threads=none */
#include "launch/cli/options.h"
#include "testing/check.h"

static tri_status parse_as(const char *name, trii_launch_options *options, const char *const *args)
{
    static char *argv[32]; /* the options borrow from it */
    int argc = 1;

    argv[0] = (char *)(uintptr_t)name;
    for (; *args != NULL; args++)
        argv[argc++] = (char *)(uintptr_t)*args;
    argv[argc] = NULL;
    return trii_launch_options_parse(options, argc, argv);
}
#define PARSE_AS(name, options, ...)                                                               \
    parse_as(name, options, (const char *const[]){__VA_ARGS__, NULL})
#define PARSE(options, ...) PARSE_AS("trirun", options, __VA_ARGS__)

static void every_spelling_means_the_same(void **state)
{
    static const char *const spellings[][4] = {
        {"--nproc-per-node", "3", "prog"}, {"--nproc_per_node", "3", "prog"},
        {"--nproc-per-node=3", "prog"},    {"--nproc_per-node=3", "prog"},
        {"--nproc", "3", "prog"},
    };

    (void)state;
    clearenv();
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        trii_launch_options options;

        CHECK_OK(parse_as("trirun", &options, spellings[i]));
        assert_int_equal(options.nproc, 3);
        assert_string_equal(options.program, "prog");
        assert_null(options.args[0]);
    }
}

static void what_follows_the_program_is_its_own(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(PARSE(&options, "-l", "prog", "--nproc-per-node", "9", "--help"));
    assert_int_equal(options.nproc, 1);
    assert_true(options.label_output);
    assert_false(options.help);
    assert_string_equal(options.args[2], "--help");
    CHECK_OK(PARSE(&options, "--", "-odd-name"));
    assert_string_equal(options.program, "-odd-name");
    /* the first -- right after the program is argparse's, not the program's */
    CHECK_OK(PARSE(&options, "prog", "--", "a", "--", "b"));
    assert_string_equal(options.args[0], "a");
    assert_string_equal(options.args[1], "--");
    CHECK_OK(PARSE(&options, "prog", "a", "--", "b"));
    assert_string_equal(options.args[1], "--");
    CHECK_OK(PARSE(&options, "--", "prog", "--", "b"));
    assert_string_equal(options.args[0], "--");
}

static void the_name_trirun_launch_turns_launch_compat_on(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(PARSE_AS("/usr/bin/trirun-launch", &options, "prog"));
    assert_true(options.launch_compat);
    CHECK_OK(PARSE_AS("trirun-launch", &options, "--use-env", "prog"));
    assert_false(options.launch_compat);
    CHECK_OK(PARSE(&options, "prog"));
    assert_false(options.launch_compat);
}

/* Python's int() and float() take them, so job scripts have them. */
static void blanks_around_a_number_are_no_part_of_it(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    setenv("PET_NNODES", " 2 : 3\n", 1);
    setenv("PET_NPROC_PER_NODE", " 4 ", 1);
    CHECK_OK(PARSE(&options, "--master-port= 29611 ", "--rdzv-backend=c10d",
                   "--shutdown-timeout= 2.5\n", "--max-restarts=7\n", "--local-ranks-filter=1 ,2 ",
                   "prog"));
    assert_int_equal(options.min_nodes, 2);
    assert_int_equal(options.max_nodes, 3);
    assert_int_equal(options.nproc, 4);
    assert_int_equal(options.max_restarts, 7);
    assert_int_equal(options.shutdown_timeout_ms, 2500);
    CHECK_FAILS(PARSE(&options, "--max-restarts=7 8", "prog"), TRI_ERR_INVALID_ARG,
                "--max-restarts=7 8 is not an integer");
    CHECK_FAILS(PARSE(&options, "--max-restarts= ", "prog"), TRI_ERR_INVALID_ARG,
                "is not an integer");
}

static void the_environment_has_twins_and_the_command_line_wins(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    setenv("PET_NPROC_PER_NODE", "4", 1);
    setenv("PET_MODULE", "1", 1);
    setenv("PET_RDZV_ID", "job7", 1);
    CHECK_OK(PARSE(&options, "prog"));
    assert_int_equal(options.nproc, 4);
    assert_true(options.module);
    assert_string_equal(options.run_id, "job7");
    CHECK_OK(PARSE(&options, "--nproc-per-node=2", "prog"));
    assert_int_equal(options.nproc, 2);
    setenv("PET_MODULE", "0", 1);
    CHECK_OK(PARSE(&options, "prog"));
    assert_false(options.module);
    setenv("PET_MODULE", "yes", 1);
    CHECK_FAILS(PARSE(&options, "prog"), TRI_ERR_INVALID_ARG, "PET_MODULE=yes");
    unsetenv("PET_MODULE");
    setenv("PET_NNODES", "2:4", 1);
    CHECK_OK(PARSE(&options, "prog"));
    assert_int_equal(options.min_nodes, 2);
    assert_int_equal(options.max_nodes, 4);
}

static void addresses_follow_torchruns_rules(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(PARSE(&options, "--nnodes=1", "--node_rank", "0", "--master_addr=node1",
                   "--master-port", "4000", "prog"));
    assert_string_equal(options.master_addr, "node1");
    assert_int_equal(options.master_port, 4000);
    CHECK_OK(PARSE(&options, "--rdzv-endpoint=[::1]:4001", "prog"));
    assert_string_equal(options.master_addr, "::1");
    assert_int_equal(options.master_port, 4001);
    CHECK_OK(PARSE(&options, "--standalone", "--master-port=4000", "prog"));
    assert_string_equal(options.master_addr, "127.0.0.1");
    assert_int_equal(options.master_port, 0);
    CHECK_OK(PARSE(&options, "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "prog"));
    assert_int_equal(options.master_port, 0);
    CHECK_FAILS(PARSE(&options, "--rdzv-endpoint=h:x", "prog"), TRI_ERR_INVALID_ARG, "endpoint");
    CHECK_FAILS(PARSE(&options, "--rdzv-endpoint=:80", "prog"), TRI_ERR_INVALID_ARG, "HOST:PORT");
    CHECK_FAILS(PARSE(&options, "--nnodes=2", "--rdzv-endpoint=::1", "prog"), TRI_ERR_INVALID_ARG,
                "--rdzv-endpoint ::1: an IPv6 address is written in brackets");
    CHECK_FAILS(PARSE(&options, "--nnodes=2", "--rdzv-endpoint=[::1:1", "prog"),
                TRI_ERR_INVALID_ARG, "is [ADDRESS]:PORT");
    CHECK_FAILS(PARSE(&options, "--nnodes=2", "--master-addr=[::1", "prog"), TRI_ERR_INVALID_ARG,
                "--master-addr=[::1 is not a host");
    CHECK_FAILS(PARSE(&options, "--nnodes=2", "--master-addr=fe80::1", "prog"), TRI_ERR_INVALID_ARG,
                "name the interface too, fe80::1%eth0");
    CHECK_OK(PARSE(&options, "--nnodes=2", "--master-addr=fe80::1%lo", "prog"));
    CHECK_FAILS(PARSE(&options, "--master-port=70000", "prog"), TRI_ERR_INVALID_ARG, "70000");
}

/* Agents would meet others whose id begins in the same way. */
static void a_long_id_is_refused_and_not_cut(void **state)
{
    trii_launch_options options;
    char id[300];

    (void)state;
    memset(id, 'i', sizeof(id));
    id[255] = '\0';
    CHECK_OK(PARSE(&options, "--nnodes=2", "--rdzv-id", id, "p"));
    assert_string_equal(options.run_id, id);
    id[255] = 'i';
    id[256] = '\0';
    CHECK_FAILS(PARSE(&options, "--nnodes=2", "--rdzv-id", id, "p"), TRI_ERR_INVALID_ARG,
                "is too long (at most 255 bytes)");
    CHECK_OK(PARSE(&options, "--nnodes=2", "p"));
    assert_string_equal(options.run_id, "none"); /* all hosts have the same */
    CHECK_OK(PARSE(&options, "p"));
    assert_null(options.run_id); /* made at the start */
    CHECK_OK(PARSE(&options, "--rdzv-id=none", "p"));
    assert_string_equal(options.run_id, "none");
    CHECK_OK(PARSE(&options, "--rdzv-id=j", "--standalone", "p"));
    assert_null(options.run_id);
}

static void one_host_alone_is_one_host(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(PARSE(&options, "--standalone", "--nnodes=1:4", "p"));
    assert_int_equal(options.max_nodes, 1);
    CHECK_FAILS(PARSE(&options, "--standalone", "--nnodes=2", "p"), TRI_ERR_INVALID_ARG,
                "--standalone is for one host, and --nnodes=2 asks for more");
}

static void a_number_without_an_upper_limit_is_told_its_lower_one(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_FAILS(PARSE(&options, "--max-restarts=-1", "p"), TRI_ERR_INVALID_ARG,
                "--max-restarts=-1: must be at least 0");
    CHECK_FAILS(PARSE(&options, "--master-port=-1", "p"), TRI_ERR_INVALID_ARG,
                "--master-port=-1 is not between 0 and 65535");
}

static void where_hosts_meet_has_torchruns_defaults(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(PARSE(&options, "--nnodes=2", "--rdzv-backend=c10d", "p"));
    assert_string_equal(options.rdzv_host, "localhost");
    assert_int_equal(options.rdzv_port, 29400);
    CHECK_OK(PARSE(&options, "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "p"));
    assert_int_equal(options.rdzv_port, 29400);
    CHECK_OK(PARSE(&options, "--nnodes=2", "--rdzv-backend=etcd-v2", "p"));
    assert_string_equal(options.rdzv_endpoint, "localhost:2379");
    assert_string_equal(options.rdzv_host, "localhost");
    assert_int_equal(options.rdzv_port, 2379);
    CHECK_OK(PARSE(&options, "--nnodes=2", "--rdzv-endpoint=h", "p"));
    assert_int_equal(options.rdzv_port, 29500);
}

static void a_node_rank_is_one_of_the_job(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_FAILS(PARSE(&options, "--nnodes=2", "--node-rank=5", "--dry-run", "p"),
                TRI_ERR_INVALID_ARG, "--node-rank 5: must be 0 to 1 with --nnodes 2");
    assert_int_equal(options.exit_status, 1);
    CHECK_FAILS(PARSE(&options, "--node-rank=1", "--master-port=1", "p"), TRI_ERR_INVALID_ARG,
                "--node-rank 1: must be 0 with --nnodes 1");
    CHECK_OK(PARSE(&options, "--nnodes=2", "--node-rank=1", "p"));
    CHECK_OK(PARSE(&options, "--nnodes=2", "--node-rank=5", "--rdzv-backend=c10d", "p"));
    CHECK_OK(PARSE(&options, "--node-rank=1", "p")); /* one host without addresses */
    setenv("PET_NODE_RANK", "2", 1);
    CHECK_FAILS(PARSE(&options, "--nnodes=2", "p"), TRI_ERR_INVALID_ARG, "PET_NODE_RANK 2: must");
}

static void seconds_become_milliseconds(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(PARSE(&options, "prog"));
    assert_int_equal(options.shutdown_timeout_ms, 30000);
    setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7", 1);
    CHECK_OK(PARSE(&options, "prog"));
    assert_int_equal(options.shutdown_timeout_ms, 7000);
    CHECK_OK(PARSE(&options, "--shutdown-timeout=0.25", "prog"));
    assert_int_equal(options.shutdown_timeout_ms, 250);
    CHECK_FAILS(PARSE(&options, "--shutdown-timeout=-1", "prog"), TRI_ERR_INVALID_ARG, "seconds");
    CHECK_FAILS(PARSE(&options, "--monitor-interval=x", "prog"), TRI_ERR_INVALID_ARG, "seconds");
}

static void the_silence_of_a_host_is_at_least_a_second(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(PARSE(&options, "prog"));
    assert_int_equal(options.host_timeout_ms, 5000);
    setenv("PET_HOST_TIMEOUT", "7.5", 1);
    CHECK_OK(PARSE(&options, "prog"));
    assert_int_equal(options.host_timeout_ms, 7500);
    CHECK_OK(PARSE(&options, "--host-timeout=1", "prog"));
    assert_int_equal(options.host_timeout_ms, 1000);
    CHECK_FAILS(PARSE(&options, "--host-timeout=0.9", "prog"), TRI_ERR_INVALID_ARG,
                "must be at least 1 second");
    CHECK_FAILS(PARSE(&options, "--host-timeout=x", "prog"), TRI_ERR_INVALID_ARG, "seconds");
    clearenv();
}

static void gpus_are_counted_without_a_driver(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    setenv("CUDA_VISIBLE_DEVICES", "0,2,5", 1);
    CHECK_OK(PARSE(&options, "--nproc-per-node=auto", "prog"));
    assert_int_equal(options.nproc, 3);
    CHECK_OK(PARSE(&options, "--nproc-per-node=gpu", "prog"));
    assert_int_equal(options.nproc, 3);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    CHECK_FAILS(PARSE(&options, "--nproc-per-node=gpu", "prog"), TRI_ERR_INVALID_ARG, "no GPU");
    CHECK_OK(PARSE(&options, "--nproc-per-node=auto", "prog"));
    assert_true(options.nproc >= 1);
}

static void the_command_lines_of_scripts_parse(void **state)
{
    trii_launch_options options;
    char value[32];

    (void)state;
    clearenv();
    CHECK_OK(PARSE(&options, "--nnodes=2", "--node_rank=1", "--nproc_per_node", "8",
                   "--master_addr=10.0.0.1", "--master_port=29501", "train.py"));
    assert_int_equal(options.min_nodes, 2);
    assert_int_equal(options.node_rank, 1);
    assert_int_equal(options.nproc, 8);
    assert_false(options.standalone);
    assert_string_equal(options.rdzv_host, "10.0.0.1");
    assert_int_equal(options.rdzv_port, 29501);
    CHECK_OK(PARSE(&options, "--nnodes=2", "--master_addr=[::1]", "train.py"));
    assert_string_equal(options.master_addr, "::1");
    assert_int_equal(options.master_port, 29500);
    CHECK_OK(PARSE(&options, "--nnodes=1:4", "--nproc_per_node=3", "--rdzv_id=j1",
                   "--rdzv_backend=etcd", "--rdzv_endpoint=host:2379",
                   "--rdzv-conf= timeout = 5,last_call_timeout=7", "train.py"));
    assert_int_equal(options.max_nodes, 4);
    assert_string_equal(options.run_id, "j1");
    assert_string_equal(options.rdzv_host, "host");
    assert_int_equal(options.rdzv_port, 2379);
    assert_true(trii_rdzv_conf(&options, "timeout", value, sizeof(value)));
    assert_string_equal(value, "5");
    assert_true(trii_rdzv_conf(&options, "last_call_timeout", value, sizeof(value)));
    assert_string_equal(value, "7");
    assert_false(trii_rdzv_conf(&options, "call_timeout", value, sizeof(value)));
    CHECK_OK(PARSE(&options, "--standalone", "--nnodes=1", "--nproc_per_node=2", "train.py"));
    assert_true(options.standalone);
}

static void streams_are_chosen_as_with_torchrun(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(PARSE(&options, "-r", "3", "-t0:1,2:3", "--local-ranks-filter=0,2", "p"));
    assert_int_equal(trii_std_of(&options.redirects, 11), 3);
    assert_int_equal(trii_std_of(&options.tee, 0), 1);
    assert_int_equal(trii_std_of(&options.tee, 1), 0);
    assert_int_equal(trii_std_of(&options.tee, 2), 3);
    assert_true(trii_number_in_list(options.local_ranks_filter, 2));
    assert_false(trii_number_in_list(options.local_ranks_filter, 1));
    CHECK_OK(PARSE(&options, "--log-max-size=64k", "p"));
    assert_int_equal(options.log_max_bytes, 65536);
    CHECK_FAILS(PARSE(&options, "--log-max-size=64x", "p"), TRI_ERR_INVALID_ARG, "64x");
    assert_int_equal(options.exit_status, 2);
    CHECK_FAILS(PARSE(&options, "--tee=0:4", "p"), TRI_ERR_INVALID_ARG, "--tee=0:4");
    assert_int_equal(options.exit_status, 1);
}

static void a_misspelt_name_gets_the_nearest(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_FAILS(PARSE(&options, "--nprocs-per-node=2", "p"), TRI_ERR_INVALID_ARG,
                "unknown option --nprocs-per-node; did you mean --nproc-per-node?");
    CHECK_FAILS(PARSE(&options, "--Mater_Addr=h", "p"), TRI_ERR_INVALID_ARG, "--master-addr?");
    CHECK_FAILS(PARSE(&options, "--master-adress", "h", "p"), TRI_ERR_INVALID_ARG,
                "unknown option --master-adress; did you mean --master-addr?");
    CHECK_FAILS(PARSE(&options, "--frobnicate", "p"), TRI_ERR_INVALID_ARG,
                "unknown option --frobnicate");
    assert_int_equal(options.exit_status, 2);
}

static void a_count_of_workers_that_is_none_gets_the_words(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_FAILS(PARSE(&options, "--nproc-per-node=2x", "p"), TRI_ERR_INVALID_ARG,
                "--nproc-per-node 2x is not a number, auto, cpu or gpu");
    CHECK_FAILS(PARSE(&options, "--nproc-per-node=-1", "p"), TRI_ERR_INVALID_ARG, "between 1 and");
    setenv("PET_NPROC_PER_NODE", "2x", 1);
    CHECK_FAILS(PARSE(&options, "p"), TRI_ERR_INVALID_ARG,
                "PET_NPROC_PER_NODE 2x is not a number, auto, cpu or gpu");
}

static void torchruns_beginnings_stay_unique(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_OK(
        PARSE(&options, "--log-d=/x", "--e=null", "--max=1", "p")); /* --log-max-size is ours */
    assert_string_equal(options.log_dir, "/x");
    assert_int_equal(options.max_restarts, 1);
    CHECK_FAILS(PARSE(&options, "--ma=1", "p"), TRI_ERR_INVALID_ARG, "could be");
    CHECK_OK(PARSE(&options,
                   "--h")); /* two of trirun's own begin so, too, and come first in the table */
    assert_true(options.help);
}

static void what_argparse_refuses_comes_first(void **state)
{
    trii_launch_options options;

    (void)state;
    clearenv();
    CHECK_FAILS(PARSE(&options, "--nnodes=x", "--tee=9", "--shutdown-timeout=x", "p"),
                TRI_ERR_INVALID_ARG, "--shutdown-timeout=x is not a number of seconds");
    assert_int_equal(options.exit_status, 2);
    CHECK_FAILS(PARSE(&options, "--start-method=thread", "p"), TRI_ERR_INVALID_ARG,
                "--start-method=thread: must be one of spawn|fork|forkserver");
    assert_int_equal(options.exit_status, 2);
    CHECK_FAILS(PARSE(&options, "--max-restarts=-1", "--start-method=x", "p"), TRI_ERR_INVALID_ARG,
                "--start-method=x: must be one of");
    assert_int_equal(options.exit_status, 2);
    CHECK_FAILS(PARSE(&options, "--master-port=-1", "--max-restarts=x", "p"), TRI_ERR_INVALID_ARG,
                "--max-restarts=x");
    assert_int_equal(options.exit_status, 2);
    CHECK_FAILS(PARSE(&options, "--max-restarts=-1", "p"), TRI_ERR_INVALID_ARG,
                "--max-restarts=-1: must be at least 0");
    assert_int_equal(options.exit_status, 1);
    CHECK_FAILS(PARSE(&options, "--numa-binding=", "p"), TRI_ERR_INVALID_ARG, "must be one of");
    CHECK_FAILS(PARSE(&options, "--rdzv-backend=mpi", "p"), TRI_ERR_INVALID_ARG,
                "--rdzv-backend=mpi: must be one of static|c10d|etcd|etcd-v2|etcd-v3");
    assert_int_equal(options.exit_status, 1);
    CHECK_OK(PARSE(&options, "--rdzv-backend=mpi", "--standalone", "p"));
    /* what it takes for a default it does not check */
    setenv("PET_START_METHOD", "thread", 1);
    CHECK_OK(PARSE(&options, "p"));
    unsetenv("PET_START_METHOD");
    CHECK_OK(PARSE(&options, "--logs-specs=default", "p"));
    CHECK_FAILS(PARSE(&options, "--logs-specs=mine", "p"), TRI_ERR_INVALID_ARG,
                "--logs-specs=mine: names a Python plug-in, which trirun cannot load");
    assert_int_equal(options.exit_status, 1);
}

static void a_list_of_settings_is_checked(void **state)
{
    static const char *const wrong[][2] = {{"a=1,", "must be KEY=VALUE,..."},
                                           {"a=1,,b=2", "must be KEY=VALUE,..."},
                                           {" =1", "must be KEY=VALUE,..."},
                                           {"a", "a has no value"},
                                           {"a= ,b=1", "a has no value"}};
    trii_launch_options options;
    char conf[40], value[8];

    (void)state;
    clearenv();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        snprintf(conf, sizeof(conf), "--rdzv-conf=%s", wrong[i][0]);
        CHECK_FAILS(PARSE(&options, conf, "p"), TRI_ERR_INVALID_ARG, wrong[i][1]);
        assert_int_equal(options.exit_status, 1);
    }
    CHECK_OK(PARSE(&options, "--rdzv-conf= ", "p"));
    CHECK_OK(PARSE(&options, "--rdzv-conf= a = x=y ,b=123456789", "p"));
    assert_true(trii_rdzv_conf(&options, "a", value, sizeof(value)));
    assert_string_equal(value, "x=y");
    assert_false(trii_rdzv_conf(&options, "b", value, sizeof(value))); /* no room */
    CHECK_OK(PARSE(&options, "--local-ranks-filter= 1, 2", "p"));
    CHECK_FAILS(PARSE(&options, "--local-ranks-filter=1,x", "p"), TRI_ERR_INVALID_ARG,
                "--local-ranks-filter=1,x is not a list of numbers like 0,2");
    CHECK_FAILS(PARSE(&options, "--local-ranks-filter=1,", "p"), TRI_ERR_INVALID_ARG,
                "=1, is not a list of numbers");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_argparse_refuses_comes_first),
    cmocka_unit_test(a_list_of_settings_is_checked),
    cmocka_unit_test(every_spelling_means_the_same),
    cmocka_unit_test(what_follows_the_program_is_its_own),
    cmocka_unit_test(the_name_trirun_launch_turns_launch_compat_on),
    cmocka_unit_test(blanks_around_a_number_are_no_part_of_it),
    cmocka_unit_test(the_environment_has_twins_and_the_command_line_wins),
    cmocka_unit_test(addresses_follow_torchruns_rules),
    cmocka_unit_test(a_long_id_is_refused_and_not_cut),
    cmocka_unit_test(one_host_alone_is_one_host),
    cmocka_unit_test(a_number_without_an_upper_limit_is_told_its_lower_one),
    cmocka_unit_test(where_hosts_meet_has_torchruns_defaults),
    cmocka_unit_test(a_node_rank_is_one_of_the_job),
    cmocka_unit_test(seconds_become_milliseconds),
    cmocka_unit_test(the_command_lines_of_scripts_parse),
    cmocka_unit_test(streams_are_chosen_as_with_torchrun),
    cmocka_unit_test(a_misspelt_name_gets_the_nearest),
    cmocka_unit_test(a_count_of_workers_that_is_none_gets_the_words),
    cmocka_unit_test(torchruns_beginnings_stay_unique),
    cmocka_unit_test(the_silence_of_a_host_is_at_least_a_second),
    cmocka_unit_test(gpus_are_counted_without_a_driver),
};

TEST_MAIN(tests)
