/*
 * group_alloc_test.c - memory of a group that one rank has no room for, at any of the allocations
 * that it takes: none gets it, all hear whose fault it was, and the group goes on.
 */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "testing/check.h"
#include "testing/ranks.h"

#include "base/alloc.h"

/* All that a rank could do before, on memory of this size. */
static const char *goes_on(rank_env *env, tri_group *g, size_t bytes)
{
    float *x = tri_group_alloc(g, bytes);
    size_t n = bytes / sizeof(*x);

    if (x == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    for (size_t i = 0; i < n; i++) {
        if (x[i] != 0)
            return RANK_FAIL(env, "rank %d: element %zu is %g", env->rank, i, (double)x[i]);
        x[i] = (float)(env->rank + 1);
    }
    RANK_TRY(env, tri_all_reduce(g, x, x, n, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    for (size_t i = 0; i < n; i++) {
        if (x[i] != (float)(env->size * (env->size + 1) / 2))
            return RANK_FAIL(env, "rank %d: the sum is %g", env->rank, (double)x[i]);
    }
    tri_group_free(g, x);
    return NULL;
}

/* The n-th allocation of rank 1 fails, of a group that has no memory yet, or some that is free. */
static const char *no_room_at(rank_env *env, int n, bool before, bool *whole_out)
{
    tri_group *g = NULL;
    const char *failure = NULL;
    void *p;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (before)
        failure = goes_on(env, g, 100000);
    if (env->rank == 1)
        trii_alloc_fail_at(n);
    p = tri_group_alloc(g, 5000);
    trii_alloc_fail_at(0);
    *whole_out = p != NULL;
    if (p == NULL && strstr(tri_last_error(), "rank 1: ") == NULL)
        return RANK_FAIL(env, "rank %d, allocation %d: %s", env->rank, n, tri_last_error());
    if (failure == NULL)
        failure = goes_on(env, g, 5000);
    RANK_TRY(env, tri_group_status(g));
    tri_group_free(g, p);
    tri_group_unref(g);
    return failure;
}

static const char *fails_at_each(rank_env *env)
{
    bool whole = false;
    const char *failure = no_room_at(env, 0, false, &whole);
    long blocks = trii_alloc_live(); /* what a process has once stays */

    for (int before = 0; before < 2 && failure == NULL; before++) {
        whole = false;
        for (int n = 1; !whole && failure == NULL; n++)
            failure = no_room_at(env, n, before != 0, &whole);
    }
    if (failure != NULL)
        return failure;
    return trii_alloc_live() == blocks ? NULL : RANK_FAIL(env, "blocks are left");
}

static void check(const char *engine, const char *hosts, int size)
{
    tri_group_options options = {.engine = engine, .timeout_ms = 10000};

    setenv("TRI_HOSTS", hosts, 1);
    run_processes(size, &options, fails_at_each, NULL, NULL, 60);
}

static void ranks_of_a_host_agree(void **state)
{
    (void)state;
    check("shm", "a,a,a", 3);
}

static void hosts_agree(void **state)
{
    (void)state;
    check("hierarchy", "a,a,b,b", 4);
    check("hierarchy", "b,b,a,b", 4);
}

/* It has memory of its own, and no shared one. */
static void a_rank_that_is_alone_on_its_host_agrees(void **state)
{
    (void)state;
    check("hierarchy", "a,b,a", 3);
}

/* The rank that asks for more than any memory holds, and the one that asks for another size. */
static const char *asks_for_another_size(rank_env *env)
{
    static const size_t sizes[2] = {SIZE_MAX - 5, 64};
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (tri_group_alloc(g, sizes[0]) != NULL)
        return RANK_FAIL(env, "rank %d got it", env->rank);
    RANK_TRY(env, tri_group_status(g));
    if (tri_group_alloc(g, sizes[env->rank]) != NULL)
        return RANK_FAIL(env, "rank %d got it, the other did not", env->rank);
    RANK_FAILS(env, tri_group_status(g), TRI_ERR_MISMATCH, "the ranks disagree: rank ");
    tri_group_unref(g);
    return NULL;
}

static void another_size_is_a_mismatch_at_once(void **state)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 300000};

    (void)state;
    run_processes(2, &options, asks_for_another_size, NULL, NULL, 20);
}

/* From now on this process may have so many bytes more of address space. */
static bool limit_address_space(size_t more)
{
    struct rlimit limit;
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == NULL || fscanf(file, "%zu", &pages) != 1)
        return false;
    fclose(file);
    limit.rlim_cur = limit.rlim_max = pages * (size_t)sysconf(_SC_PAGESIZE) + more;
    return setrlimit(RLIMIT_AS, &limit) == 0;
}

/* Small pieces in 500 MB; then more than one process of the two can have. */
static const char *has_little_address_space(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = NULL;
    void *pieces[3] = {NULL};

    if (!limit_address_space((size_t)500 << 20))
        return RANK_FAIL(env, "no limit");
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < 3 && failure == NULL; i++) {
        failure = goes_on(env, g, (size_t)1 << (20 + i));
        pieces[i] = tri_group_alloc(g, (size_t)12 << 20); /* each block is twice as large */
        if (pieces[i] == NULL)
            return RANK_FAIL(env, "rank %d, piece %d: %s", env->rank, i, tri_last_error());
    }
    if (failure == NULL && tri_group_alloc(g, (size_t)400 << 20) != NULL)
        failure = RANK_FAIL(env, "rank %d got 400 MiB", env->rank);
    if (failure == NULL && strstr(tri_last_error(), "ulimit -v") == NULL)
        failure = RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    if (failure == NULL)
        failure = goes_on(env, g, 5000);
    for (int i = 0; i < 3; i++)
        tri_group_free(g, pieces[i]);
    tri_group_unref(g);
    return failure;
}

/* As batch systems set it: ulimit -v, the memory request of a job. */
static void a_limit_of_the_address_space_leaves_room_for_what_is_asked_for(void **state)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 300000};

    (void)state;
    run_processes(2, &options, has_little_address_space, NULL, NULL, 40);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_of_a_host_agree),
    cmocka_unit_test(hosts_agree),
    cmocka_unit_test(a_rank_that_is_alone_on_its_host_agrees),
    cmocka_unit_test(another_size_is_a_mismatch_at_once),
    cmocka_unit_test(a_limit_of_the_address_space_leaves_room_for_what_is_asked_for),
};

TEST_MAIN(tests)
