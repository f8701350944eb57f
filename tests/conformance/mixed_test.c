/*
 * mixed_test.c - groups whose calls go to several engines, by rules that the user gives: what every
 * engine promises holds for all of them together.
 */
#include "conformance/calls.h"

#include <stdlib.h>

#include "base/alloc.h"

static const size_t counts[] = {0, 1, 23, 4099, SIZE_MAX};
static const tri_dtype few_dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16, TRI_DTYPE_NONE};

static void conform(const char *engine, const char *hosts, int size)
{
    script what = {.counts = counts, .dtypes = few_dtypes};
    tri_group_options options = {.engine = engine, .timeout_ms = 40000};

    if (hosts != NULL)
        setenv("TRI_HOSTS", hosts, 1);
    run_threads(size, &options, run_script, &what);
    assert_int_equal(trii_alloc_live(), 0);
}

static void sizes_go_to_different_engines(void **state)
{
    (void)state;
    conform("shm,>=64:tcp", NULL, 3);
    conform("tcp,all_reduce>=4K:shm,all_gather<4K:shm,broadcast:shm", NULL, 4);
}

static void messages_go_to_another_engine(void **state)
{
    (void)state;
    conform("shm,send:tcp", NULL, 3);
    conform("tcp,send:shm", NULL, 3);
}

static void rules_stand_beside_the_layout_of_hosts(void **state)
{
    (void)state;
    conform("auto,all_reduce<4K:tcp,reduce_scatter:tcp", "a,a,b,a,b", 5);
}

/* By the environment, for a group of one name only. */
static const char *groups_differ(rank_env *env)
{
    tri_group_options options = *env->options;
    static const char *const names[] = {"big", "small"}, *const engines[] = {"mixed", "shm"};

    for (int i = 0; i < 2; i++) {
        tri_group *g = NULL, *half = NULL;
        float x = 1.0f;

        options.name = names[i];
        RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &options, &g));
        if (strcmp(tri_group_engine(g), engines[i]) != 0)
            return RANK_FAIL(env, "group %s has engine %s", names[i], tri_group_engine(g));
        RANK_TRY(env, tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        if (x != (float)env->size)
            return RANK_FAIL(env, "sum %g", (double)x);
        RANK_TRY(env, tri_group_split(g, env->rank % 2, 0, NULL, &half));
        if (strcmp(tri_group_engine(half), i == 0 ? "tcp" : "shm") != 0)
            return RANK_FAIL(env, "half of %s has engine %s", names[i], tri_group_engine(half));
        tri_group_unref(half);
        tri_group_unref(g);
    }
    return NULL;
}

static void the_environment_names_groups(void **state)
{
    tri_group_options options = {.timeout_ms = 20000};

    (void)state;
    setenv("TRI_ENGINE", "shm,big@all_reduce:tcp,big/*@tcp", 1);
    run_threads(4, &options, groups_differ, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* What the ranks say differs, or names what is not there: all hear of it. */
static const char *cannot_form(rank_env *env)
{
    tri_group_options options = *env->options;
    tri_group *g = NULL;

    options.engine = env->rank == 1 ? "shm,all_reduce:tcp" : "shm,broadcast:tcp";
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &options, &g),
               TRI_ERR_INVALID_ARG,
               "rank 0 says \"shm,broadcast:tcp\", rank 1 says \"shm,all_reduce:tcp\"");
    options.engine = "shm,all_reduce:nothing";
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &options, &g),
               TRI_ERR_UNSUPPORTED, "engine nothing");
    options.engine = "shm,all_reduce:auto";
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &options, &g),
               TRI_ERR_INVALID_ARG, "cannot mean auto");
    options.engine = "shm,all_reduce>=1Q:tcp";
    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &options, &g),
               TRI_ERR_INVALID_ARG, "\"all_reduce>=1Q:tcp\"");
    return NULL;
}

static void what_cannot_be_is_told_to_all(void **state)
{
    tri_group_options options = {.timeout_ms = 20000};

    (void)state;
    run_threads(3, &options, cannot_form, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* A rank that dies ends the calls of every engine. */
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

static void a_dead_rank_ends_the_calls_of_all_engines(void **state)
{
    tri_group_options options = {.engine = "shm,all_reduce>=1K:tcp,send:tcp", .timeout_ms = 20000};
    rank_end ends[3] = {{0, 0}, {0, 0}, {0, SIGKILL}};

    (void)state;
    run_processes(3, &options, one_dies, NULL, ends, 15);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_go_to_different_engines),
    cmocka_unit_test(messages_go_to_another_engine),
    cmocka_unit_test(rules_stand_beside_the_layout_of_hosts),
    cmocka_unit_test(the_environment_names_groups),
    cmocka_unit_test(what_cannot_be_is_told_to_all),
    cmocka_unit_test(a_dead_rank_ends_the_calls_of_all_engines),
};

TEST_MAIN(tests)
