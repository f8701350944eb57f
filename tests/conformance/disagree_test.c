/*
 * disagree_test.c - calls that cannot work: wrong arguments are refused by name, and ranks that
 * disagree about a call learn both sides.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include <stdlib.h>

#include "base/alloc.h"

/* With pretended hosts: rank 2 disagrees with a rank of its host, or of another. */
static const struct {
    const char *engine, *hosts;
} engines[] = {{"shm", NULL}, {"tcp", NULL}, {"hierarchy", "a,b,b"}, {"hierarchy", "a,a,b"}};

/* One way to disagree; odd is another rank's side of it. */
static tri_status disagree(tri_group *g, int what, bool odd, int rank, tri_work **work)
{
    static float x[2][64];
    const size_t even_counts[3] = {4, 5, 6}, odd_counts[3] = {4, 6, 5};
    const size_t to_all[3] = {2, 2, 2}, more[3] = {2, 3, 2};
    float *src = x[0], *dst = calloc(64, sizeof(*dst));
    tri_status st;

    switch (what) {
    case 0:
        st = tri_reduce(g, src, dst, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, odd, work);
        break;
    case 1:
        st = odd ? tri_gather(g, src, dst, 4, TRI_DTYPE_F32, 0, work)
                 : tri_reduce(g, src, dst, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, 0, work);
        break;
    case 2:
        st = tri_scatter(g, src, dst, odd ? 5 : 4, TRI_DTYPE_F32, 0, work);
        break;
    case 3:
        st = tri_all_gather_v(g, src, dst, odd ? odd_counts : even_counts, TRI_DTYPE_F32, work);
        break;
    case 4:
        st = tri_reduce_scatter_v(g, src, dst, odd ? odd_counts : even_counts, TRI_DTYPE_F32,
                                  TRI_REDOP_SUM, work);
        break;
    case 5:
        st = tri_all_to_all_v(g, src, odd ? more : to_all, dst, to_all, TRI_DTYPE_F32, work);
        if (odd && rank == 1) /* to itself it must agree */
            st = st == TRI_ERR_INVALID_ARG ? TRI_ERR_MISMATCH : st;
        break;
    case 6:
        st = odd ? tri_all_to_all(g, src, dst, 2, TRI_DTYPE_F32, work)
                 : tri_all_to_all_v(g, src, to_all, dst, to_all, TRI_DTYPE_F32, work);
        break;
    default:
        st = tri_all_reduce(g, src, dst, 4, TRI_DTYPE_F32,
                            odd ? tri_redop_premul_sum(0.5f) : TRI_REDOP_SUM, work);
        break;
    }
    free(dst);
    return st;
}

/* A rank that only sends may be done before it is heard; then the next call tells. */
static const char *sides(rank_env *env)
{
    int what = *(const int *)env->arg;
    tri_group *g = NULL;
    tri_status st;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    st = disagree(g, what, env->rank == 2, env->rank, NULL);
    for (int i = 0; i < 3 && st == TRI_OK; i++)
        st = tri_barrier(g, NULL);
    if (st != TRI_ERR_MISMATCH)
        return RANK_FAIL(env, "rank %d, case %d: %s: %s", env->rank, what, tri_status_name(st),
                         tri_last_error());
    if (strstr(tri_last_error(), "rank 2") == NULL ||
        strstr(tri_last_error(), "disagree_test.c") == NULL)
        return RANK_FAIL(env, "rank %d, case %d: %s", env->rank, what, tri_last_error());
    tri_group_unref(g);
    return NULL;
}

static void ranks_that_disagree_about_any_call_are_named(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof(engines) / sizeof(engines[0]); e++) {
        tri_group_options options = {.engine = engines[e].engine, .timeout_ms = 20000};

        if (engines[e].hosts != NULL)
            setenv("TRI_HOSTS", engines[e].hosts, 1);
        for (int what = 0; what <= 7; what++)
            run_threads(3, &options, sides, &what);
        unsetenv("TRI_HOSTS");
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *wrong_arguments(rank_env *env)
{
    float x[16] = {0}, y[16] = {0};
    const size_t counts[2] = {3, 4}, huge[2] = {SIZE_MAX, 2};
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_FAILS(env, tri_reduce(g, x, y, 2, TRI_DTYPE_F32, TRI_REDOP_SUM, 2, NULL),
               TRI_ERR_INVALID_ARG, "root 2");
    RANK_FAILS(env, tri_gather(g, x, y, 2, TRI_DTYPE_F32, -1, NULL), TRI_ERR_INVALID_ARG,
               "root -1");
    RANK_FAILS(env, tri_scatter(g, NULL, x, 2, TRI_DTYPE_F32, env->rank, NULL), TRI_ERR_INVALID_ARG,
               "src is NULL");
    RANK_FAILS(env, tri_gather(g, x, NULL, 2, TRI_DTYPE_F32, env->rank, NULL), TRI_ERR_INVALID_ARG,
               "dst is NULL");
    RANK_FAILS(env, tri_all_to_all(g, x, x, 2, TRI_DTYPE_F32, NULL), TRI_ERR_INVALID_ARG,
               "in place");
    RANK_FAILS(env, tri_all_gather_v(g, x, y, NULL, TRI_DTYPE_F32, NULL), TRI_ERR_INVALID_ARG,
               "counts is NULL");
    RANK_FAILS(env, tri_all_gather_v(g, x, y, huge, TRI_DTYPE_F32, NULL), TRI_ERR_INVALID_ARG,
               "counts add up");
    RANK_FAILS(env, tri_all_gather_v(g, y + 1, y, counts, TRI_DTYPE_F32, NULL), TRI_ERR_INVALID_ARG,
               "overlap");
    RANK_FAILS(env, tri_all_to_all_v(g, x, counts, x + 1, counts, TRI_DTYPE_F32, NULL),
               TRI_ERR_INVALID_ARG, "in place");
    RANK_FAILS(env, tri_all_reduce(g, x, y, 2, TRI_DTYPE_F32, tri_redop_premul_sum(-1.0f), NULL),
               TRI_ERR_INVALID_ARG, "reduction");
    RANK_FAILS(env, tri_all_reduce(g, x, y, 2, TRI_DTYPE_F32, TRI_REDOP_PREMUL_SUM, NULL),
               TRI_ERR_INVALID_ARG, "tri_redop_premul_sum");
    RANK_FAILS(env, tri_all_reduce(g, x, y, 2, TRI_DTYPE_I32, tri_redop_premul_sum(0.5f), NULL),
               TRI_ERR_INVALID_ARG, "premul_sum of i32");
    RANK_FAILS(env, tri_recv_any(g, NULL, 2, TRI_DTYPE_I32, 0, NULL, NULL), TRI_ERR_INVALID_ARG,
               "dst is NULL");
    RANK_TRY(env, tri_barrier(g, NULL)); /* none of it harmed the group */
    tri_group_unref(g);
    return NULL;
}

static void wrong_arguments_are_named(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

    (void)state;
    run_threads(2, &options, wrong_arguments, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_that_disagree_about_any_call_are_named),
    cmocka_unit_test(wrong_arguments_are_named),
};

TEST_MAIN(tests)
