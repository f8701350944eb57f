/*
 * group_again_test.c - groups whose making failed and is tried again, groups of lists that resemble
 * each other, and ranks that share one store object: each engine with ranks as threads.
 */
#include "testing/message_ranks.h"

enum { SHORT_MS = 50, LONG_MS = 20000 };

static tri_group_options with_timeout(const rank_env *env, int64_t timeout_ms)
{
    tri_group_options options = *env->options;

    options.timeout_ms = timeout_ms;
    return options;
}

static const char *check_ranks(rank_env *env, tri_group *g, int size)
{
    int32_t one = 1;

    RANK_TRY(env, tri_all_reduce(g, &one, &one, 1, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL));
    if (one != size)
        return RANK_FAIL(env, "rank %d: %d ranks instead of %d", env->rank, one, size);
    tri_group_unref(g);
    return NULL;
}

/* All ranks, as a group of the store, or as one of the ranks of another group. */
static tri_status make(rank_env *env, tri_group *of, const tri_group_options *opt,
                       tri_group **group_out)
{
    static const int ranks[] = {2, 1, 0};

    if (of == NULL)
        return tri_group_create(env->store, env->rank, env->size, opt, group_out);
    return tri_group_new(of, ranks, env->size, opt, group_out);
}

/* Rank 0 times out several times, then the others come; afterwards all can make more. */
static const char *meets_late_ranks(rank_env *env, tri_group *of)
{
    const tri_group_options brief = with_timeout(env, SHORT_MS), full = with_timeout(env, LONG_MS);
    const char *key = of != NULL ? "gave up, of a group" : "gave up", *failure = NULL;
    tri_group *g = NULL;

    for (int i = 0; i < 3 && env->rank == 0; i++)
        RANK_FAILS(env, make(env, of, &brief, &g), TRI_ERR_TIMEOUT, "to join");
    if (env->rank == 0)
        RANK_TRY(env, tri_store_set(env->store, key, "", 0));
    else
        RANK_TRY(env, tri_store_wait(env->store, &key, 1, LONG_MS));
    for (int i = 0; i < 2 && failure == NULL; i++) {
        RANK_TRY(env, make(env, of, &full, &g));
        failure = check_ranks(env, g, env->size);
    }
    return failure;
}

static const char *late_ranks(rank_env *env)
{
    tri_group *of = NULL;
    const char *failure = meets_late_ranks(env, NULL);

    if (failure == NULL)
        failure = join(env, &of);
    if (failure == NULL)
        failure = meets_late_ranks(env, of);
    tri_group_unref(of);
    return failure;
}

static void a_rank_that_tries_again_meets_those_that_were_late(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 3, LONG_MS, late_ranks);
    run_ranks("tcp", NULL, 3, LONG_MS, late_ranks);
    run_ranks("hierarchy", "a,b,a", 3, LONG_MS, late_ranks);
    run_ranks(NULL, NULL, 3, LONG_MS, late_ranks);
}

/* Rank 1 waits all the time, in one call, while rank 0 gives up and tries again until rank 2 comes
 * after three of its calls. */
static const char *impatient_rank(rank_env *env)
{
    const tri_group_options brief = with_timeout(env, SHORT_MS), full = with_timeout(env, LONG_MS);
    const char *key = "three times";
    tri_group *g = NULL;
    tri_status status = TRI_OK;

    if (env->rank == 2)
        RANK_TRY(env, tri_store_wait(env->store, &key, 1, LONG_MS));
    for (int i = 0; i < 3 && env->rank == 0; i++) {
        status = tri_group_create(env->store, 0, env->size, &brief, &g);
        if (status != TRI_ERR_TIMEOUT)
            return RANK_FAIL(env, "%s: %s", tri_status_name(status), tri_last_error());
    }
    if (env->rank == 0)
        RANK_TRY(env, tri_store_set(env->store, key, "", 0));
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &full, &g));
    return check_ranks(env, g, env->size);
}

static void a_rank_that_still_waits_goes_with_those_that_try_again(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 3, LONG_MS, impatient_rank);
    run_ranks("tcp", NULL, 3, LONG_MS, impatient_rank);
    run_ranks("hierarchy", "a,b,a", 3, LONG_MS, impatient_rank);
}

/* A rank whose program died in the middle of making a group, and was started again. */
static const char *a_rank_ahead(rank_env *env)
{
    const tri_group_options brief = with_timeout(env, SHORT_MS), full = with_timeout(env, LONG_MS);
    int64_t n;
    tri_group *g = NULL;

    if (env->rank == 0)
        RANK_TRY(env, tri_store_add(env->store, "tri_group/made_by/0", 1, &n));
    RANK_TRY(env, ranks_meet(env, "counted", -1));
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &brief, &g), TRI_ERR_TIMEOUT,
               "");
    RANK_TRY(env, ranks_meet(env, "failed", -1));
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &full, &g));
    return check_ranks(env, g, env->size);
}

static void ranks_that_counted_differently_meet_when_they_try_again(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 3, LONG_MS, a_rank_ahead);
    run_ranks("tcp", NULL, 3, LONG_MS, a_rank_ahead);
}

/* What a failed attempt has to say is not lost to those that come later. */
static const char *refused_rank(rank_env *env)
{
    tri_group_options options = with_timeout(env, LONG_MS);
    tri_group *g = NULL;

    if (env->rank == 0)
        options.engine = "hierarchy";
    else
        RANK_TRY(env, ranks_meet(env, "refused", -1));
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &options, &g),
               TRI_ERR_UNSUPPORTED, "hierarchy");
    if (env->rank == 0)
        RANK_TRY(env, ranks_meet(env, "refused", -1));
    options.engine = env->options->engine;
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &options, &g));
    return check_ranks(env, g, env->size);
}

static void a_late_rank_learns_why_another_one_refused(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 2, LONG_MS, refused_rank);
    run_ranks("tcp", NULL, 2, LONG_MS, refused_rank);
}

/* --- lists ---------------------------------------------------------------- */

/* Each of these began with the hash of the one before, as they were hashed once. */
static const char *similar_lists(rank_env *env)
{
    static const int lists[][4] = {{2, 1}, {3, 0, 1},    {3, 1, 2},
                                   {1, 2}, {1, 2, 3, 0}, {3, 2, 1, 0}};
    static const int sizes[] = {2, 3, 3, 2, 4, 4};
    tri_group *world = NULL;
    const char *failure = join(env, &world);

    for (int i = 0; i < (int)TRII_COUNT_OF(lists) && failure == NULL; i++) {
        tri_group *g = NULL;

        RANK_TRY(env, tri_group_new(world, lists[i], sizes[i], NULL, &g));
        if (tri_group_rank(g) >= 0)
            failure = check_ranks(env, g, sizes[i]);
    }
    tri_group_unref(world);
    return failure;
}

static void lists_that_resemble_each_other_are_different_groups(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 4, 4000, similar_lists);
    run_ranks("tcp", NULL, 4, 4000, similar_lists);
}

/* --- one store object ----------------------------------------------------- */

static const char *ranks_of_one_store(rank_env *env)
{
    tri_store *shared = env->arg;
    tri_group *g = NULL;

    for (int i = 0; i < 3; i++) {
        const char *failure;

        RANK_TRY(env, tri_group_create(shared, env->rank, env->size, env->options, &g));
        failure = check_ranks(env, g, env->size);
        if (failure != NULL)
            return failure;
    }
    return NULL;
}

static void threads_that_share_a_tcp_store_form_groups(void **state)
{
    static const char *const engines[] = {"shm", "tcp"};
    tri_group_options options = {.timeout_ms = LONG_MS};
    tri_store *store = NULL, *view = NULL;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &(tri_store_tcp_options){.serve = true}, &store));
    CHECK_OK(tri_store_prefix("p", store, &view));
    for (size_t e = 0; e < TRII_COUNT_OF(engines); e++) {
        options.engine = engines[e];
        run_threads(4, &options, ranks_of_one_store, store);
        run_threads(4, &options, ranks_of_one_store, view);
    }
    tri_store_unref(view);
    tri_store_unref(store);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_that_tries_again_meets_those_that_were_late),
    cmocka_unit_test(a_rank_that_still_waits_goes_with_those_that_try_again),
    cmocka_unit_test(ranks_that_counted_differently_meet_when_they_try_again),
    cmocka_unit_test(a_late_rank_learns_why_another_one_refused),
    cmocka_unit_test(lists_that_resemble_each_other_are_different_groups),
    cmocka_unit_test(threads_that_share_a_tcp_store_form_groups),
};

TEST_MAIN(tests)
