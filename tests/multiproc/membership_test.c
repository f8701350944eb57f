/*
 * membership_test.c - hosts that come, go and die while a MIN:MAX job runs. Agents on one machine;
 * a host that is killed is its agent with all that it started. Hosts that freeze and thaw:
 * tests/net/net_agents_test.c.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "testing/trirun_job.h"

/* Wanted are 2 s (bench/host_loss.sh); a machine that is loaded gets more, torchrun takes
 * longer. */
enum { SOON_S = 10 };

/* Until somebody listens there. */
static void wait_for_server(int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd, refused;

    do {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(fd >= 0);
        refused = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
        close(fd);
    } while (refused != 0);
}

static void start(trirun_job *j, int port, const char *nnodes, const char *conf, const char *script)
{
    char endpoint[40];
    const char *const args[] = {"--rdzv-backend",
                                "c10d",
                                "--rdzv-id",
                                "t",
                                "--rdzv-endpoint",
                                endpoint,
                                "--nnodes",
                                nnodes,
                                "--rdzv-conf",
                                conf,
                                "sh",
                                "-c",
                                script,
                                NULL};

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    trirun_start(j, args);
}

/* Says how many there are, and stays until the file is there. */
#define WORKER "echo size $WORLD_SIZE rank $RANK; exec sleep 1000"

/* The first agent serves the store; the second comes when it does. */
static void start_two(trirun_job *a, trirun_job *b, const char *nnodes, const char *conf)
{
    int port = spawn_free_port();

    start(a, port, nnodes, conf, WORKER);
    spawn_expect(&a->run, "size 1");
    start(b, port, nnodes, conf, WORKER);
    spawn_expect(&a->run, "size 2");
    spawn_expect(&b->run, "size 2");
}

static void stop(trirun_job *j, int folders)
{
    spawn_signal(&j->run, SIGTERM);
    assert_int_equal(spawn_wait(&j->run), 1);
    trirun_end(j, folders);
}

/* How often the text was printed so far is counted from here on. */
static void forget_output(trirun_job *j)
{
    j->run.used[0] = j->run.used[1] = 0;
    j->run.text[0][0] = j->run.text[1][0] = '\0';
}

/* --- hosts that hang, or cannot work -------------------------------------- */

static void start_hanging(trirun_job *j, int port, int rank, const char *backend,
                          const char *script)
{
    char endpoint[40], node_rank[24];

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    snprintf(node_rank, sizeof(node_rank), "--node-rank=%d", rank);
    TRIRUN_START(j, "--rdzv-backend", backend, "--rdzv-endpoint", endpoint, node_rank,
                 "--rdzv-id=t", strcmp(backend, "static") == 0 ? "--nnodes=2" : "--nnodes=1:2",
                 "--rdzv-conf=last_call_timeout=30", "--max-restarts=3", "--hang-timeout=2", "sh",
                 "-c", script);
}

static void start_two_hanging(trirun_job *a, trirun_job *b, const char *backend, const char *script)
{
    int port = spawn_free_port();

    start_hanging(a, port, 0, backend, script);
    wait_for_server(port);
    start_hanging(b, port, 1, backend, script);
}

/* As it waits for one that writes a checkpoint. */
static void a_host_that_is_silent_does_not_hang_while_another_prints(void **state)
{
    static const char script[] = "[ $WORLD_SIZE = 2 ] || exit 4\n"
                                 "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3;"
                                 "  [ $RANK = 1 ] || echo works; done";
    trirun_job a, b;

    (void)state;
    start_two_hanging(&a, &b, "c10d", script);
    assert_int_equal(spawn_wait(&a.run), 0);
    assert_int_equal(spawn_wait(&b.run), 0);
    trirun_end(&b, 0);
    trirun_end(&a, 0);
}

static void check_hang(const char *backend)
{
    trirun_job a, b;

    start_two_hanging(&a, &b, backend, "echo up; exec sleep 1000");
    assert_int_equal(spawn_wait(&a.run), 1);
    assert_int_equal(spawn_wait(&b.run), 1);
    assert_string_equal(SPAWN_OUT(&a.run), "up\n"); /* once */
    assert_string_equal(SPAWN_OUT(&b.run), "up\n");
    trirun_has(SPAWN_ERR(&a.run), "the job hangs");
    trirun_has(SPAWN_ERR(&b.run), "the job hangs");
    trirun_has(SPAWN_ERR(&a.run), ") is sleeping");
    trirun_has(SPAWN_ERR(&b.run), ") is sleeping");
    trirun_end(&b, 1);
    trirun_end(&a, 1);
}

static void a_hang_ends_the_job_on_all_hosts(void **state)
{
    (void)state;
    check_hang("c10d");
    check_hang("static");
}

static void start_host(trirun_job *j, int port, const char *backend, int n, int rank,
                       const char *program)
{
    char endpoint[40], nnodes[24], node_rank[24];

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    snprintf(nnodes, sizeof(nnodes), "--nnodes=%d", n);
    snprintf(node_rank, sizeof(node_rank), "--node-rank=%d", rank);
    TRIRUN_START(j, "--rdzv-backend", backend, "--rdzv-id=t", "--rdzv-endpoint", endpoint, nnodes,
                 node_rank, program, "1000");
}

/* The last of n hosts, whose agent ends within milliseconds. */
static void check_cannot_start(const char *backend, int n)
{
    int port = spawn_free_port(), bad = n - 1, rank = bad;
    char folder[256], program[300], cause[80];
    trirun_job jobs[3];
    FILE *file;

    spawn_make_folder(folder, sizeof(folder));
    snprintf(program, sizeof(program), "%s/program", folder);
    file = fopen(program, "w");
    assert_non_null(file);
    assert_int_equal(fwrite("\177ELF\0\0\0\0", 1, 8, file), 8);
    fclose(file);
    assert_int_equal(chmod(program, 0700), 0);
    for (int i = 0; i < n; i++) {
        start_host(&jobs[i], port, backend, n, i, i == bad ? program : "sleep");
        if (i == 0)
            wait_for_server(port);
    }
    for (int i = bad; i >= 0; i--)
        assert_int_equal(spawn_wait(&jobs[i].run), 1);
    trirun_has(SPAWN_ERR(&jobs[bad].run), "cannot start");
    assert_null(strstr(SPAWN_ERR(&jobs[bad].run), "stopping 0 workers"));
    /* c10d gives ranks in the order in which hosts come */
    if (strcmp(backend, "c10d") == 0 &&
        strstr(SPAWN_ERR(&jobs[bad].run), "rank 0: cannot start ") != NULL)
        rank = 0;
    snprintf(cause, sizeof(cause), ") cannot start its workers: rank %d: cannot start ", rank);
    for (int i = 0; i < bad; i++)
        trirun_has(SPAWN_ERR(&jobs[i].run), cause);
    for (int i = 0; i < n; i++)
        trirun_end(&jobs[i], 0);
    spawn_remove_folder(folder);
}

/* torchrun closes the rendezvous. */
static void a_host_that_cannot_start_its_workers_ends_the_job(void **state)
{
    (void)state;
    check_cannot_start("c10d", 2);
    check_cannot_start("static", 2);
    check_cannot_start("static", 3);
}

/* Its agent may end before all others have connected to it. */
static void a_worker_that_fails_at_once_is_told_to_all_hosts(void **state)
{
    enum { N = 3 };
    trirun_job jobs[N];

    (void)state;
    for (int round = 0; round < 12; round++) {
        int port = spawn_free_port();

        for (int i = 0; i < N; i++)
            start_host(&jobs[i], port, "static", N, i, i == N - 1 ? "false" : "sleep");
        for (int i = N - 1; i >= 0; i--)
            assert_int_equal(spawn_wait(&jobs[i].run), 1);
        for (int i = 0; i < N; i++) {
            if (i < N - 1)
                trirun_has(SPAWN_ERR(&jobs[i].run), "trirun: the job is over: rank 2 on host ");
            trirun_end(&jobs[i], i == N - 1);
        }
    }
}

/* A host whose workers still end for a restart hears that another host has left for good. */
static void the_end_of_the_job_is_heard_while_workers_end_for_a_restart(void **state)
{
    enum { SLOW, FAILS, LEAVES, N };
    static const char *const scripts[N] = {
        "trap '' TERM; echo ready; until [ -e \"$FILE\" ]; do sleep 0.05; done; exit 1",
        "until [ -e \"$FILE.fail\" ]; do sleep 0.05; done; exit 1", "exec sleep 1000"};
    char endpoint[40], folder[256], path[300];
    trirun_job jobs[N];

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/go", folder);
    assert_int_equal(setenv("FILE", path, 1), 0);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", spawn_free_port());
    for (int i = 0; i < N; i++) {
        char node_rank[24];

        snprintf(node_rank, sizeof(node_rank), "--node-rank=%d", i);
        TRIRUN_START(&jobs[i], "--rdzv-backend=static", "--rdzv-id=t", "--rdzv-endpoint", endpoint,
                     "--nnodes=3", node_rank, "--max-restarts=1", "sh", "-c", scripts[i]);
    }
    spawn_expect(&jobs[SLOW].run, "ready");
    snprintf(path, sizeof(path), "%s/go.fail", folder);
    fclose(fopen(path, "w"));
    spawn_expect(&jobs[SLOW].run, "stopping 1 worker");
    spawn_expect(&jobs[LEAVES].run, "restarting once all 3 hosts have joined");
    spawn_signal(&jobs[LEAVES].run, SIGTERM);
    assert_int_equal(spawn_wait(&jobs[LEAVES].run), 1);
    assert_int_equal(spawn_wait(&jobs[FAILS].run), 1);
    fclose(fopen(getenv("FILE"), "w"));
    assert_int_equal(spawn_wait(&jobs[SLOW].run), 1);
    trirun_has(SPAWN_ERR(&jobs[SLOW].run), "trirun: the job is over: host ");
    trirun_has(SPAWN_ERR(&jobs[SLOW].run), "was stopped by SIGTERM");
    for (int i = 0; i < N; i++)
        trirun_end(&jobs[i], 0);
    spawn_remove_folder(folder);
}

/* --- hosts that come and go ----------------------------------------------- */

/* torchrun 2.13: the newcomer and then both agents die after 60 s. */
static void a_host_that_joins_a_running_job_is_taken_in(void **state)
{
    trirun_job a, b;

    (void)state;
    start_two(&a, &b, "1:2", "last_call_timeout=0.2");
    trirun_has(SPAWN_ERR(&a.run), "joins; stopping 1 worker");
    trirun_has(SPAWN_ERR(&a.run), "trirun: restarting with 2 hosts, 2 workers in all\n");
    stop(&b, 0);
    stop(&a, 0);
}

/* torchrun 2.13 notices only when a worker fails or another host comes. */
static void a_host_that_dies_is_noticed_and_the_others_go_on(void **state)
{
    trirun_job a, b;
    double start_s;

    (void)state;
    start_two(&a, &b, "1:2", "last_call_timeout=0.2");
    forget_output(&a);
    start_s = trirun_seconds();
    spawn_signal(&b.run, SIGKILL);
    spawn_expect(&a.run, "size 1 rank 0");
    assert_true(trirun_seconds() - start_s < SOON_S);
    /* it has ended, or, where there was no connection between the two yet, does not answer */
    trirun_has(SPAWN_ERR(&a.run), "is gone: its agent ");
    assert_int_equal(spawn_wait(&b.run), -SIGKILL);
    trirun_end(&b, 1);
    stop(&a, 0);
}

static void a_host_that_is_told_to_stop_leaves_the_others_running(void **state)
{
    trirun_job a, b;

    (void)state;
    start_two(&a, &b, "1:2", "last_call_timeout=0.2");
    forget_output(&a);
    stop(&b, 0);
    spawn_expect(&a.run, "size 1 rank 0");
    trirun_has(SPAWN_ERR(&a.run), "was stopped by SIGTERM");
    stop(&a, 0);
}

/* torchrun 2.13: a host beyond MAX ends with an error when the job succeeds. */
static void hosts_beyond_max_wait_and_end_in_peace(void **state)
{
    int port = spawn_free_port();
    char home[256], flag[300], script[400];
    trirun_job a, b;

    (void)state;
    spawn_make_folder(home, sizeof(home));
    snprintf(flag, sizeof(flag), "%s/go", home);
    snprintf(script, sizeof(script), "echo up; until [ -e %s ]; do sleep 0.02; done", flag);
    start(&a, port, "2", "join_timeout=20", script);
    wait_for_server(port);
    start(&b, port, "2", "join_timeout=20", script);
    spawn_expect(&a.run, "up");
    spawn_expect(&b.run, "up");
    {
        trirun_job c;
        FILE *file;

        start(&c, port, "2", "join_timeout=20", "echo never");
        spawn_expect(&c.run, "job t has its 2 hosts; waiting for a place");
        file = fopen(flag, "w");
        assert_non_null(file);
        fclose(file);
        assert_int_equal(spawn_wait(&a.run), 0);
        assert_int_equal(spawn_wait(&b.run), 0);
        assert_int_equal(spawn_wait(&c.run), 0);
        trirun_has(SPAWN_ERR(&c.run), "it had enough hosts without us");
        assert_string_equal(SPAWN_OUT(&c.run), "");
        trirun_end(&c, 0);
    }
    trirun_end(&a, 0);
    trirun_end(&b, 0);
    spawn_remove_folder(home);
}

static void a_host_beyond_max_takes_the_place_of_one_that_dies(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b, c;

    (void)state;
    start(&a, port, "2:2", "join_timeout=20", WORKER);
    wait_for_server(port);
    start(&b, port, "2:2", "join_timeout=20", WORKER);
    spawn_expect(&a.run, "size 2");
    spawn_expect(&b.run, "size 2");
    start(&c, port, "2:2", "join_timeout=20", WORKER);
    spawn_expect(&c.run, "waiting for a place");
    forget_output(&a);
    spawn_signal(&b.run, SIGKILL);
    assert_int_equal(spawn_wait(&b.run), -SIGKILL);
    spawn_expect(&a.run, "size 2");
    spawn_expect(&c.run, "size 2");
    trirun_end(&b, 1);
    stop(&c, 0);
    stop(&a, 0);
}

static void the_end_of_the_stores_host_ends_the_job_and_is_named(void **state)
{
    trirun_job a, b;
    double start_s;

    (void)state;
    start_two(&a, &b, "1:2", "last_call_timeout=0.2");
    start_s = trirun_seconds();
    spawn_signal(&a.run, SIGKILL);
    assert_int_equal(spawn_wait(&b.run), 1);
    assert_true(trirun_seconds() - start_s < SOON_S);
    trirun_has(SPAWN_ERR(&b.run), "the job is over: ");
    assert_int_equal(spawn_wait(&a.run), -SIGKILL);
    trirun_end(&a, 1);
    trirun_end(&b, 0);
}

/* The line of --events about the host of `of`. */
static void expect_event(trirun_job *at, const char *name, const char *round, int rank,
                         const trirun_job *of, const char *end)
{
    char host[256], text[600];

    gethostname(host, sizeof(host));
    snprintf(text, sizeof(text),
             "\"event\": \"%s\", \"run_id\": \"t\", \"attempt\": 0, \"round\": %s, "
             "\"node_rank\": %d, \"host\": \"%s\", \"pid\": %d%s",
             name, round, rank, host, of->run.pid, end);
    spawn_expect(&at->run, text);
}

/* Which of the two has the lower rank: that of their process numbers, on one address. */
static int rank_of(const trirun_job *job, const trirun_job *other)
{
    return job->run.pid > other->run.pid;
}

static void hosts_that_come_and_go_are_events(void **state)
{
    int port = spawn_free_port();
    char endpoint[60], end[100];
    trirun_job a, b;

    (void)state;
    snprintf(endpoint, sizeof(endpoint), "--rdzv-endpoint=127.0.0.1:%d", port);
    TRIRUN_START(&a, "--rdzv-backend=c10d", "--rdzv-id=t", endpoint, "--nnodes=1:2",
                 "--events=/dev/stdout", "--rdzv-conf=last_call_timeout=0.2", "sh", "-c", WORKER);
    expect_event(&a, "host_joined", "0", 0, &a, "}\n");
    start(&b, port, "1:2", "last_call_timeout=0.2", WORKER);
    expect_event(&a, "host_joined", "1", rank_of(&b, &a), &b, "}\n");
    assert_int_equal(trirun_count(SPAWN_OUT(&a.run), "host_joined"), 2);
    spawn_expect(&a.run, "size 2");
    spawn_expect(&b.run, "size 2");
    forget_output(&a);
    snprintf(end, sizeof(end), " (pid %d) was stopped by SIGTERM\"}\n", b.run.pid);
    stop(&b, 0);
    spawn_expect(&a.run, end);
    trirun_has(SPAWN_OUT(&a.run), "\"event\": \"host_left\"");
    spawn_expect(&a.run, "size 1 rank 0");
    start(&b, port, "1:2", "last_call_timeout=0.2", WORKER);
    expect_event(&a, "host_joined", "3", rank_of(&b, &a), &b, "}\n");
    spawn_signal(&b.run, SIGKILL);
    assert_int_equal(spawn_wait(&b.run), -SIGKILL);
    expect_event(&a, "host_lost", "3", rank_of(&b, &a), &b, ", \"reason\": \"host ");
    trirun_end(&b, 1);
    stop(&a, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hosts_that_come_and_go_are_events),
    cmocka_unit_test(a_host_that_joins_a_running_job_is_taken_in),
    cmocka_unit_test(a_host_that_dies_is_noticed_and_the_others_go_on),
    cmocka_unit_test(a_host_that_is_silent_does_not_hang_while_another_prints),
    cmocka_unit_test(a_hang_ends_the_job_on_all_hosts),
    cmocka_unit_test(a_worker_that_fails_at_once_is_told_to_all_hosts),
    cmocka_unit_test(a_host_that_cannot_start_its_workers_ends_the_job),
    cmocka_unit_test(the_end_of_the_job_is_heard_while_workers_end_for_a_restart),
    cmocka_unit_test(a_host_that_is_told_to_stop_leaves_the_others_running),
    cmocka_unit_test(hosts_beyond_max_wait_and_end_in_peace),
    cmocka_unit_test(a_host_beyond_max_takes_the_place_of_one_that_dies),
    cmocka_unit_test(the_end_of_the_stores_host_ends_the_job_and_is_named),
};

TEST_MAIN(tests)
