/*
 * rendezvous_test.c - several agents on loopback addresses: how they find each other, their ranks,
 * and what is said when that cannot be.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <trireme/store.h>

#include "testing/trirun_job.h"

static void start_c10d(trirun_job *j, int port, const char *nnodes, const char *conf,
                       const char *more, const char *script)
{
    char endpoint[40], nodes[24];
    const char *args[20] = {"--rdzv-backend",  "c10d",   "--rdzv-id", "t",
                            "--rdzv-endpoint", endpoint, "--nnodes",  nodes,
                            "--rdzv-conf",     conf};
    int n = 10;

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    snprintf(nodes, sizeof(nodes), "%s", nnodes);
    if (more != NULL)
        args[n++] = more;
    args[n++] = "sh";
    args[n++] = "-c";
    args[n++] = script;
    args[n] = NULL;
    trirun_start(j, args);
}

static void start_static(trirun_job *j, int port, int rank, const char *conf, const char *more,
                         const char *script)
{
    char text[4][40];
    const char *const args[] = {"--nnodes=2",  text[0], text[1], "--master-addr=127.0.0.1",
                                "--rdzv-conf", conf,    more,    "sh",
                                "-c",          script,  NULL};

    snprintf(text[0], sizeof(text[0]), "--node-rank=%d", rank);
    snprintf(text[1], sizeof(text[1]), "--master-port=%d", port);
    trirun_start(j, args);
}

/* --- static --------------------------------------------------------------- */

static void static_ranks_are_those_that_were_given(void **state)
{
    static const char script[] =
        "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE group $GROUP_RANK "
        "of $GROUP_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT";
    int port = spawn_free_port();
    char line[200];
    trirun_job a, b;

    (void)state;
    start_static(&b, port, 1, "timeout=20", "--nproc-per-node=1", script);
    start_static(&a, port, 0, "timeout=20", "--nproc-per-node=2", script);
    assert_int_equal(spawn_wait(&a.run), 0);
    assert_int_equal(spawn_wait(&b.run), 0);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(line, sizeof(line), "rank %d of 3 local %d of 2 group 0 of 2 at 127.0.0.1:%d\n",
                 rank, rank, port);
        trirun_has(SPAWN_OUT(&a.run), line);
    }
    snprintf(line, sizeof(line), "rank 2 of 3 local 0 of 1 group 1 of 2 at 127.0.0.1:%d\n", port);
    assert_string_equal(SPAWN_OUT(&b.run), line);
    trirun_end(&a, 0);
    trirun_end(&b, 0);
}

static void static_hosts_start_again_together_with_an_empty_store(void **state)
{
    int port = spawn_free_port();
    char script[1024];
    trirun_job a, b;

    (void)state;
    snprintf(script, sizeof(script),
             "t=%s; $t store set at/$RANK/$TORCHELASTIC_RESTART_COUNT x\n"
             "$t store wait at/0/$TORCHELASTIC_RESTART_COUNT at/1/$TORCHELASTIC_RESTART_COUNT\n"
             "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 3\n"
             "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 1000\n"
             "$t store keys | grep at/ | sort; exit 0",
             spawn_bin("trireme"));
    start_static(&a, port, 0, "timeout=20", "--max-restarts=1", script);
    start_static(&b, port, 1, "timeout=20", "--max-restarts=1", script);
    assert_int_equal(spawn_wait(&a.run), 0);
    assert_int_equal(spawn_wait(&b.run), 0);
    assert_string_equal(SPAWN_OUT(&a.run), "at/0/1\nat/1/1\n");
    trirun_has(SPAWN_ERR(&a.run), "exited with code 3; restarting");
    trirun_has(SPAWN_ERR(&b.run), "restarting (restart 1 of 1)");
    trirun_end(&a, 0);
    trirun_end(&b, 0);
}

static void a_static_host_that_does_not_come_is_named(void **state)
{
    trirun_job a;

    (void)state;
    start_static(&a, spawn_free_port(), 0, "timeout=0.5", "--nproc-per-node=1", "true");
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_has(SPAWN_ERR(&a.run), "rendezvous of job none: 1 of 2 hosts joined within 0.5 s");
    trirun_has(SPAWN_ERR(&a.run), "missing: --node-rank 1: start the agent there");
    trirun_end(&a, 0);
}

/* Rank 0 complains of a peer, and what rank 1 wrote down is older: the other host is told that one,
 * as it would be if rank 1 had been seen first. */
static void the_other_host_is_told_the_cause(void **state)
{
    static const char script[] =
        "fail() { echo \"{\\\"message\\\": \\\"x\\\", \\\"timestamp\\\": $1}\""
        "  >$TORCHELASTIC_ERROR_FILE; exit $2; }\n"
        "[ $RANK = 2 ] && exec sleep 1000\n"
        "[ $RANK = 1 ] && { trap 'fail 1700000000 3' TERM; touch $TRI_RUN_DIR/ready;"
        "  while :; do sleep 0.01; done; }\n"
        "until [ -e $TRI_RUN_DIR/ready ]; do sleep 0.01; done\n"
        "echo PEER_LOST >&2; fail 1700000009 4";
    int port = spawn_free_port();
    trirun_job a, b;

    (void)state;
    start_static(&a, port, 0, "timeout=20", "--nproc-per-node=2", script);
    start_static(&b, port, 1, "timeout=20", "--nproc-per-node=1", script);
    assert_int_equal(spawn_wait(&a.run), 1);
    assert_int_equal(spawn_wait(&b.run), 1);
    trirun_has(SPAWN_ERR(&a.run), "failed: rank 1 exited with code 3");
    trirun_has(SPAWN_ERR(&b.run), "exited with code 3");
    trirun_has(SPAWN_ERR(&b.run), "rank 1 on host");
    trirun_end(&a, 1);
    trirun_end(&b, 0);
}

/* Whether it names the agent that was there, and itself, by host and process. */
static void has_two(const trirun_job *refused, const char *before, const trirun_job *there,
                    const char *between, const char *after)
{
    char host[256], text[800];

    gethostname(host, sizeof(host));
    snprintf(text, sizeof(text),
             "%s the agent on host %s (pid %d)%s this one, on host %s (pid %d)%s", before, host,
             there->run.pid, between, host, refused->run.pid, after);
    trirun_has(SPAWN_ERR(&refused->run), text);
}

static void a_node_rank_that_is_taken_is_refused(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b, c;

    (void)state;
    start_static(&a, port, 0, "timeout=20", "--nproc-per-node=1", "echo up; exec sleep 1000");
    start_static(&b, port, 1, "timeout=20", "--nproc-per-node=1", "exec sleep 1000");
    spawn_expect(&a.run, "up");
    for (int rank = 0; rank < 2; rank++) { /* who has rank 0 serves the store in the same port */
        /* it waits so long, and half as long again, for one that may be gone */
        start_static(&c, port, rank, "timeout=20", "--host-timeout=1", "true");
        assert_int_equal(spawn_wait(&c.run), 1);
        has_two(&c, "job none:", rank == 0 ? &a : &b,
                rank == 0 ? " has --node-rank 0 already, and" : " has --node-rank 1 already, and",
                ", was given it too: give every agent its own, 0 to 1\n");
        trirun_end(&c, 0);
    }
    spawn_signal(&a.run, SIGTERM);
    assert_int_equal(spawn_wait(&a.run), 1);
    assert_int_equal(spawn_wait(&b.run), 1);
    trirun_has(SPAWN_ERR(&b.run), "was stopped by SIGTERM");
    trirun_end(&a, 0);
    trirun_end(&b, 0);
}

/* By its name it is the same job, but one gives ranks and the other does not. */
static void a_job_without_ranks_has_none_that_is_taken(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b;

    (void)state;
    start_c10d(&a, port, "2", "join_timeout=50", NULL, "true");
    spawn_expect(&a.run, "1 of 2 hosts joined");
    start_static(&b, port, 0, "timeout=20", "--rdzv-id=t", "true");
    assert_int_equal(spawn_wait(&b.run), 1);
    trirun_has(SPAWN_ERR(&b.run), "in use: another job or program uses the port");
    trirun_end(&b, 0);
    start_static(&b, port, 1, "timeout=20", "--rdzv-id=t", "true");
    assert_int_equal(spawn_wait(&b.run), 1);
    trirun_has(SPAWN_ERR(&b.run), "was started with --rdzv-backend c10d, this one, on host");
    trirun_end(&b, 0);
    spawn_signal(&a.run, SIGTERM);
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_end(&a, 0);
}

static void an_agent_without_a_rank_is_refused_where_ranks_are_given(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b;

    (void)state;
    start_static(&a, port, 0, "timeout=50", "--rdzv-id=t", "true");
    spawn_expect(&a.run, "1 of 2 hosts joined");
    start_c10d(&b, port, "2", "is_host=0,join_timeout=50", NULL, "true");
    assert_int_equal(spawn_wait(&b.run), 1);
    trirun_has(SPAWN_ERR(&b.run), "was started with --rdzv-backend static, this one, on host");
    trirun_end(&b, 0);
    spawn_signal(&a.run, SIGTERM);
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_end(&a, 0);
}

static void a_port_that_is_no_store_is_no_duplicate(void **state)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    trirun_job a;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
    start_static(&a, ntohs(addr.sin_port), 0, "timeout=20", "--nproc-per-node=1", "true");
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_has(SPAWN_ERR(&a.run), "in use: another job or program uses the port");
    trirun_has(SPAWN_ERR(&a.run), "choose another --master-port, the same on all hosts");
    trirun_end(&a, 0);
    close(fd);
}

static void static_hosts_with_another_number_of_hosts_are_refused(void **state)
{
    int port = spawn_free_port();
    char text[40];
    trirun_job a, b, c;

    (void)state;
    start_static(&a, port, 0, "timeout=20", "--nproc-per-node=1", "echo up; exec sleep 1000");
    start_static(&b, port, 1, "timeout=20", "--nproc-per-node=1", "exec sleep 1000");
    spawn_expect(&a.run, "up");
    snprintf(text, sizeof(text), "--master-port=%d", port);
    TRIRUN_START(&c, "--nnodes=3", "--node-rank=2", "--master-addr=127.0.0.1", text,
                 "--rdzv-conf=timeout=20", "true");
    assert_int_equal(spawn_wait(&c.run), 1);
    has_two(&c, "job none:", &a, " was started with --nnodes 2,",
            ", with --nnodes 3: give all agents of a job the same --nnodes\n");
    trirun_end(&c, 0);
    spawn_signal(&a.run, SIGTERM);
    assert_int_equal(spawn_wait(&a.run), 1);
    assert_int_equal(spawn_wait(&b.run), 1);
    trirun_end(&a, 0);
    trirun_end(&b, 0);
}

/* Whatever a host calls itself. */
static void an_odd_address_leaves_events_whole(void **state)
{
    char endpoint[60];
    trirun_job a;

    (void)state;
    snprintf(endpoint, sizeof(endpoint), "--rdzv-endpoint=127.0.0.1:%d", spawn_free_port());
    TRIRUN_START(&a, "--nnodes=1:2", "--rdzv-backend=c10d", endpoint, "--local-addr=a\"b",
                 "--rdzv-conf=last_call_timeout=0.1", "--events=/dev/stdout", "true");
    assert_int_equal(spawn_wait(&a.run), 0);
    trirun_has(SPAWN_OUT(&a.run), "\"master\": \"a\\\"b:");
    trirun_end(&a, 0);
}

/* --- c10d ----------------------------------------------------------------- */

static void hosts_meet_in_the_first_ones_store(void **state)
{
    static const char *const spellings[][2] = {
        {"127.0.0.1", "127.0.0.1"}, {"localhost", "127.0.0.1"}, {"[::1]", "::1"}};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        int port = spawn_free_port();
        char endpoint[40], line[80];
        const char *const args[] = {
            "--nnodes=3",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint",
            endpoint,
            "--rdzv-id=t",
            "--nproc-per-node=2",
            "sh",
            "-c",
            "echo $RANK/$WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE $GROUP_RANK $MASTER_ADDR",
            NULL};
        trirun_job j[3];

        snprintf(endpoint, sizeof(endpoint), "%s:%d", spellings[k][0], port);
        for (int i = 0; i < 3; i++)
            trirun_start(&j[i], args);
        for (int i = 0; i < 3; i++)
            assert_int_equal(spawn_wait(&j[i].run), 0);
        for (int rank = 0; rank < 6; rank++) {
            int n = 0;

            for (int i = 0; i < 3; i++) {
                snprintf(line, sizeof(line), "%d/6 %d/6 %d %s\n", rank, rank, rank / 2,
                         spellings[k][1]);
                n += trirun_count(SPAWN_OUT(&j[i].run), line);
            }
            assert_int_equal(n, 1);
        }
        for (int i = 0; i < 3; i++)
            trirun_end(&j[i], 0);
    }
}

static void workers_of_several_hosts_work_together(void **state)
{
    int port = spawn_free_port();
    trirun_job j[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        start_c10d(&j[i], port, "2", "join_timeout=20", "--nproc-per-node=2",
                   "exec $TRI_TEST_BIN/plain_ddp");
    for (int i = 0; i < 2; i++)
        assert_int_equal(spawn_wait(&j[i].run), 0);
    for (int i = 0; i < 2; i++)
        trirun_end(&j[i], 0);
}

static void too_few_hosts_end_with_their_number(void **state)
{
    trirun_job a;

    (void)state;
    start_c10d(&a, spawn_free_port(), "2:3", "join_timeout=0.4", NULL, "true");
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_has(SPAWN_ERR(&a.run), "rendezvous of job t: 1 of at least 2 hosts joined within 0.4 s");
    trirun_end(&a, 0);
}

static void an_agent_that_waits_for_hosts_says_so_and_stops_when_told(void **state)
{
    int ports[3] = {spawn_free_port(), spawn_free_port(), spawn_free_port()};
    trirun_job j[3];
    char text[3][140];

    (void)state;
    start_c10d(&j[0], ports[0], "2:3", "join_timeout=50", NULL, "true");
    start_static(&j[1], ports[1], 0, "timeout=50", "--nproc-per-node=1", "true");
    start_c10d(&j[2], ports[2], "1:2", "last_call_timeout=50", NULL, "true");
    snprintf(text[0], sizeof(text[0]),
             "trirun: 1 of at least 2 hosts joined job t at 127.0.0.1:%d; start trirun on 1 more\n",
             ports[0]);
    snprintf(text[1], sizeof(text[1]),
             "trirun: 1 of 2 hosts joined job none at 127.0.0.1:%d; start trirun on 1 more\n",
             ports[1]);
    snprintf(
        text[2], sizeof(text[2]),
        "trirun: 1 of at most 2 hosts joined job t at 127.0.0.1:%d, which is enough; it starts "
        "within 50 s, with those that have joined by then\n",
        ports[2]);
    for (int i = 0; i < 3; i++)
        spawn_expect(&j[i].run, text[i]);
    for (int i = 0; i < 3; i++)
        spawn_signal(&j[i].run, SIGTERM);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(spawn_wait(&j[i].run), 1);
        trirun_has(SPAWN_ERR(&j[i].run),
                   "received SIGTERM while waiting for other hosts: stopping");
        trirun_end(&j[i], 0);
    }
}

/* With a port in which nobody listens, or somebody who says nothing. */
static void an_agent_that_waits_for_a_store_stops_when_told(void **state)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    trirun_job a[4];
    double start;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
    for (int i = 0; i < 4; i++) {
        int port = i < 2 ? spawn_free_port() : ntohs(addr.sin_port);

        if (i % 2 == 0)
            start_static(&a[i], port, 1, "timeout=50", "--nproc-per-node=1", "true");
        else
            start_c10d(&a[i], port, "2", "is_host=0", NULL, "true");
    }
    for (int i = 0; i < 4; i++)
        spawn_expect(&a[i].run, "trirun: no answer yet from 127.0.0.1:");
    for (int i = 0; i < 2; i++)
        spawn_expect(&a[i].run, "still trying"); /* which is said once a minute */
    start = trirun_seconds();
    for (int i = 0; i < 4; i++)
        spawn_signal(&a[i].run, i % 2 == 0 ? SIGTERM : SIGINT);
    for (int i = 0; i < 4; i++)
        assert_int_equal(spawn_wait(&a[i].run), 1);
    if (trirun_seconds() - start > 3)
        fail_msg("it took %.1f s", trirun_seconds() - start);
    for (int i = 0; i < 4; i++) {
        const char *last = strstr(SPAWN_ERR(&a[i].run), "while waiting for other hosts: stopping");

        assert_non_null(last);
        assert_true(i >= 2 || strstr(last, "goes on") == NULL);
        trirun_end(&a[i], 0);
    }
    close(fd);
}

static void a_second_signal_does_not_wait_for_a_store(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b;
    double start;

    (void)state;
    start_c10d(&a, port, "3", "join_timeout=50", NULL, "true");
    spawn_expect(&a.run, "trirun: 1 of 3 hosts joined");
    start_c10d(&b, port, "3", "join_timeout=50", NULL, "true");
    spawn_expect(&b.run, "trirun: 2 of 3 hosts joined");
    spawn_signal(&a.run, SIGSTOP);
    start = trirun_seconds();
    spawn_signal(&b.run, SIGTERM);
    spawn_expect(&b.run, "while waiting for other hosts: stopping");
    spawn_signal(&b.run, SIGTERM);
    assert_int_equal(spawn_wait(&b.run), 1);
    if (trirun_seconds() - start > 3)
        fail_msg("it took %.1f s", trirun_seconds() - start);
    trirun_end(&b, 0);
    spawn_signal(&a.run, SIGCONT);
    spawn_signal(&a.run, SIGTERM);
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_end(&a, 0);
}

/* torchrun: the hosts wait for each other, or run with the numbers of the last writer. */
static void hosts_with_another_number_of_hosts_are_refused(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b;

    (void)state;
    start_c10d(&a, port, "1:3", "last_call_timeout=0.3", NULL, "echo up; exec sleep 1000");
    spawn_expect(&a.run, "up");
    start_c10d(&b, port, "2", "join_timeout=20", NULL, "true");
    assert_int_equal(spawn_wait(&b.run), 1);
    has_two(&b, "job t:", &a, " was started with --nnodes 1:3,",
            ", with --nnodes 2: give all agents of a job the same --nnodes\n");
    trirun_end(&b, 0);
    assert_null(strstr(SPAWN_ERR(&a.run), "joins"));
    spawn_signal(&a.run, SIGTERM);
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_end(&a, 0);
}

static void a_wrong_id_is_another_job(void **state)
{
    int port = spawn_free_port();
    char endpoint[40];
    const char *const args[] = {"--nnodes=2",
                                "--rdzv-backend=c10d",
                                "--rdzv-endpoint",
                                endpoint,
                                "--rdzv-id=u",
                                "--rdzv-conf=join_timeout=0.4",
                                "true",
                                NULL};
    trirun_job a, b;

    (void)state;
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    start_c10d(&a, port, "2", "join_timeout=2", NULL, "true");
    trirun_start(&b, args);
    assert_int_equal(spawn_wait(&b.run), 1);
    trirun_has(SPAWN_ERR(&b.run), "rendezvous of job u: 1 of at least 2 hosts");
    spawn_signal(&a.run, SIGTERM);
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_end(&a, 0);
    trirun_end(&b, 0);
}

/* Agents that have one let nobody else write what they tell each other, not even on loopback. */
static void agents_with_a_key_hear_no_strangers(void **state)
{
    static const char key[] = "a secret of more than thirty-two characters\n";
    const tri_store_tcp_options soon = {.timeout_ms = 2000};
    char folder[256], path[300], extra[340], endpoint[40];
    const char *const args[] = {"--nnodes=2",
                                "--rdzv-backend=c10d",
                                "--rdzv-id=t",
                                "--rdzv-endpoint",
                                endpoint,
                                "--rdzv-conf=join_timeout=20",
                                "--require-key",
                                "sh",
                                "-c",
                                "echo up; exec sleep 1000",
                                NULL};
    int port = spawn_free_port();
    tri_store *store = NULL;
    trirun_job j[2];
    FILE *file;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/key", folder);
    snprintf(extra, sizeof(extra), "TRI_JOB_KEY_FILE=%s", path);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(key, file);
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
    for (int i = 0; i < 2; i++)
        trirun_start_behind(&j[i], NULL, args, extra);
    for (int i = 0; i < 2; i++)
        spawn_expect(&j[i].run, "up");
    assert_int_not_equal(tri_store_tcp("127.0.0.1", port, &soon, &store), TRI_OK);
    for (int i = 0; i < 2; i++)
        spawn_signal(&j[i].run, SIGTERM);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(spawn_wait(&j[i].run), 1);
        assert_int_equal(trirun_count(SPAWN_OUT(&j[i].run), "up"), 1);
        trirun_end(&j[i], 0);
    }
    spawn_remove_folder(folder);
}

static void a_key_is_required_of_agents_with_given_ranks_too(void **state)
{
    trirun_job a;

    (void)state;
    start_static(&a, spawn_free_port(), 0, "timeout=1", "--require-key", "true");
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_has(SPAWN_ERR(&a.run),
               "--require-key: TRI_JOB_KEY_FILE does not name a file with a job key");
    trirun_end(&a, 0);
}

static void a_store_that_nobody_serves_is_named(void **state)
{
    int port = spawn_free_port();
    trirun_job a;

    (void)state;
    start_c10d(&a, port, "2", "is_host=0,read_timeout=0.4", NULL, "true");
    assert_int_equal(spawn_wait(&a.run), 1);
    trirun_has(SPAWN_ERR(&a.run), "trirun: --rdzv-endpoint: store at 127.0.0.1 port");
    trirun_end(&a, 0);
}

static void a_store_that_the_network_reaches_is_told_when_the_job_begins(void **state)
{
    trirun_job j[2];
    char port[40], line[80];
    int number = spawn_free_port();

    (void)state;
    snprintf(port, sizeof(port), "--master-port=%d", number);
    snprintf(line, sizeof(line), "port %d is open to the network", number);
    TRIRUN_START(&j[0], "--nnodes=2", "--master-addr=0.0.0.0", port, "true");
    spawn_expect(&j[0].run, "1 of 2 hosts joined");
    assert_null(strstr(SPAWN_ERR(&j[0].run), "open to the network"));
    TRIRUN_START(&j[1], "--nnodes=2", "--node-rank=1", "--master-addr=0.0.0.0", port, "true");
    for (int i = 0; i < 2; i++)
        assert_int_equal(spawn_wait(&j[i].run), 0);
    assert_int_equal(trirun_count(SPAWN_ERR(&j[0].run), line), 1);
    trirun_has(SPAWN_ERR(&j[0].run), "give all hosts the same TRI_JOB_KEY_FILE");
    assert_null(strstr(SPAWN_ERR(&j[0].run), "--master-addr"));
    assert_null(strstr(SPAWN_ERR(&j[1].run), "open to the network"));
    for (int i = 0; i < 2; i++)
        trirun_end(&j[i], 0);
}

static void the_last_call_ends_the_wait_for_more(void **state)
{
    trirun_job a;

    (void)state;
    start_c10d(&a, spawn_free_port(), "1:3", "last_call_timeout=0.3", NULL,
               "echo size $WORLD_SIZE");
    assert_int_equal(spawn_wait(&a.run), 0);
    assert_string_equal(SPAWN_OUT(&a.run), "size 1\n");
    trirun_end(&a, 0);
}

static void a_failure_starts_all_hosts_again_and_counts_once(void **state)
{
    int port = spawn_free_port(), n = 0;
    trirun_job j[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        start_c10d(&j[i], port, "3", "join_timeout=20", "--max-restarts=2",
                   "n=$TORCHELASTIC_RESTART_COUNT; [ $n = 2 ] && { echo done; exit 0; }\n"
                   "[ $RANK = $n ] && exit 3; exec sleep 1000");
    for (int i = 0; i < 3; i++)
        assert_int_equal(spawn_wait(&j[i].run), 0);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(SPAWN_OUT(&j[i].run), "done\n");
        n += trirun_count(SPAWN_ERR(&j[i].run), "sh failed: ");
    }
    assert_int_equal(n, 2); /* told in full on the host where it happened */
    for (int i = 0; i < 3; i++)
        trirun_end(&j[i], 0);
}

static void the_last_failure_ends_all_hosts(void **state)
{
    int port = spawn_free_port(), n = 0, folders = 0;
    trirun_job j[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        start_c10d(&j[i], port, "2", "join_timeout=20", "--max-restarts=1",
                   "[ $RANK = 1 ] && exit 7; exec sleep 1000");
    for (int i = 0; i < 2; i++)
        assert_int_equal(spawn_wait(&j[i].run), 1);
    for (int i = 0; i < 2; i++) {
        bool here = strstr(SPAWN_ERR(&j[i].run), "sh failed: ") != NULL;

        n += here;
        if (!here)
            trirun_has(SPAWN_ERR(&j[i].run), "the job is over: rank 1 on host");
        trirun_end(&j[i], here); /* the folder of the cause is kept */
        folders += here;
    }
    assert_int_equal(n, 1);
    assert_int_equal(folders, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_other_host_is_told_the_cause),
    cmocka_unit_test(an_odd_address_leaves_events_whole),
    cmocka_unit_test(static_ranks_are_those_that_were_given),
    cmocka_unit_test(static_hosts_start_again_together_with_an_empty_store),
    cmocka_unit_test(a_static_host_that_does_not_come_is_named),
    cmocka_unit_test(a_node_rank_that_is_taken_is_refused),
    cmocka_unit_test(a_job_without_ranks_has_none_that_is_taken),
    cmocka_unit_test(an_agent_without_a_rank_is_refused_where_ranks_are_given),
    cmocka_unit_test(a_port_that_is_no_store_is_no_duplicate),
    cmocka_unit_test(static_hosts_with_another_number_of_hosts_are_refused),
    cmocka_unit_test(hosts_meet_in_the_first_ones_store),
    cmocka_unit_test(workers_of_several_hosts_work_together),
    cmocka_unit_test(too_few_hosts_end_with_their_number),
    cmocka_unit_test(an_agent_that_waits_for_hosts_says_so_and_stops_when_told),
    cmocka_unit_test(an_agent_that_waits_for_a_store_stops_when_told),
    cmocka_unit_test(a_second_signal_does_not_wait_for_a_store),
    cmocka_unit_test(hosts_with_another_number_of_hosts_are_refused),
    cmocka_unit_test(a_wrong_id_is_another_job),
    cmocka_unit_test(agents_with_a_key_hear_no_strangers),
    cmocka_unit_test(a_key_is_required_of_agents_with_given_ranks_too),
    cmocka_unit_test(a_store_that_nobody_serves_is_named),
    cmocka_unit_test(a_store_that_the_network_reaches_is_told_when_the_job_begins),
    cmocka_unit_test(the_last_call_ends_the_wait_for_more),
    cmocka_unit_test(a_failure_starts_all_hosts_again_and_counts_once),
    cmocka_unit_test(the_last_failure_ends_all_hosts),
};

TEST_MAIN(tests)
