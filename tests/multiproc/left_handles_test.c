/*
 * left_handles_test.c - a program that never destroys the handles of its calls leaves the world all
 * the same: its peers do not take its end for a failure, and what it forgot is named.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "testing/check.h"
#include "testing/spawn.h"

#include "base/alloc.h"
#include "comm/group/join/world.h"

enum { RANKS = 3, PATIENCE_MS = 20000 };

static const char *own_path; /* of this program */

/* --- what this program does as a worker ----------------------------------- */

static tri_status until_it_ended(int64_t pid)
{
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, (int)pid, 0), .events = POLLIN};
    int n = p.fd >= 0 ? poll(&p, 1, PATIENCE_MS) : 1; /* else it has ended already */

    if (p.fd >= 0)
        close(p.fd);
    return n == 1 ? TRI_OK : TRI_ERR_TIMEOUT;
}

/* Ranks 0 and 2, of which rank 1 is no part. */
static tri_status talk(void)
{
    int peer = 2 - tri_rank(), got = -1;
    tri_status st = TRI_OK;

    for (int i = 0; i < 200 && st == TRI_OK; i++) {
        if (tri_rank() == 0)
            st = tri_send(NULL, &i, 1, TRI_DTYPE_I32, peer, 0, NULL);
        if (st == TRI_OK)
            st = tri_recv(NULL, &got, 1, TRI_DTYPE_I32, peer, 0, NULL);
        if (st == TRI_OK && tri_rank() == 2)
            st = tri_send(NULL, &got, 1, TRI_DTYPE_I32, peer, 0, NULL);
        if (st == TRI_OK && got != i)
            st = TRI_ERR_INTERNAL;
    }
    return st;
}

/* Rank 1 forgets a handle and ends; the others go on. */
static int forgets(void)
{
    int64_t pid = getpid(), pids[RANKS];
    float x = 1;
    static tri_work *work; /* forgotten, which is no leak that a sanitizer should tell of */

    TRI_TRY(tri_init(NULL));
    TRI_TRY(tri_all_gather(NULL, &pid, pids, 1, TRI_DTYPE_I64, NULL));
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    TRI_TRY(tri_work_wait(work, 0));
    if (tri_rank() == 1) {
        tri_finalize();
        return 0;
    }
    TRI_TRY(until_it_ended(pids[1]));
    TRI_TRY(talk());
    TRI_TRY(tri_group_status(NULL));
    tri_work_destroy(work);
    tri_finalize();
    return 0;
}

/* All keep a handle past the end of the world, and memory and a reference of it; the call of one of
 * rank 1's handles is not over. What is used later says so, and can be given back. */
static int keeps(void)
{
    float x = 1;
    tri_work *work = NULL, *late = NULL;
    tri_group *world = NULL;
    float *memory;
    tri_store *store = NULL;
    const int all[RANKS] = {0, 1, 2};
    tri_group *made = NULL;
    int rank;

    TRI_TRY(tri_init(NULL));
    rank = tri_rank();
    memory = tri_group_alloc(NULL, 4096);
    if (memory == NULL)
        return 3;
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    TRI_TRY(tri_work_wait(work, 0));
    for (int r = 0; r < RANKS; r++) { /* whose call is not over ends those of the others */
        if (rank != 1 && r == rank)
            TRI_TRY(tri_send(NULL, &x, 1, TRI_DTYPE_F32, 1, 0, NULL));
        if (rank == 1 && r != 1)
            TRI_TRY(tri_recv(NULL, &x, 1, TRI_DTYPE_F32, r, 0, NULL));
    }
    world = tri_group_ref(trii_group_get_world());
    if (rank == 1)
        TRI_TRY(tri_recv(NULL, &x, 1, TRI_DTYPE_F32, 0, 7, &late));
    tri_finalize();
    if (rank == 0) { /* nothing of it serves the store any more */
        TRI_TRY(tri_store_tcp("127.0.0.1", (int)strtol(getenv("MASTER_PORT"), NULL, 10),
                              &(tri_store_tcp_options){.serve = true}, &store));
        tri_store_unref(store);
    }
    memory[7] = 7; /* still there */
    if (late != NULL && (tri_work_wait(late, 0) >= 0 || tri_work_test(late) >= 0))
        return 4;
    TRI_TRY(tri_work_wait(work, 0));
    if (tri_group_status(world) == TRI_OK ||
        tri_group_new(world, all, RANKS, NULL, &made) == TRI_OK ||
        tri_group_shrink(world, NULL, &made) == TRI_OK || tri_barrier(world, NULL) == TRI_OK)
        return 5;
    printf("%s\n", tri_last_error());
    tri_group_abort(world, "again");
    tri_group_free(world, memory);
    tri_work_destroy(late);
    tri_work_destroy(work);
    tri_group_unref(world);
    return trii_alloc_live() == 0 ? 0 : 6;
}

/* --- the tests ------------------------------------------------------------ */

static void start_all(spawn s[RANKS], const char *mode, const char *engine)
{
    const char *const argv[] = {own_path, mode, NULL};
    char port[32], which[32], rank[32];
    const char *const env[] = {rank,  "WORLD_SIZE=3",         "MASTER_ADDR=127.0.0.1", port,
                               which, "TRI_TIMEOUT_MS=20000", "TRI_HOSTS=a,a,b",       NULL};

    snprintf(port, sizeof(port), "MASTER_PORT=%d", spawn_free_port());
    snprintf(which, sizeof(which), "TRI_ENGINE=%s", engine);
    for (int r = 0; r < RANKS; r++) {
        snprintf(rank, sizeof(rank), "RANK=%d", r);
        spawn_start_bare(&s[r], argv, env);
    }
}

static void check_ends(spawn s[RANKS], const char *engine)
{
    for (int r = 0; r < RANKS; r++) {
        if (spawn_wait(&s[r]) != 0)
            fail_msg("%s: rank %d: status %d: %s", engine, r, s[r].status, SPAWN_ERR(&s[r]));
    }
}

static void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("not \"%s\" in: %s", part, text);
}

static void check_forgotten(const char *engine)
{
    spawn s[RANKS];

    start_all(s, "forgets", engine);
    check_ends(s, engine);
    assert_string_equal(SPAWN_ERR(&s[0]), "");
    assert_string_equal(SPAWN_ERR(&s[2]), "");
    has(SPAWN_ERR(&s[1]), "finalize: one call was not given back (tri_work_destroy): all_reduce #");
    has(SPAWN_ERR(&s[1]), " of 1 f32, sum (left_handles_test.c:");
    for (int r = 0; r < RANKS; r++)
        spawn_free(&s[r]);
}

static void shm_is_left_though_a_handle_remains(void **state)
{
    (void)state;
    check_forgotten("shm");
}

static void tcp_is_left_though_a_handle_remains(void **state)
{
    (void)state;
    check_forgotten("tcp");
}

static void the_hierarchy_is_left_though_a_handle_remains(void **state)
{
    (void)state;
    check_forgotten("hierarchy");
}

static void what_is_left_of_a_world_can_be_given_back(void **state)
{
    static const char *const engines[] = {"shm", "tcp", "hierarchy"};

    (void)state;
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
        spawn s[RANKS];

        start_all(s, "keeps", engines[i]);
        check_ends(s, engines[i]);
        has(SPAWN_ERR(&s[1]),
            "finalize: 2 calls were not given back (tri_work_destroy): all_reduce #");
        has(SPAWN_ERR(&s[1]), ", recv #2 of 1 f32 from rank 0, tag 7 (left_handles_test.c:");
        has(SPAWN_OUT(&s[1]), " left the group");
        for (int r = 0; r < RANKS; r++)
            spawn_free(&s[r]);
    }
}

static void a_world_of_one_is_left_though_handles_remain(void **state)
{
    float x = 3, y = 0;
    tri_work *work = NULL, *vain = NULL;

    (void)state;
    clearenv();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tri_init(NULL));
        CHECK_OK(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
        CHECK_OK(tri_recv(NULL, &y, 1, TRI_DTYPE_F32, 0, 0, &vain));
        tri_finalize();
        CHECK_OK(tri_work_wait(work, 0));
        CHECK_FAILS(tri_work_wait(vain, 0), TRI_ERR_ABORTED, "left the group");
        tri_work_destroy(vain);
        tri_work_destroy(work);
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_world_of_one_is_left_though_handles_remain),
    cmocka_unit_test(shm_is_left_though_a_handle_remains),
    cmocka_unit_test(tcp_is_left_though_a_handle_remains),
    cmocka_unit_test(the_hierarchy_is_left_though_a_handle_remains),
    cmocka_unit_test(what_is_left_of_a_world_can_be_given_back),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 1 && strcmp(argv[1], "forgets") == 0)
        return forgets();
    if (argc > 1 && strcmp(argv[1], "keeps") == 0)
        return keeps();
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
