/*
 * complex_test.c - complex numbers in calls of groups: pairs of what they are made of, on every
 * engine, with the bits of the same call of twice as many of those.
 */
#include "conformance/calls.h"

#include <complex.h>
#include <stdlib.h>

#include "base/alloc.h"

#define COUNT 1201

/* The ranks' calls: once as complex numbers, once as their parts. */
typedef struct buffers {
    char *src, *dst, *expected;
} buffers;

static size_t part_of(int rank)
{
    return (size_t)(7 * rank % 5) * 100 + 1;
}

static tri_status post(tri_group *g, int what, const char *src, char *dst, tri_dtype dtype,
                       size_t width, float factor)
{
    int size = tri_group_size(g), rank = tri_group_rank(g);
    size_t n = COUNT * width, counts[RANKS_MAX], mine[RANKS_MAX];

    for (int r = 0; r < size; r++) {
        counts[r] = part_of(r) * width;
        mine[r] = part_of(rank) * width;
    }
    switch (what) {
    case 0:
        return tri_all_reduce(g, src, dst, n, dtype, TRI_REDOP_SUM, NULL);
    case 1:
        return tri_all_reduce(g, src, dst, n, dtype, TRI_REDOP_AVG, NULL);
    case 2:
        return tri_all_reduce_premul_sum(g, src, dst, n, dtype, factor, NULL);
    case 3:
        return tri_reduce_scatter(g, src, dst, n / width / (size_t)size * width, dtype,
                                  TRI_REDOP_SUM, NULL);
    case 4:
        return tri_all_gather(g, src, dst, n / width / (size_t)size * width, dtype, NULL);
    case 5:
        return tri_broadcast(g, dst, n, dtype, size - 1, NULL);
    case 6:
        return tri_all_gather_v(g, src, dst, counts, dtype, NULL);
    case 7:
        return tri_reduce_scatter_v(g, src, dst, counts, dtype, TRI_REDOP_AVG, NULL);
    case 8: /* from rank r what belongs to it, to rank r what belongs to us */
        return tri_all_to_all_v(g, src, mine, dst, counts, dtype, NULL);
    default:
        return tri_reduce(g, src, dst, n, dtype, TRI_REDOP_SUM, 0, NULL);
    }
}

static const char *both_ways(rank_env *env)
{
    static const tri_dtype complexes[] = {TRI_DTYPE_C64, TRI_DTYPE_C128};
    static const tri_dtype reals[] = {TRI_DTYPE_F32, TRI_DTYPE_F64};
    size_t most = sizeof(double _Complex) * COUNT * RANKS_MAX;
    buffers b = {malloc(most), malloc(most), malloc(most)};
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < 2; i++) {
        for (int what = 0; what <= 9; what++) {
            fill(b.src, most / tri_dtype_size(reals[i]), reals[i], (unsigned)what, env->rank);
            memcpy(b.dst, b.src, most);
            memcpy(b.expected, b.src, most);
            RANK_TRY(env, post(g, what, b.src, b.expected, reals[i], 2, factor_of(env->rank)));
            RANK_TRY(env, post(g, what, b.src, b.dst, complexes[i], 1, factor_of(env->rank)));
            if (first_difference(b.dst, b.expected, most / tri_dtype_size(reals[i]), reals[i]) <
                most / tri_dtype_size(reals[i]))
                return RANK_FAIL(env, "rank %d: call %d of %s", env->rank, what,
                                 tri_dtype_name(complexes[i]));
        }
    }
    tri_group_unref(g);
    free(b.src);
    free(b.dst);
    free(b.expected);
    return NULL;
}

static const struct {
    const char *engine, *hosts;
} engines[] = {{"shm", NULL}, {"tcp", NULL}, {"hierarchy", "a,b,b,a,b"}};

static void on_all(const char *(*main)(rank_env *env), int size)
{
    for (size_t e = 0; e < TRII_COUNT_OF(engines); e++) {
        tri_group_options options = {.engine = engines[e].engine, .timeout_ms = 40000};

        if (engines[e].hosts != NULL)
            setenv("TRI_HOSTS", engines[e].hosts, 1);
        run_threads(size, &options, main, NULL);
        assert_int_equal(trii_alloc_live(), 0);
    }
}

static void complex_numbers_are_pairs(void **state)
{
    (void)state;
    on_all(both_ways, 5);
}

/* As C has them. */
static const char *numbers(rank_env *env)
{
    float complex z = (float)(env->rank + 1) + 0.5f * (float)env->rank * I, sum = 0;
    double complex w = 1.0 - 2.0 * env->rank * I, got = 0;
    int next = (env->rank + 1) % env->size, before = (env->rank + env->size - 1) % env->size;
    tri_work *work = NULL;
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_all_reduce(g, &z, &sum, 1, TRI_DTYPE_C64, TRI_REDOP_SUM, NULL));
    if (crealf(sum) != 6.0f || cimagf(sum) != 1.5f)
        return RANK_FAIL(env, "sum %g, %g", (double)crealf(sum), (double)cimagf(sum));
    RANK_TRY(env, tri_all_reduce(g, &z, &sum, 1, TRI_DTYPE_C64, TRI_REDOP_AVG, NULL));
    if (crealf(sum) != 2.0f || cimagf(sum) != 0.5f)
        return RANK_FAIL(env, "mean %g, %g", (double)crealf(sum), (double)cimagf(sum));
    RANK_TRY(env, tri_send(g, &w, 1, TRI_DTYPE_C128, next, 0, &work));
    RANK_TRY(env, tri_recv(g, &got, 1, TRI_DTYPE_C128, before, 0, NULL));
    RANK_TRY(env, tri_work_wait(work, 0));
    tri_work_destroy(work);
    if (creal(got) != 1.0 || cimag(got) != -2.0 * before)
        return RANK_FAIL(env, "message %g, %g", creal(got), cimag(got));
    tri_group_unref(g);
    return NULL;
}

static void complex_numbers_are_those_of_c(void **state)
{
    (void)state;
    on_all(numbers, 3);
}

static const char *refused(rank_env *env)
{
    static const tri_redop ops[] = {TRI_REDOP_PRODUCT, TRI_REDOP_MIN, TRI_REDOP_MAX,
                                    TRI_REDOP_BAND,    TRI_REDOP_BOR, TRI_REDOP_BXOR};
    double x[8] = {0}, y[8] = {0};
    const size_t counts[2] = {1, 1}, huge[2] = {SIZE_MAX / 2 + 1, 1};
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (size_t i = 0; i < TRII_COUNT_OF(ops); i++) {
        char says[80];

        snprintf(says, sizeof(says), "%s of c128: complex numbers have sum, avg and premul_sum",
                 tri_redop_name(ops[i]));
        RANK_FAILS(env, tri_all_reduce(g, x, y, 1, TRI_DTYPE_C128, ops[i], NULL),
                   TRI_ERR_INVALID_ARG, says);
        RANK_FAILS(env, tri_reduce_scatter_v(g, x, y, counts, TRI_DTYPE_C128, ops[i], NULL),
                   TRI_ERR_INVALID_ARG, says);
    }
    RANK_FAILS(env, tri_all_reduce(g, x, y, SIZE_MAX / 2 + 1, TRI_DTYPE_C64, TRI_REDOP_SUM, NULL),
               TRI_ERR_INVALID_ARG, "more than memory can hold");
    RANK_FAILS(env, tri_all_gather_v(g, x, y, huge, TRI_DTYPE_C64, NULL), TRI_ERR_INVALID_ARG,
               "more than memory can hold");
    RANK_TRY(env, tri_barrier(g, NULL)); /* none of it harmed the group */
    tri_group_unref(g);
    return NULL;
}

static void complex_numbers_have_no_product_and_no_order(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

    (void)state;
    run_threads(2, &options, refused, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(complex_numbers_are_pairs),
    cmocka_unit_test(complex_numbers_are_those_of_c),
    cmocka_unit_test(complex_numbers_have_no_product_and_no_order),
};

TEST_MAIN(tests)
