/*
 * never_joined_test.c - a worker ends before it has joined the others: they are told at once, and
 * do not wait for it until their deadline, which is minutes away.
 */
#include <signal.h>

#include <trireme/comm.h>

#include "testing/trirun_job.h"

static char self[4096]; /* this program */

/* Says that it has come, and ends before the group is formed. */
static tri_status only_come(const char *rank)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    tri_store *base = NULL, *store = NULL;
    void *answer = NULL;
    char key[64], me[100];
    tri_status status = tri_store_tcp(host, (int)strtol(port, NULL, 10), NULL, &base);

    if (status == TRI_OK)
        status = tri_store_prefix("trireme/0", base, &store);
    snprintf(key, sizeof(key), "rank/%s", rank);
    snprintf(me, sizeof(me), "0 name %s process 1 on nowhere|", getenv("WORLD_SIZE"));
    if (status == TRI_OK)
        status = tri_store_set(store, key, me, strlen(me));
    if (status == TRI_OK)
        status = tri_store_get(store, "world/name", 20000, &answer, NULL);
    if (status == TRI_OK) {
        snprintf(key, sizeof(key), "%.16s/come/%s", (const char *)answer + 2, rank);
        status = tri_store_set(store, key, "0 name", 6);
    }
    tri_store_free(answer);
    tri_store_unref(store);
    tri_store_unref(base);
    return status;
}

/* Joins with the others, but the last rank, which ends in some way before; "after" it had joined a
 * first world. */
static int worker(const char *how)
{
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    bool last = strtol(rank, NULL, 10) + 1 == strtol(size, NULL, 10);
    tri_status status = TRI_OK;

    if (strcmp(how, "after") == 0) {
        status = tri_init(NULL);
        tri_finalize();
    }
    if (last && strcmp(how, "comes") == 0)
        return only_come(rank) == TRI_OK ? 0 : 4;
    if (last && strcmp(how, "killed") == 0)
        raise(SIGKILL);
    if (last)
        return strcmp(how, "fails") == 0 ? 5 : 0;
    if (status == TRI_OK)
        status = tri_init(NULL);
    if (status != TRI_OK)
        fprintf(stderr, "worker: %s: %s\n", tri_status_name(status), tri_last_error());
    tri_finalize();
    return status == TRI_OK ? 0 : 3;
}

static void one_that_returns_early_is_named_at_once(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--nproc-per-node=4", self, "--worker", "returns");
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "worker: PEER_LOST: init: world: rank 3 of 4 ended with status 0 "
                                  "before it joined the group");
    trirun_end(&j, 1);
}

static void one_that_does_not_come_to_the_next_world_is_named_at_once(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--nproc-per-node=3", self, "--worker", "after");
    assert_int_equal(spawn_wait(&j.run), 1);
    trirun_has(SPAWN_ERR(&j.run), "worker: PEER_LOST: init: world: rank 2 of 3 ended with status 0 "
                                  "before it joined the group");
    trirun_end(&j, 1);
}

/* The others are not stopped, and must not wait either. */
static void survivors_are_told_of_one_that_fails_early(void **state)
{
    static const char *const how[] = {"fails", "killed"};
    static const char *const words[] = {"rank 2 of 3 exited with code 5 before it joined the group",
                                        "rank 2 of 3 was killed by SIGKILL before it joined"};
    trirun_job j;

    (void)state;
    for (int i = 0; i < 2; i++) {
        TRIRUN_START(&j, "--nproc-per-node=3", "--keep-survivors", self, "--worker", how[i]);
        assert_int_equal(spawn_wait(&j.run), 1);
        assert_int_equal(trirun_count(SPAWN_ERR(&j.run), words[i]), 2);
        trirun_end(&j, 1);
    }
}

static void one_that_has_come_and_ends_before_the_group_is_formed_is_no_wait(void **state)
{
    static const char *const engines[] = {"TRI_ENGINE=shm", "TRI_ENGINE=tcp"};
    trirun_job j;

    (void)state;
    for (int i = 0; i < 2; i++) {
        TRIRUN_START(&j, "--nproc-per-node=3", "env", engines[i], self, "--worker", "comes");
        assert_int_equal(spawn_wait(&j.run), 1);
        assert_true(trirun_count(SPAWN_ERR(&j.run), "worker: PEER_LOST: init: ") > 0);
        trirun_has(SPAWN_ERR(&j.run), "a rank ended while the group was formed");
        trirun_end(&j, 1);
    }
}

/* Agents that meet at a store of the first one, as on two hosts. */
static void start_agent(trirun_job *j, int port, const char *how)
{
    char endpoint[64];
    const char *const args[] = {"--nnodes=2",  "--rdzv-backend=c10d",
                                "--rdzv-id=t", "--rdzv-endpoint",
                                endpoint,      "--nproc-per-node=2",
                                self,          "--worker",
                                how,           NULL};

    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    trirun_start(j, args);
}

/* A host that hears of the other's failure first may have no record of its own to keep. */
static int agent_end(trirun_job *j)
{
    int n = spawn_count_entries(j->folder);

    assert_in_range(n, 0, 1);
    trirun_end(j, n);
    return n;
}

static void a_rank_that_never_joined_is_named_on_other_hosts_too(void **state)
{
    int port = spawn_free_port();
    trirun_job a, b;

    (void)state;
    start_agent(&a, port, "returns");
    start_agent(&b, port, "returns");
    assert_int_equal(spawn_wait(&a.run), 1);
    assert_int_equal(spawn_wait(&b.run), 1);
    assert_true(
        trirun_count(SPAWN_ERR(&a.run), "rank 3 of 4 ended with status 0 before it joined") +
            trirun_count(SPAWN_ERR(&b.run), "rank 3 of 4 ended with status 0 before it joined") >
        0);
    assert_true(agent_end(&a) + agent_end(&b) > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_that_returns_early_is_named_at_once),
    cmocka_unit_test(one_that_does_not_come_to_the_next_world_is_named_at_once),
    cmocka_unit_test(survivors_are_told_of_one_that_fails_early),
    cmocka_unit_test(one_that_has_come_and_ends_before_the_group_is_formed_is_no_wait),
    cmocka_unit_test(a_rank_that_never_joined_is_named_on_other_hosts_too),
};

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0)
        return worker(argv[2]);
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
