/*
 * compared_test.c - engines whose calls are compared by another one beside them: as for plug-ins,
 * here with those of the library.
 */
#include "conformance/compared.h"

#include "base/alloc.h"

static const size_t counts[] = {0, 1, 23, 4099, SIZE_MAX};
static const tri_dtype few_dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16, TRI_DTYPE_NONE};
static const char *const engines[] = {"tcp", "shm"};

static void on_all(int size, const char *(*main)(rank_env *env), void *arg)
{
    setenv("TRI_CHECK_CALLS", "all", 1);
    for (size_t e = 0; e < TRII_COUNT_OF(engines); e++) {
        tri_group_options options = {.engine = engines[e], .timeout_ms = 40000};

        run_threads(size, &options, main, arg);
        assert_int_equal(trii_alloc_live(), 0);
    }
}

static void calls_are_what_they_were(void **state)
{
    script what = {.counts = counts, .dtypes = few_dtypes};

    (void)state;
    on_all(2, run_script, &what);
    on_all(5, run_script, &what);
}

/* The engine that compares is hierarchy, whose own pieces of a comparison are compared too. */
static void hosts_compare_too(void **state)
{
    script what = {.counts = counts, .dtypes = few_dtypes};
    static const char *const hosts[] = {"a,a,b", "a,b,b"};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(hosts); i++) {
        setenv("TRI_HOSTS", hosts[i], 1);
        on_all(3, run_script, &what);
        on_all(3, compared_sides, NULL);
    }
}

static void calls_that_differ_are_named(void **state)
{
    (void)state;
    on_all(3, compared_sides, NULL);
}

static void messages_that_differ_are_named(void **state)
{
    (void)state;
    on_all(2, compared_message, NULL);
}

static void messages_come_from_anybody(void **state)
{
    (void)state;
    on_all(4, compared_anybody, NULL);
}

static void who_is_late_is_named(void **state)
{
    (void)state;
    on_all(3, compared_late, NULL);
}

static const char *one_dies(rank_env *env)
{
    tri_group *g = NULL;
    float *x = calloc(1 << 12, sizeof(*x));
    tri_work *work = NULL;
    tri_status st = TRI_OK;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_recv(g, x, 1, TRI_DTYPE_F32, (env->rank + 1) % env->size, 9, &work));
    for (int i = 0; i < 1000 && st == TRI_OK; i++) {
        if (env->rank == 2 && i == 20)
            raise(SIGKILL);
        st = tri_all_reduce(g, x, x, 1 << (i % 12), TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    }
    if (st != TRI_ERR_PEER_LOST && st != TRI_ERR_ABORTED)
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(st), tri_last_error());
    if (tri_work_wait(work, 0) >= 0)
        return RANK_FAIL(env, "rank %d: the receive goes on", env->rank);
    tri_work_destroy(work);
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void a_dead_rank_ends_all_calls(void **state)
{
    tri_group_options options = {.engine = "tcp", .timeout_ms = 20000};
    rank_end ends[3] = {{0, 0}, {0, 0}, {0, SIGKILL}};

    (void)state;
    setenv("TRI_CHECK_CALLS", "all", 1);
    run_processes(3, &options, one_dies, NULL, ends, 15);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(calls_are_what_they_were),
    cmocka_unit_test(calls_that_differ_are_named),
    cmocka_unit_test(messages_that_differ_are_named),
    cmocka_unit_test(messages_come_from_anybody),
    cmocka_unit_test(who_is_late_is_named),
    cmocka_unit_test(a_dead_rank_ends_all_calls),
    cmocka_unit_test(hosts_compare_too),
};

TEST_MAIN(tests)
