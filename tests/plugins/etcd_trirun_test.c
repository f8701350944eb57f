/*
 * etcd_trirun_test.c - agents that meet in an etcd: ranks, a host that joins and one that dies,
 * a cluster that loses its leader, and what is said when nobody is there.
 */
/* ctest: labels=quick timeout=60 */
#include "testing/trirun_job.h"

#include "testing/etcd_calls.h"

static etcd_cluster cluster;

static void stop(void)
{
    etcd_stop(&cluster);
}

static void start_etcd(int n)
{
    etcd_start(&cluster, n);
    atexit(stop);
    (void)etcd_leader(&cluster);
}

static void start_agent(trirun_job *j, const char *nnodes, const char *backend, const char *conf,
                        const char *script)
{
    char nodes[32], back[32];
    const char *const args[] = {nodes,
                                "--nproc-per-node=2",
                                "--rdzv-id=job",
                                back,
                                "--rdzv-endpoint",
                                cluster.endpoints,
                                "--rdzv-conf",
                                conf,
                                "--max-restarts=3",
                                "sh",
                                "-c",
                                script,
                                NULL};

    snprintf(nodes, sizeof(nodes), "--nnodes=%s", nnodes);
    snprintf(back, sizeof(back), "--rdzv-backend=%s", backend);
    trirun_start(j, args);
}

static void two_agents_get_their_ranks(void **state)
{
    static const char script[] = "echo rank $RANK of $WORLD_SIZE, group $GROUP_RANK of "
                                 "$GROUP_WORLD_SIZE, id $TORCHELASTIC_RUN_ID";
    trirun_job a, b;
    char line[100];

    (void)state;
    start_etcd(1);
    start_agent(&a, "2", "etcd", "last_call_timeout=1", script);
    start_agent(&b, "2", "etcd-v2", "last_call_timeout=1", script);
    assert_int_equal(spawn_wait(&a.run), 0);
    assert_int_equal(spawn_wait(&b.run), 0);
    for (int rank = 0; rank < 4; rank++) {
        snprintf(line, sizeof(line), "rank %d of 4, group %d of 2, id job\n", rank, rank / 2);
        assert_int_equal(
            trirun_count(SPAWN_OUT(&a.run), line) + trirun_count(SPAWN_OUT(&b.run), line), 1);
    }
    trirun_end(&a, 0);
    trirun_end(&b, 0);
    /* who is late hears that the job is over */
    start_agent(&a, "2", "etcd-v3", "last_call_timeout=1", script);
    assert_int_not_equal(spawn_wait(&a.run), 0);
    trirun_has(SPAWN_ERR(&a.run), "rendezvous of job job is closed");
    trirun_end(&a, 0);
}

/* Workers that wait for a file: the job's end is the test's to say. */
static const char until_told[] = "echo rank $RANK of $WORLD_SIZE; "
                                 "until [ -e \"$END\" ]; do sleep 0.05; done";

static void a_host_joins_and_another_dies(void **state)
{
    trirun_job a, b;
    char end[300];

    (void)state;
    start_etcd(1);
    snprintf(end, sizeof(end), "%s/end", cluster.folder);
    setenv("END", end, 1);
    start_agent(&a, "1:4", "etcd", "last_call_timeout=0.2", until_told);
    spawn_expect(&a.run, "rank 0 of 2\n");
    spawn_expect(&a.run, "rank 1 of 2\n");
    start_agent(&b, "1:4", "etcd", "last_call_timeout=0.2", until_told);
    spawn_expect(&b.run, "of 4\n");
    spawn_expect(&a.run, "of 4\n");
    spawn_signal(&b.run, SIGKILL);
    (void)spawn_wait(&b.run);
    spawn_expect(&a.run, "restarting with 1 host, 2 workers in all");
    /* it has ended, or, where there was no connection between the two yet, does not answer */
    trirun_has(SPAWN_ERR(&a.run), " is gone: its agent ");
    fclose(fopen(end, "w"));
    assert_int_equal(spawn_wait(&a.run), 0);
    assert_int_equal(trirun_count(SPAWN_OUT(&a.run), "of 2\n"), 4); /* before and after */
    trirun_end(&b, 1); /* the run folder of the one that was killed */
    trirun_end(&a, 0);
}

static void a_leader_that_dies_disturbs_no_worker(void **state)
{
    trirun_job a, b;
    char end[300];

    (void)state;
    start_etcd(3);
    snprintf(end, sizeof(end), "%s/end", cluster.folder);
    setenv("END", end, 1);
    start_agent(&a, "2", "etcd", "last_call_timeout=1,keep_alive_interval=1", until_told);
    start_agent(&b, "2", "etcd", "last_call_timeout=1,keep_alive_interval=1", until_told);
    spawn_expect(&a.run, "of 4\n");
    spawn_expect(&b.run, "of 4\n");
    etcd_kill(&cluster, etcd_leader(&cluster));
    (void)etcd_leader(&cluster); /* another one */
    fclose(fopen(end, "w"));
    assert_int_equal(spawn_wait(&a.run), 0);
    assert_int_equal(spawn_wait(&b.run), 0);
    assert_int_equal(trirun_count(SPAWN_OUT(&a.run), "of 4\n"), 2); /* started once */
    assert_int_equal(trirun_count(SPAWN_OUT(&b.run), "of 4\n"), 2);
    trirun_end(&a, 0);
    trirun_end(&b, 0);
}

static void nobody_there_is_said(void **state)
{
    trirun_job a;

    (void)state;
    snprintf(cluster.endpoints, sizeof(cluster.endpoints), "127.0.0.1:%d", spawn_free_port());
    start_agent(&a, "2", "etcd", "read_timeout=1", "echo never");
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_has(SPAWN_ERR(&a.run), cluster.endpoints);
    trirun_has(SPAWN_ERR(&a.run), "no server answered within 1.");
    trirun_has(SPAWN_ERR(&a.run), "Check --rdzv-endpoint");
    trirun_end(&a, 0);
    start_agent(&a, "2", "etcd", "protocol=gopher", "echo never");
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_has(SPAWN_ERR(&a.run), "protocol=gopher is neither http nor https");
    trirun_end(&a, 0);
}

static void a_missing_plugin_is_named(void **state)
{
    char copy[300], folder[256];
    const char *const cp[] = {"cp", spawn_bin("trirun"), copy, NULL};
    const char *const argv[] = {
        copy, "--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1", "true", NULL};
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(copy, sizeof(copy), "%s/trirun", folder);
    spawn_start(&s, cp, NULL);
    assert_int_equal(spawn_wait(&s), 0);
    spawn_free(&s);
    spawn_start(&s, argv, NULL);
    assert_int_equal(spawn_wait(&s), 1);
    trirun_has(SPAWN_ERR(&s), "needs the plug-in rendezvous-etcd.so, which is not in");
    spawn_expect_no_process(&s);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_agents_get_their_ranks),
    cmocka_unit_test(a_host_joins_and_another_dies),
    cmocka_unit_test(a_leader_that_dies_disturbs_no_worker),
    cmocka_unit_test(nobody_there_is_said),
    cmocka_unit_test(a_missing_plugin_is_named),
};

TEST_MAIN(tests)
