/*
 * group_memory_test.c - memory of a group: what cannot be had is refused and harms nobody, and what
 * is freed goes back.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/alloc.h"

#define MIB ((size_t)1 << 20)

/* What a rank does after a refusal: all that it could before. */
static const char *goes_on(rank_env *env, tri_group *g)
{
    float *x = tri_group_alloc(g, 3 * MIB);

    if (x == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    x[0] = 1;
    RANK_TRY(env, tri_all_reduce(g, x, x, 700000, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    if (x[0] != (float)env->size)
        return RANK_FAIL(env, "rank %d: the sum is %g", env->rank, (double)x[0]);
    tri_group_free(g, x);
    return NULL;
}

static const char *asks_for_too_much(rank_env *env)
{
    static const size_t too_much[] = {(size_t)1 << 45, (size_t)1 << 42, (size_t)1 << 62};
    tri_group *g = NULL;
    const char *failure = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < 3 && failure == NULL; i++) {
        if (tri_group_alloc(g, too_much[i]) != NULL)
            return RANK_FAIL(env, "rank %d got %zu bytes", env->rank, too_much[i]);
        if (strstr(tri_last_error(), "MiB") == NULL)
            return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
        failure = goes_on(env, g);
    }
    tri_group_unref(g);
    return failure;
}

static void more_than_there_is_is_refused(void **state)
{
    static const char *const engines[] = {"shm", "tcp", "hierarchy"};

    (void)state;
    setenv("TRI_HOSTS", "a,a,b", 1);
    for (int i = 0; i < 3; i++) {
        tri_group_options options = {.engine = engines[i], .timeout_ms = 20000};

        run_threads(i == 2 ? 3 : 2, &options, asks_for_too_much, NULL);
        assert_int_equal(trii_alloc_live(), 0);
    }
}

/* Address space in use, and a little for what malloc may want (a sanitizer's asks for more than it
 * is asked for). */
static rlim_t used_and_a_little(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (f == NULL || fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    if (f != NULL)
        fclose(f);
    return (rlim_t)pages * 4096 + MIB;
}

/* One rank has no address space for it: none gets it, all hear whose it was, and it may be had when
 * that is over. */
static const char *one_cannot(rank_env *env)
{
    struct rlimit before, none;
    tri_group *g = NULL;
    const char *failure;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    getrlimit(RLIMIT_AS, &before);
    none = (struct rlimit){.rlim_cur = used_and_a_little(), .rlim_max = before.rlim_max};
    if (env->rank == 1)
        setrlimit(RLIMIT_AS, &none);
    if (tri_group_alloc(g, 3 * MIB) != NULL)
        return RANK_FAIL(env, "rank %d got it", env->rank);
    setrlimit(RLIMIT_AS, &before);
    if (strstr(tri_last_error(), "rank 1: ") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    failure = goes_on(env, g);
    tri_group_unref(g);
    return failure;
}

static void what_one_rank_cannot_have_none_gets(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

    (void)state;
    run_processes(3, &options, one_cannot, NULL, NULL, 30);
}

/* Pages of a range that take memory. */
static size_t pages_of(void *p, size_t bytes)
{
    static unsigned char there[65536];
    size_t n = 0;

    assert(bytes / 4096 <= sizeof(there));
    if (mincore(p, bytes, there) != 0)
        return SIZE_MAX;
    for (size_t i = 0; i < bytes / 4096; i++)
        n += there[i] & 1;
    return n;
}

static const char *takes_and_frees(rank_env *env)
{
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int i = 0; i < 3; i++) {
        size_t bytes = (size_t)(8 + 8 * i) * MIB, n;
        unsigned char *p = tri_group_alloc(g, bytes);

        if (p == NULL)
            return RANK_FAIL(env, "%s", tri_last_error());
        for (size_t k = 0; k < bytes; k += 4096) {
            if (p[k] != 0)
                return RANK_FAIL(env, "byte %zu is %d", k, p[k]);
        }
        memset(p, 7, bytes);
        n = pages_of(p, bytes);
        if (n != bytes / 4096)
            return RANK_FAIL(env, "only %zu pages were taken", n);
        RANK_TRY(env, tri_barrier(g, NULL));
        tri_group_free(g, p);
        n = pages_of(p, bytes);
        if (n != 0)
            return RANK_FAIL(env, "%zu pages of %zu MiB stay after the free", n, bytes / MIB);
    }
    tri_group_unref(g);
    return NULL;
}

static void what_is_freed_goes_back(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

    (void)state;
    run_processes(2, &options, takes_and_frees, NULL, NULL, 30);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(more_than_there_is_is_refused),
    cmocka_unit_test(what_one_rank_cannot_have_none_gets),
    cmocka_unit_test(what_is_freed_goes_back),
};

TEST_MAIN(tests)
