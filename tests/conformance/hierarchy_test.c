/*
 * hierarchy_test.c - what every engine promises, for shm inside hosts and tcp between them: hosts
 * are pretended, ranks are threads, or processes where they die.
 */
#include "conformance/calls.h"

#include <stdlib.h>

#include "base/alloc.h"

static const size_t small_counts[] = {0, 1, 17, 1009, SIZE_MAX};
static const size_t odd_counts[] = {17, TEST_SANITIZED ? 1511 : 5003, SIZE_MAX};
static const size_t counts[] = {0, 1, 4099, TEST_SANITIZED ? 12007 : 30011, SIZE_MAX};
#if TEST_SANITIZED /* one of each size */
static const tri_dtype every_dtype[] = {TRI_DTYPE_BOOL, TRI_DTYPE_BF16, TRI_DTYPE_F32,
                                        TRI_DTYPE_I64, TRI_DTYPE_NONE};
#else
static const tri_dtype every_dtype[] = {
    TRI_DTYPE_U8,   TRI_DTYPE_I8,  TRI_DTYPE_I16, TRI_DTYPE_I32,  TRI_DTYPE_I64, TRI_DTYPE_F16,
    TRI_DTYPE_BF16, TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BOOL, TRI_DTYPE_NONE};
#endif
static const tri_dtype few_dtypes[] = {
    TRI_DTYPE_F32, TEST_SANITIZED ? TRI_DTYPE_NONE : TRI_DTYPE_BF16, TRI_DTYPE_NONE};

static const char hosts_of_2[] = "a,a,b,b,c,c,d,d";
static const char hosts_of_3[] = "a,a,a,b,b,b";
static const char hosts_of_4[] = "a,a,a,a,b,b,b,b";

static void conform(const char *hosts, int size, const size_t *n, const tri_dtype *dtypes)
{
    script what = {.counts = n, .dtypes = dtypes, .all_ops = dtypes == every_dtype};
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 40000};

    setenv("TRI_HOSTS", hosts, 1);
    run_threads(size, &options, run_script, &what);
    assert_int_equal(trii_alloc_live(), 0);
}

static void two_hosts_of_two(void **state)
{
    (void)state;
    conform(hosts_of_2, 4, counts, few_dtypes);
}

static void three_hosts_of_two(void **state)
{
    (void)state;
    conform(hosts_of_2, 6, counts, few_dtypes);
}

static void four_hosts_of_two(void **state)
{
    (void)state;
    conform(hosts_of_2, 8, small_counts, few_dtypes);
}

static void two_hosts_of_four(void **state)
{
    (void)state;
    conform(hosts_of_4, 8, small_counts, few_dtypes);
}

/* The canonical tree does not split between the hosts: hosts exchange what they sum alone. */
static void two_hosts_of_three(void **state)
{
    (void)state;
    conform(hosts_of_3, 6, counts, few_dtypes);
}

/* Hosts of different sizes, some ranks without a column. */
static void two_ranks_and_one(void **state)
{
    (void)state;
    conform("a,a,b", 3, counts, few_dtypes);
}

static void one_rank_and_two(void **state)
{
    (void)state;
    conform("a,b,b", 3, counts, few_dtypes);
}

static void three_three_and_one(void **state)
{
    (void)state;
    conform("a,a,a,b,b,b,c", 7, counts, few_dtypes);
}

static void five_and_three(void **state)
{
    (void)state;
    conform("a,a,a,a,a,b,b,b", 8, small_counts, few_dtypes);
}

/* The tree splits between these, though they differ: it is one over three hosts. */
static void four_four_and_three(void **state)
{
    (void)state;
    conform("a,a,a,a,b,b,b,b,c,c,c", 11, small_counts, few_dtypes);
}

/* As srun --distribution=cyclic places them. */
static void interleaved(void **state)
{
    (void)state;
    conform("a,b,a,b", 4, counts, few_dtypes);
    conform("a,b,c,a,b,c", 6, small_counts, few_dtypes);
}

static void interleaved_and_uneven(void **state)
{
    (void)state;
    conform("a,b,c,a,b,c,a", 7, counts, few_dtypes);
    conform("a,b,b,c,a,a,b,a,c,b", 10, small_counts, few_dtypes);
}

static void every_dtype_and_op(void **state)
{
    (void)state;
    conform(hosts_of_2, 4, small_counts, every_dtype);
}

static void every_dtype_and_op_elsewhere(void **state)
{
    (void)state;
    conform("a,a,b,a,b", 5, odd_counts, every_dtype);
}

static const char *engine_is(rank_env *env)
{
    tri_group *g = NULL;
    float x = 1.0f;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (strcmp(tri_group_engine(g), env->arg) != 0)
        return RANK_FAIL(env, "engine %s instead of %s", tri_group_engine(g),
                         (const char *)env->arg);
    RANK_TRY(env, tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    if (x != (float)env->size)
        return RANK_FAIL(env, "sum %g", (double)x);
    tri_group_unref(g);
    return NULL;
}

static void the_layout_of_hosts_chooses_the_engine(void **state)
{
    static const struct {
        const char *hosts, *engine;
        int size;
    } cases[] = {{"a,a,b,b", "hierarchy", 4},
                 {"a,b,c,d", "tcp", 4},
                 {"a,a,b", "hierarchy", 3},
                 {"a,b", "tcp", 2},
                 {"a,b,a,b", "hierarchy", 4},
                 {"a,a,b,c", "hierarchy", 4},
                 {NULL, "shm", 4}};
    tri_group_options options = {.timeout_ms = 40000};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char engine[16];

        snprintf(engine, sizeof(engine), "%s", cases[i].engine);
        if (cases[i].hosts != NULL)
            setenv("TRI_HOSTS", cases[i].hosts, 1);
        else
            unsetenv("TRI_HOSTS");
        run_threads(cases[i].size, &options, engine_is, engine);
        assert_int_equal(trii_alloc_live(), 0);
    }
}

/* --- faults --------------------------------------------------------------- */

static const char *one_dies(rank_env *env)
{
    tri_group *g = NULL;
    float *x = calloc(1 << 20, sizeof(*x));
    tri_status st = TRI_OK;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < 1000 && st == TRI_OK; i++) {
        if (env->rank == 3 && i == 20)
            raise(SIGKILL);
        st = tri_all_reduce(g, x, x, 1 << (i % 21), TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    }
    if (st != TRI_ERR_PEER_LOST && st != TRI_ERR_ABORTED)
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(st), tri_last_error());
    if (tri_barrier(g, NULL) != st)
        return RANK_FAIL(env, "rank %d: the group does not stay failed", env->rank);
    RANK_TRY(env, ranks_meet(env, "failed", 3)); /* leaving would end the others' calls too */
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void a_dead_rank_ends_all_calls_on_all_hosts(void **state)
{
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 20000};
    rank_end ends[4] = {{0, 0}, {0, 0}, {0, 0}, {0, SIGKILL}};

    (void)state;
    setenv("TRI_HOSTS", hosts_of_2, 1);
    run_processes(4, &options, one_dies, NULL, ends, 15);
}

static const char *one_is_late(rank_env *env)
{
    const char *key = "over";
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (env->rank == 0)
        RANK_FAILS(env, tri_monitored_barrier(g, 200), TRI_ERR_GROUP_TIMEOUT, "rank");
    if (env->rank == 1)
        RANK_TRY(env, tri_store_wait(env->store, &key, 1, 20000));
    if (env->rank > 1 && tri_barrier(g, NULL) == TRI_OK)
        return RANK_FAIL(env, "rank %d passed", env->rank);
    if (env->rank == 0)
        RANK_TRY(env, tri_store_set(env->store, key, "", 0));
    tri_group_unref(g);
    return NULL;
}

static void a_timeout_ends_all_calls_on_all_hosts(void **state)
{
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 20000};

    (void)state;
    setenv("TRI_HOSTS", hosts_of_2, 1);
    run_threads(4, &options, one_is_late, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Rank 1 does not call, or gives up; in stages some wait on children where nobody failed. */
static const char *stages_end(rank_env *env)
{
    enum { COUNT = 20000 };
    bool gives_up = *(const bool *)env->arg;
    float *x = calloc(COUNT, sizeof(*x));
    tri_group *g = NULL;
    tri_status st = TRI_OK, seen;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1)); /* else the failure could come before its end */
    if (env->rank == 0 && !gives_up)
        tri_group_set_timeout(g, 200);
    if (env->rank != 1)
        st = tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    else if (gives_up)
        tri_group_abort(g, "enough");
    seen = ranks_meet(env, "failed", 1);
    tri_group_unref(g); /* ends what hangs */
    free(x);
    RANK_TRY(env, seen);
    if (env->rank == 0 && !gives_up ? st != TRI_ERR_GROUP_TIMEOUT
                                    : env->rank != 1 && st != TRI_ERR_ABORTED)
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(st), tri_last_error());
    return NULL;
}

static void stages_that_nobody_failed_in_end_too(void **state)
{
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 20000};

    (void)state;
    setenv("TRI_HOSTS", hosts_of_2, 1);
    for (int i = 0; i < 2; i++) {
        bool gives_up = i != 0;

        run_threads(4, &options, stages_end, &gives_up);
    }
    assert_int_equal(trii_alloc_live(), 0);
}

/* One of them would go one way and the other another; arg: what the line says of the one. */
static const char *ways_apart(rank_env *env)
{
    enum { COUNT = 20000 };
    float *x = calloc(COUNT, sizeof(*x));
    tri_group *g = NULL;
    tri_status st;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank == 2)
        st = tri_barrier(g, NULL);
    else
        st = tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (st != TRI_ERR_MISMATCH || strstr(tri_last_error(), env->arg) == NULL ||
        strstr(tri_last_error(), "rank 2 calls barrier #2 (hierarchy_test.c") == NULL)
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(st), tri_last_error());
    tri_group_unref(g);
    free(x);
    return NULL;
}

static void calls_that_go_different_ways_are_a_mismatch(void **state)
{
    static char any[] = "calls all_reduce #2"; /* rank 1's or, if rank 0 is sooner, that one's */
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 20000};

    (void)state;
    setenv("TRI_HOSTS", "a,b,b", 1);
    run_threads(3, &options, ways_apart, any);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Each host agrees with itself. */
static void hosts_that_go_different_ways_are_a_mismatch(void **state)
{
    static char any[] = "calls all_reduce #2";
    tri_group_options options = {.engine = "hierarchy", .timeout_ms = 20000};

    (void)state;
    setenv("TRI_HOSTS", "a,a,b", 1);
    run_threads(3, &options, ways_apart, any);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_hosts_of_two),
    cmocka_unit_test(three_hosts_of_two),
    cmocka_unit_test(four_hosts_of_two),
    cmocka_unit_test(two_hosts_of_four),
    cmocka_unit_test(two_hosts_of_three),
    cmocka_unit_test(two_ranks_and_one),
    cmocka_unit_test(one_rank_and_two),
    cmocka_unit_test(three_three_and_one),
    cmocka_unit_test(five_and_three),
    cmocka_unit_test(four_four_and_three),
    cmocka_unit_test(interleaved),
    cmocka_unit_test(interleaved_and_uneven),
    cmocka_unit_test(every_dtype_and_op_elsewhere),
    cmocka_unit_test(every_dtype_and_op),
    cmocka_unit_test(the_layout_of_hosts_chooses_the_engine),
    cmocka_unit_test(a_dead_rank_ends_all_calls_on_all_hosts),
    cmocka_unit_test(a_timeout_ends_all_calls_on_all_hosts),
    cmocka_unit_test(stages_that_nobody_failed_in_end_too),
    cmocka_unit_test(calls_that_go_different_ways_are_a_mismatch),
    cmocka_unit_test(hosts_that_go_different_ways_are_a_mismatch),
};

TEST_MAIN(tests)
