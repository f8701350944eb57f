/*
 * float_env_test.c - ranks whose threads flush denormal numbers or round otherwise get the same
 * sums, and keep their ways.
 */
#include <float.h>

#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/reduce_scalar.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/float_env.h"

enum { RANKS = 3, LARGE = 100003 };

/* Of each rank its own. */
static uint64_t unlike_others(int rank)
{
#if defined(__x86_64__)
    static const uint64_t modes[RANKS] = {0x1f80, 0x1f80 | 0x8040, 0x1f80 | 0x4000}; /* up */
#else
    static const uint64_t modes[RANKS] = {0, UINT64_C(1) << 24, UINT64_C(1) << 22};
#endif
    return modes[rank % RANKS];
}

/* Denormal numbers, sums that are to be rounded, numbers that become denormal. */
static void fill(float *x, size_t n, int rank)
{
    static const float of[] = {FLT_MIN / 64, 1.0f, 1e-40f, 3.0f, FLT_MIN};

    for (size_t i = 0; i < n; i++)
        x[i] = of[i % 5] * (1.0f + (float)(rank + 1) * FLT_EPSILON * (float)(1 + i % 3)) *
               (rank == 1 && i % 5 == 4 ? -1.0f : 1.0f);
}

typedef struct sums {
    float *want[RANKS + 1]; /* what the ranks give, and the sum */
    tri_redop op;
    float factor;
    tri_dtype dtype;
} sums;

static const char *sum_of(rank_env *env, tri_group *g, size_t n, bool async)
{
    const sums *s = env->arg;
    float *x = tri_group_alloc(g, LARGE * sizeof(*x)), *own = malloc(LARGE * sizeof(*own));
    const char *failure = NULL;

    if (x == NULL || own == NULL)
        return RANK_FAIL(env, "%s", tri_last_error());
    for (int heap = 0; heap < 2 && failure == NULL; heap++) {
        float *to = heap ? own : x;
        tri_work *work = NULL;

        memcpy(to, s->want[env->rank], n * sizeof(*to));
        RANK_TRY(env, s->op == TRII_REDOP_PREMUL_SUM
                          ? tri_all_reduce_premul_sum(g, to, to, n, s->dtype, s->factor,
                                                      async ? &work : NULL)
                          : tri_all_reduce(g, to, to, n, s->dtype, s->op, async ? &work : NULL));
        if (async)
            RANK_TRY(env, tri_work_wait(work, 0));
        tri_work_destroy(work);
        for (size_t i = 0; i < n && failure == NULL; i++) {
            if (memcmp(&to[i], &s->want[RANKS][i], sizeof(*to)) != 0)
                failure = RANK_FAIL(env, "rank %d, %zu elements, %s: element %zu is %a, not %a",
                                    env->rank, n, heap ? "heap" : "shared", i, (double)to[i],
                                    (double)s->want[RANKS][i]);
        }
    }
    tri_group_free(g, x);
    free(own);
    return failure;
}

static const char *sum_in_own_ways(rank_env *env)
{
    static const size_t counts[] = {1, 3, 17, 1000, LARGE};
    uint64_t before = trii_float_env_get();
    const char *failure = NULL;
    tri_group *g = NULL;

    trii_float_env_set(unlike_others(env->rank)); /* what the group's threads are born with, too */
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < 10 && failure == NULL; i++) {
        failure = sum_of(env, g, counts[i / 2], i % 2 == 1);
        if (failure == NULL && (trii_float_env_get() & TRII_FLOAT_ENV_MODES) !=
                                   (unlike_others(env->rank) & TRII_FLOAT_ENV_MODES))
            failure = RANK_FAIL(env, "rank %d: its ways are changed", env->rank);
    }
    trii_float_env_set(before);
    tri_group_unref(g);
    return failure;
}

static void check_sums(tri_redop op, float factor)
{
    static const char *const engines[] = {"shm", "tcp", "hierarchy"};
    const void *src[RANKS];
    sums s = {.op = op, .factor = factor, .dtype = TRI_DTYPE_F32};
    float *scaled[RANKS];

    for (int r = 0; r <= RANKS; r++) {
        s.want[r] = malloc(LARGE * sizeof(float));
        fill(s.want[r], LARGE, r);
    }
    for (int r = 0; r < RANKS; r++) {
        src[r] = scaled[r] = malloc(LARGE * sizeof(float));
        for (size_t i = 0; i < LARGE; i++)
            scaled[r][i] = s.want[r][i] * factor;
    }
    reduce_scalar(src, RANKS, s.want[RANKS], LARGE, TRI_DTYPE_F32,
                  factor == 1.0f ? op : TRI_REDOP_SUM);
    setenv("TRI_HOSTS", "0,0,1", 1);
    for (int e = 0; e < 3; e++) {
        tri_group_options options = {.engine = engines[e], .timeout_ms = 20000};

        run_threads(RANKS, &options, sum_in_own_ways, &s);
    }
    for (int r = 0; r <= RANKS; r++)
        free(s.want[r]);
    for (int r = 0; r < RANKS; r++)
        free(scaled[r]);
    assert_int_equal(trii_alloc_live(), 0);
}

static void sums_do_not_depend_on_the_ranks_ways_of_rounding(void **state)
{
    (void)state;
    check_sums(TRI_REDOP_SUM, 1.0f);
}

static void averages_and_products_do_not_either(void **state)
{
    (void)state;
    check_sums(TRI_REDOP_AVG, 1.0f);
    check_sums(TRI_REDOP_PRODUCT, 1.0f);
}

static void weighted_sums_do_not_either(void **state)
{
    (void)state;
    check_sums(TRII_REDOP_PREMUL_SUM, 0.3f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sums_do_not_depend_on_the_ranks_ways_of_rounding),
    cmocka_unit_test(averages_and_products_do_not_either),
    cmocka_unit_test(weighted_sums_do_not_either),
};

TEST_MAIN(tests)
