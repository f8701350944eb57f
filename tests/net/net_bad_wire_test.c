/*
 * net_bad_wire_test.c - ranks on hosts whose wires lose packets, delay them, and deliver later ones
 * before earlier ones: what arrives is right all the same. Where a system gives no namespaces or no
 * TAP interfaces the wires are good ones.
 */
/* ctest: labels=full timeout=120 */
#include <stdlib.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "testing/check.h"
#include "testing/hosts.h"
#include "testing/spawn.h"

enum { MAX_RANKS = 4, PORT = 29500, RUN_MS = 100000 };

static const char *own_path; /* of this program */

/* --- what this program does as a worker ----------------------------------- */

static int element(int rank, size_t i, int round)
{
    return (int)((unsigned)rank * 7919u + (unsigned)i * 31u + (unsigned)round * 1013u) % 1000;
}

static tri_status wrong(const char *what, size_t n, size_t i)
{
    fprintf(stderr, "rank %d: %s of %zu: element %zu is wrong\n", tri_rank(), what, n, i);
    return TRI_ERR_INTERNAL;
}

static tri_status check_sum(size_t n, int round)
{
    int *x = calloc(n + 1, sizeof(*x));
    tri_status st;

    for (size_t i = 0; i < n; i++)
        x[i] = element(tri_rank(), i, round);
    st = tri_all_reduce(NULL, x, x, n, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL);
    for (size_t i = 0; i < n && st == TRI_OK; i++) {
        int sum = 0;

        for (int r = 0; r < tri_world_size(); r++)
            sum += element(r, i, round);
        st = x[i] == sum ? TRI_OK : wrong("all_reduce", n, i);
    }
    free(x);
    return st;
}

/* Everybody to the next one, two tags at a time, of which the later one is received first. */
static tri_status check_ring(size_t n, int round)
{
    int size = tri_world_size(), next = (tri_rank() + 1) % size;
    int before = (tri_rank() + size - 1) % size;
    int *out = calloc(2 * n + 1, sizeof(*out)), *in = calloc(n + 1, sizeof(*in));
    tri_work *sends[2] = {NULL, NULL};
    tri_status st = TRI_OK;

    for (size_t i = 0; i < 2 * n; i++)
        out[i] = element(tri_rank(), i, round);
    for (int tag = 0; tag < 2 && st == TRI_OK; tag++)
        st = tri_send(NULL, out + (size_t)tag * n, n, TRI_DTYPE_I32, next, tag, &sends[tag]);
    for (int tag = 1; tag >= 0 && st == TRI_OK; tag--) {
        st = tri_recv(NULL, in, n, TRI_DTYPE_I32, before, tag, NULL);
        for (size_t i = 0; i < n && st == TRI_OK; i++)
            st =
                in[i] == element(before, (size_t)tag * n + i, round) ? TRI_OK : wrong("recv", n, i);
    }
    for (int tag = 0; tag < 2; tag++) {
        if (st == TRI_OK)
            st = tri_work_wait(sends[tag], 0);
        tri_work_destroy(sends[tag]);
    }
    free(out);
    free(in);
    return st;
}

/* Nobody is through before the last one came: each counts itself before. */
static tri_status check_barrier(tri_store *store, int round)
{
    int64_t n = 0;
    tri_status st = tri_store_add(store, "came", 1, &n);

    if (st == TRI_OK)
        st = tri_barrier(NULL, NULL);
    if (st == TRI_OK)
        st = tri_store_add(store, "came", 0, &n);
    if (st == TRI_OK && n < (int64_t)tri_world_size() * (round + 1)) {
        fprintf(stderr, "rank %d: only %d had come to barrier %d\n", tri_rank(), (int)n, round);
        st = TRI_ERR_INTERNAL;
    }
    return st;
}

static int worker(void)
{
    static const size_t counts[] = {0, 1, 1009, 20011};
    const size_t large = 66047; /* as a message it is fetched when its receive is there */
    tri_store *store = NULL;

    TRI_TRY(tri_init(NULL));
    TRI_TRY(tri_store_tcp(getenv("MASTER_ADDR"), (int)strtol(getenv("MASTER_PORT"), NULL, 10), NULL,
                          &store));
    for (int round = 0; round < 4; round++) {
        TRI_TRY(check_sum(counts[round], round));
        TRI_TRY(check_ring(counts[round], round));
        TRI_TRY(check_barrier(store, round));
    }
    TRI_TRY(check_ring(large, 4));
    tri_store_unref(store);
    printf("rank %d is through\n", tri_rank());
    fflush(stdout);
    tri_finalize();
    return 0;
}

static int joiner(void)
{
    int x = 1, size;

    TRI_TRY(tri_init(NULL));
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL));
    size = tri_world_size();
    tri_finalize();
    return x == size ? 0 : 1;
}

/* Rank 1 sends, leaves and ends, all of it before anything has come to rank 0. */
static int leaver(void)
{
    enum { N = 1009 }; /* one packet or two, which the network takes at once */
    int rank = (int)strtol(getenv("RANK"), NULL, 10), *x = calloc(N, sizeof(*x));
    tri_store *store = NULL;
    tri_group *group = NULL;

    TRI_TRY(tri_store_tcp(getenv("MASTER_ADDR"), (int)strtol(getenv("MASTER_PORT"), NULL, 10),
                          &(tri_store_tcp_options){.serve = rank == 0}, &store));
    TRI_TRY(tri_group_create(store, rank, 2, &(tri_group_options){.engine = "tcp"}, &group));
    for (size_t i = 0; i < N && rank == 1; i++)
        x[i] = element(1, i, 0);
    if (rank == 1) {
        TRI_TRY(tri_send(group, x, N, TRI_DTYPE_I32, 0, 0, NULL));
        tri_group_unref(group);
        _exit(0);
    }
    TRI_TRY(tri_recv(group, x, N, TRI_DTYPE_I32, 1, 0, NULL));
    for (size_t i = 0; i < N; i++) {
        if (x[i] != element(1, i, 0))
            return wrong("recv", N, i) == TRI_OK ? 0 : 1;
    }
    tri_group_unref(group);
    tri_store_unref(store);
    free(x);
    return 0;
}

/* Rank 1 sends more than a network takes at once, leaves and ends, while rank 0 speaks to it: what
 * comes to a socket that is closed resets it, and drops what has not gone yet. */
static int noisy(void)
{
    enum { PARTS = 24, N = 1009 };
    int rank = (int)strtol(getenv("RANK"), NULL, 10), *x = calloc((size_t)PARTS * N, sizeof(*x));
    tri_work *works[PARTS] = {NULL};
    tri_store *store = NULL;
    tri_group *group = NULL;

    TRI_TRY(tri_store_tcp(getenv("MASTER_ADDR"), (int)strtol(getenv("MASTER_PORT"), NULL, 10),
                          &(tri_store_tcp_options){.serve = rank == 0}, &store));
    TRI_TRY(tri_group_create(store, rank, 2, &(tri_group_options){.engine = "tcp"}, &group));
    for (int i = 0; i < PARTS && rank == 1; i++)
        TRI_TRY(tri_send(group, x + i * N, N, TRI_DTYPE_I32, 0, i, NULL));
    if (rank == 1) {
        tri_group_unref(group);
        _exit(0);
    }
    for (int i = 0; i < PARTS; i++)
        TRI_TRY(tri_recv(group, x + i * N, N, TRI_DTYPE_I32, 1, i, &works[i]));
    for (int i = 0; i < PARTS; i++) {
        tri_status status;

        while ((status = tri_work_wait(works[i], 10)) == TRI_ERR_TIMEOUT) {
            if (tri_send(group, &rank, 1, TRI_DTYPE_I32, 1, 99, NULL) != TRI_OK)
                break; /* it has left */
        }
        TRI_TRY(status == TRI_ERR_TIMEOUT ? tri_work_wait(works[i], 0) : status);
        tri_work_destroy(works[i]);
    }
    tri_group_unref(group);
    tri_store_unref(store);
    free(x);
    return 0;
}

/* --- the tests ------------------------------------------------------------ */

typedef struct wires {
    int delay_ms, jitter_ms, loss_per_mille;
    int mtu; /* 0 = as it is */
} wires;

/* Hosts with one address each, 10.77.0.HOST. False: there are none. */
static bool plug_hosts(int n, const wires *w)
{
    if (!hosts_begin(n))
        return false;
    for (int host = 1; host <= n; host++) {
        if (!hosts_plug_lossy(host, w->delay_ms, w->jitter_ms, w->loss_per_mille))
            hosts_plug(host);
        hosts_ip(host, "addr add 10.77.0.%d/24 dev eth0", host);
        if (w->mtu > 0)
            hosts_ip(host, "link set eth0 mtu %d", w->mtu);
    }
    return true;
}

static void check_job(const char *role, int n_hosts, int per_host, const char *engine,
                      const wires *w)
{
    const char *const argv[] = {own_path, role, NULL};
    int size = n_hosts * per_host;
    char rank[32], world[32], port[32], which[32];
    bool spread = plug_hosts(n_hosts, w);
    const char *const env[] = {rank,
                               world,
                               port,
                               which,
                               spread ? "MASTER_ADDR=10.77.0.1" : "MASTER_ADDR=127.0.0.1",
                               "TRI_TIMEOUT_MS=60000",
                               "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE",
                               NULL};
    spawn s[MAX_RANKS];

    snprintf(world, sizeof(world), "WORLD_SIZE=%d", size);
    snprintf(port, sizeof(port), "MASTER_PORT=%d", spread ? PORT : spawn_free_port());
    snprintf(which, sizeof(which), "TRI_ENGINE=%s", spread ? engine : "tcp");
    for (int r = 0; r < size; r++) {
        snprintf(rank, sizeof(rank), "RANK=%d", r);
        if (spread)
            hosts_spawn(1 + r / per_host, &s[r], argv, env);
        else
            spawn_start(&s[r], argv, env);
        s[r].deadline_ms = RUN_MS;
    }
    for (int r = 0; r < size; r++) {
        if (spawn_wait(&s[r]) != 0)
            fail_msg("rank %d: status %d: %s", r, s[r].status, SPAWN_ERR(&s[r]));
        spawn_free(&s[r]);
    }
    if (spread)
        hosts_end();
}

static void lost_late_and_reordered_packets_change_nothing(void **state)
{
    const wires w = {.delay_ms = 20, .jitter_ms = 10, .loss_per_mille = 20};

    (void)state;
    check_job("worker", 3, 1, "tcp", &w);
}

static void the_hierarchy_bears_a_bad_wire(void **state)
{
    const wires w = {.delay_ms = 20, .jitter_ms = 10, .loss_per_mille = 20};

    (void)state;
    check_job("worker", 2, 2, "hierarchy", &w);
}

/* Every frame comes in pieces, and the pieces in any order. */
static void tiny_packets_change_nothing(void **state)
{
    const wires w = {.delay_ms = 1, .jitter_ms = 2, .loss_per_mille = 2, .mtu = 128};

    (void)state;
    check_job("worker", 2, 1, "tcp", &w);
}

/* Ranks that see each other's process hear of its end before they have what it sent. */
static void a_rank_that_leaves_is_heard_out_however_slow_the_wire(void **state)
{
    const wires w = {.delay_ms = 300};

    (void)state;
    check_job("leaver", 2, 1, "tcp", &w);
}

static void a_rank_that_leaves_is_heard_out_by_one_that_speaks(void **state)
{
    const wires w = {.delay_ms = 50};

    (void)state;
    check_job("noisy", 2, 1, "tcp", &w);
}

/* Rank 1 waits for rank 2 while nothing comes from the store, longer than the end of a wait may
 * take; it hears of rank 2 when the network is repaired. */
static void an_outage_while_ranks_join_is_borne(void **state)
{
    enum { SIZE = 3, OUTAGE_MS = 7000 };
    const char *const argv[] = {own_path, "joiner", NULL};
    bool spread = plug_hosts(2, &(wires){0});
    char rank[32], port[32];
    const char *const env[] = {rank,
                               port,
                               "WORLD_SIZE=3",
                               spread ? "MASTER_ADDR=10.77.0.1" : "MASTER_ADDR=127.0.0.1",
                               "TRI_ENGINE=tcp",
                               "TRI_NOTE_MS=500",
                               "TRI_TIMEOUT_MS=60000",
                               "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE",
                               NULL};
    spawn s[SIZE];

    (void)state;
    snprintf(port, sizeof(port), "MASTER_PORT=%d", spread ? PORT : spawn_free_port());
    for (int r = 0; r < SIZE; r++) {
        snprintf(rank, sizeof(rank), "RANK=%d", r);
        if (spread)
            hosts_spawn(r == 1 ? 2 : 1, &s[r], argv, env);
        else
            spawn_start(&s[r], argv, env);
        s[r].deadline_ms = RUN_MS;
        if (r != 1)
            continue;
        spawn_expect(&s[1], "for rank 2 to join");
        if (spread) {
            hosts_cut(2);
            spawn_read(&s[1], OUTAGE_MS);
            hosts_heal(2);
        }
    }
    for (int r = 0; r < SIZE; r++) {
        if (spawn_wait(&s[r]) != 0)
            fail_msg("rank %d: status %d: %s", r, s[r].status, SPAWN_ERR(&s[r]));
        spawn_free(&s[r]);
    }
    if (spread)
        hosts_end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_that_leaves_is_heard_out_however_slow_the_wire),
    cmocka_unit_test(lost_late_and_reordered_packets_change_nothing),
    cmocka_unit_test(the_hierarchy_bears_a_bad_wire),
    cmocka_unit_test(tiny_packets_change_nothing),
    cmocka_unit_test(a_rank_that_leaves_is_heard_out_by_one_that_speaks),
    cmocka_unit_test(an_outage_while_ranks_join_is_borne),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return worker();
    if (argc > 1 && strcmp(argv[1], "leaver") == 0)
        return leaver();
    if (argc > 1 && strcmp(argv[1], "noisy") == 0)
        return noisy();
    if (argc > 1 && strcmp(argv[1], "joiner") == 0)
        return joiner();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
