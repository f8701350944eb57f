/*
 * tcp_torn_test.c - the tcp engine where sockets move a byte at a time, nothing, or are
 * interrupted: all collectives and messages are what they are elsewhere.
 */
/* ctest: start=first program=own */
#include "conformance/calls.h"
#include "testing/torn_io.h"

#include "base/alloc.h"

static const tri_group_options tcp_options = {.engine = "tcp", .timeout_ms = 60000};

static const torn_io ways[] = {
    {.most = 1, .seed = 1},
    {.most = 7, .refuses = 8, .seed = 2},
    {.most = 5000, .refuses = 3, .breaks = 3, .seed = 3},
    {.most = 100000, .refuses = 5, .seed = 4},
};

static const tri_dtype f32_only[] = {TRI_DTYPE_F32, TRI_DTYPE_NONE};

static void calls_are_whole(void **state)
{
    static const size_t few[] = {0, 1, 23, SIZE_MAX}, many[] = {0, 1, 1009, 40009, SIZE_MAX};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(ways); i++) {
        script what = {.counts = ways[i].most < 100 ? few : many, .dtypes = f32_only};

        torn = ways[i];
        for (int size = 2; size <= 3; size++)
            run_threads(size, &tcp_options, run_script, &what);
    }
    torn = (torn_io){0};
    assert_int_equal(trii_alloc_live(), 0);
}

/* Messages of all sizes, received backwards, both ways, while a reduction is under way. */
static const char *exchange(rank_env *env)
{
    enum { N = 40 };
    static const size_t counts[] = {0, 1, 30, 5000, 300000};
    const torn_io *way = env->arg;
    tri_group *g = NULL;
    int other = 1 - env->rank;
    unsigned char *out = malloc(300000 + N), *in = malloc(300000);
    tri_work *sends[N], *sum = NULL;
    float x[999] = {0};

    for (int i = 0; i < 300000 + N; i++)
        out[i] = (unsigned char)(i * 13 >> 2);
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_all_reduce(g, x, x, 999, TRI_DTYPE_F32, TRI_REDOP_SUM, &sum));
    for (int i = 0; i < N; i++) {
        size_t n = counts[i % (way->most < 100 ? 3 : 5)];

        RANK_TRY(env, tri_send(g, out + i, n, TRI_DTYPE_U8, other, i, &sends[i]));
    }
    for (int i = N - 1; i >= 0; i--) {
        size_t n = counts[i % (way->most < 100 ? 3 : 5)];

        RANK_TRY(env, tri_recv(g, in, 300000, TRI_DTYPE_U8, other, i, NULL));
        if (tri_work_count(NULL) != n || memcmp(in, out + i, n) != 0)
            return RANK_FAIL(env, "message %d differs", i);
    }
    RANK_TRY(env, tri_work_wait(sum, 0));
    tri_work_destroy(sum);
    for (int i = 0; i < N; i++) {
        RANK_TRY(env, tri_work_wait(sends[i], 0));
        tri_work_destroy(sends[i]);
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    free(out);
    free(in);
    return NULL;
}

static void messages_are_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(ways); i++) {
        torn = ways[i];
        for (uint64_t seed = 0; seed < 3; seed++) {
            torn.seed += 100;
            run_threads(2, &tcp_options, exchange, &torn);
        }
    }
    torn = (torn_io){0};
    assert_int_equal(trii_alloc_live(), 0);
}

/* A rank's failure is told whole, and says the same. */
static const char *aborts(rank_env *env)
{
    tri_group *g = NULL;
    float x = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (env->rank == 1)
        tri_group_abort(g, "no more of this, says rank one");
    RANK_FAILS(env, tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
               TRI_ERR_ABORTED, "no more of this, says rank one");
    tri_group_unref(g);
    return NULL;
}

static void an_abort_is_told_whole(void **state)
{
    (void)state;
    for (size_t i = 1; i < TRII_COUNT_OF(ways); i++) {
        torn = ways[i];
        torn.refuses = torn.breaks = 0; /* there is room: it is said only once */
        run_threads(3, &tcp_options, aborts, NULL);
    }
    torn = (torn_io){0};
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(calls_are_whole),
    cmocka_unit_test(messages_are_whole),
    cmocka_unit_test(an_abort_is_told_whole),
};

TEST_MAIN(tests)
