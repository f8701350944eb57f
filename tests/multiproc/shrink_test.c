/*
 * shrink_test.c - ranks die, and those that are left go on as a smaller group: real processes, on
 * each engine.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "base/alloc.h"
#include "os/clock.h"

enum { RANKS = 5 };

static const int dying[] = {3, 1}; /* in this order */

/* Sums until the group fails; then the others go on, until nobody dies any more. */
static const char *some_die(rank_env *env)
{
    tri_group *g = NULL;
    int n_dead = env->arg != NULL ? 2 : 1;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int life = 0; life <= n_dead; life++) {
        tri_group *next = NULL;
        tri_status st = TRI_OK;
        int64_t x = 0, sum = 0, begun;

        for (int r = 0; r < tri_group_size(g); r++)
            sum += tri_group_world_rank(g, r);
        for (int i = 0; i < 30 && st == TRI_OK; i++) {
            if (life < n_dead && env->rank == dying[life] && i == 10)
                raise(SIGKILL);
            x = tri_group_world_rank(g, tri_group_rank(g));
            st = tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_I64, TRI_REDOP_SUM, NULL);
            if (st == TRI_OK && x != sum)
                return RANK_FAIL(env, "rank %d: %lld instead of %lld", env->rank, (long long)x,
                                 (long long)sum);
        }
        if (life == n_dead && (st != TRI_OK || tri_group_size(g) != RANKS - n_dead))
            return RANK_FAIL(env, "rank %d of the last %d: %s", env->rank, tri_group_size(g),
                             tri_last_error());
        if (life == n_dead)
            break;
        if (st == TRI_OK)
            return RANK_FAIL(env, "rank %d noticed no death", env->rank);
        begun = trii_now_ns();
        RANK_TRY(env, tri_group_shrink(g, NULL, &next));
        printf("rank %d: %d are left after %.1f ms\n", env->rank, tri_group_size(next),
               (double)(trii_now_ns() - begun) / 1e6);
        if (strcmp(tri_group_engine(next), env->options->engine) != 0)
            return RANK_FAIL(env, "engine %s", tri_group_engine(next));
        tri_group_unref(g);
        g = next;
    }
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void shrink(const char *engine, bool two)
{
    tri_group_options options = {.engine = engine, .timeout_ms = 15000};
    rank_end ends[RANKS] = {{0, 0}};
    int flag = 0;

    ends[dying[0]].signal = SIGKILL;
    if (two)
        ends[dying[1]].signal = SIGKILL;
    run_processes(RANKS, &options, some_die, two ? &flag : NULL, ends, 20);
}

static void shm_goes_on_without_the_dead(void **state)
{
    (void)state;
    shrink("shm", true);
}

static void tcp_goes_on_without_the_dead(void **state)
{
    (void)state;
    shrink("tcp", true);
}

/* Nobody died: the group is given up, and one rank comes after the others have decided. */
static const char *one_is_late(rank_env *env)
{
    const char *key = "decided";
    tri_group *g = NULL, *next = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1)); /* who shrinks ends the others' calls */
    if (env->rank == 1) {
        RANK_TRY(env, tri_store_wait(env->store, &key, 1, 15000));
        RANK_FAILS(env, tri_group_shrink(g, NULL, &next), TRI_ERR_PEER_LOST, "too late");
    } else {
        RANK_TRY(env, tri_group_shrink(g, NULL, &next));
        RANK_TRY(env, tri_store_set(env->store, key, "", 0));
        if (tri_group_size(next) != 2 || tri_group_world_rank(next, 1) != 2)
            return RANK_FAIL(env, "%d are left", tri_group_size(next));
        RANK_TRY(env, tri_barrier(next, NULL));
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_ABORTED, "shrinks");
    }
    tri_group_unref(next);
    tri_group_unref(g);
    return NULL;
}

static void a_rank_that_is_late_is_told(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 15000};

    (void)state;
    run_threads(3, &options, one_is_late, NULL);
    options.engine = "tcp";
    run_threads(3, &options, one_is_late, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *deadline_changes(rank_env *env)
{
    const char *key = "over";
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (env->rank == 0) {
        tri_group_set_timeout(g, 80);
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_TIMEOUT, "rank 1");
        RANK_TRY(env, tri_store_set(env->store, key, "", 0));
    } else {
        RANK_TRY(env, tri_store_wait(env->store, &key, 1, 15000));
    }
    tri_group_unref(g);
    return NULL;
}

static void the_deadline_of_calls_can_be_changed(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 15000};

    (void)state;
    run_threads(2, &options, deadline_changes, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shm_goes_on_without_the_dead),
    cmocka_unit_test(tcp_goes_on_without_the_dead),
    cmocka_unit_test(a_rank_that_is_late_is_told),
    cmocka_unit_test(the_deadline_of_calls_can_be_changed),
};

TEST_MAIN(tests)
