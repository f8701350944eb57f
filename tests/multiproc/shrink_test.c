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

/* Nobody died: the group is given up, and one rank comes after the others have decided: rank 0
 * does, who waits for rank 2 and then for nobody. */
static const char *one_is_late(rank_env *env)
{
    const tri_group_shrink_options hurry = {.grace_ms = 100}, patience = {.grace_ms = 0};
    const char *key = "decided", *alive = "tri_group/1/shrink/1/alive/2";
    tri_group *g = NULL, *next = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1)); /* who shrinks ends the others' calls */
    if (env->rank == 1) {
        RANK_TRY(env, tri_store_wait(env->store, &key, 1, 15000));
        RANK_FAILS(env, tri_group_shrink(g, &hurry, &next), TRI_ERR_PEER_LOST, "too late");
    } else {
        if (env->rank == 0)
            RANK_TRY(env, tri_store_wait(env->store, &alive, 1, 15000));
        RANK_TRY(env, tri_group_shrink(g, env->rank == 0 ? &hurry : &patience, &next));
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

/* Rank 2 dies, rank 1 notices it only after a long computation: it belongs to those that are
 * left. */
static const char *one_is_slow(rank_env *env)
{
    tri_group *g = NULL, *next = NULL;
    int64_t end_ns;
    float x = 1;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank == 2)
        raise(SIGKILL);
    end_ns = trii_deadline_ms(env->rank == 1 ? 2500 : 0);
    while (trii_now_ns() < end_ns)
        ;
    RANK_FAILS(env, tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
               TRI_ERR_PEER_LOST, "rank 2");
    RANK_TRY(env, tri_group_shrink(g, NULL, &next));
    if (tri_group_size(next) != 2)
        return RANK_FAIL(env, "rank %d: %d are left", env->rank, tri_group_size(next));
    RANK_TRY(env, tri_barrier(next, NULL));
    tri_group_unref(next);
    tri_group_unref(g);
    return NULL;
}

/* Patience is long, so that only what is known of the dead makes it fast. */
static const tri_group_options patient[] = {{.engine = "shm", .timeout_ms = 60000},
                                            {.engine = "tcp", .timeout_ms = 60000},
                                            {.engine = "hierarchy", .timeout_ms = 60000}};

static void a_rank_that_computes_is_not_left_behind(void **state)
{
    rank_end ends[3] = {{0}, {0}, {.signal = SIGKILL}};

    (void)state;
    setenv("TRI_HOSTS", "0,0,1", 1);
    run_processes(3, &patient[0], one_is_slow, NULL, ends, 20);
    run_processes(3, &patient[1], one_is_slow, NULL, ends, 20);
}

/* Ranks 1, 3 and 5 of six die at one moment; 0, 2 and 4 go on. */
static const char *three_die(rank_env *env)
{
    tri_group *g = NULL, *next = NULL;
    tri_status st;
    float x = 1;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank % 2 != 0)
        raise(SIGKILL);
    st = tri_all_reduce(g, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (st != TRI_ERR_PEER_LOST)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    RANK_TRY(env, tri_group_shrink(g, NULL, &next));
    if (tri_group_size(next) != 3 || tri_group_world_rank(next, 1) != 2 ||
        strcmp(tri_group_engine(next), strcmp(env->options->engine, "shm") == 0 ? "shm" : "tcp") !=
            0)
        return RANK_FAIL(env, "rank %d: %d are left", env->rank, tri_group_size(next));
    RANK_TRY(env, tri_barrier(next, NULL));
    tri_group_unref(next);
    tri_group_unref(g);
    return NULL;
}

static void several_deaths_at_once_cost_no_patience(void **state)
{
    rank_end ends[6] = {{0}, {.signal = SIGKILL}, {0}, {.signal = SIGKILL},
                        {0}, {.signal = SIGKILL}};

    (void)state;
    setenv("TRI_HOSTS", "0,0,0,1,1,1", 1);
    for (int e = 0; e < 3; e++)
        run_processes(6, &patient[e], three_die, NULL, ends, 20);
}

/* Rank 2 comes too, and dies when the group that is to be has been decided: what rank 1 has found
 * in the store. */
static const char *one_dies_while_it_forms(rank_env *env)
{
    static const char *const members[] = {"tri_group/1/shrink/1/members"};
    tri_group *g = NULL, *next = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank == 2) {
        RANK_TRY(env, tri_store_set(env->store, "tri_group/1/shrink/1/alive/2", "", 0));
        RANK_TRY(env, tri_store_wait(env->store, members, 1, 15000));
        raise(SIGKILL);
    }
    RANK_TRY(env, tri_group_shrink(g, NULL, &next));
    if (tri_group_size(next) != 2)
        return RANK_FAIL(env, "rank %d: %d are left", env->rank, tri_group_size(next));
    RANK_TRY(env, tri_barrier(next, NULL));
    tri_group_unref(next);
    tri_group_unref(g);
    return NULL;
}

static void a_death_while_the_group_forms_ends_that_soon(void **state)
{
    rank_end ends[3] = {{0}, {0}, {.signal = SIGKILL}};

    (void)state;
    run_processes(3, &patient[0], one_dies_while_it_forms, NULL, ends, 20);
    run_processes(3, &patient[1], one_dies_while_it_forms, NULL, ends, 20);
}

/* The first call of rank 1 fails by itself; the others wait for its second. */
static const char *one_calls_twice(rank_env *env)
{
    const char *const failed[] = {"rank 1 failed"};
    tri_group *g = NULL, *next = NULL, *again = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank == 1) {
        trii_alloc_fail_at(1);
        RANK_FAILS(env, tri_group_shrink(g, NULL, &next), TRI_ERR_NO_MEMORY, "");
        trii_alloc_fail_at(0);
        RANK_TRY(env, tri_store_set(env->store, failed[0], "", 0));
    } else {
        RANK_TRY(env, tri_store_wait(env->store, failed, 1, 15000));
    }
    RANK_TRY(env, tri_group_shrink(g, NULL, &next));
    if (tri_group_size(next) != 3)
        return RANK_FAIL(env, "rank %d: %d are left", env->rank, tri_group_size(next));
    RANK_TRY(env, tri_barrier(next, NULL));
    RANK_FAILS(env, tri_group_shrink(g, NULL, &again), TRI_ERR_STATE, "shrunk already");
    RANK_TRY(env, ranks_meet(env, "asked", -1));
    tri_group_unref(next);
    tri_group_unref(g);
    return NULL;
}

static void a_rank_whose_first_call_failed_is_waited_for(void **state)
{
    (void)state;
    run_processes(3, &patient[0], one_calls_twice, NULL, NULL, 20);
}

static const char *too_few_are_left(rank_env *env)
{
    const tri_group_shrink_options most = {.min_size = env->size / 2 + 1};
    tri_group *g = NULL, *next = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    RANK_TRY(env, ranks_meet(env, "through", -1));
    if (env->rank >= 2)
        raise(SIGKILL);
    RANK_FAILS(env, tri_group_shrink(g, &most, &next), TRI_ERR_PEER_LOST, "fewer than min_size");
    tri_group_unref(g);
    return NULL;
}

static void a_minority_does_not_go_on(void **state)
{
    rank_end ends[4] = {{0}, {0}, {.signal = SIGKILL}, {.signal = SIGKILL}};

    (void)state;
    run_processes(4, &patient[0], too_few_are_left, NULL, ends, 20);
    run_processes(4, &patient[1], too_few_are_left, NULL, ends, 20);
}

static const char *deadline_changes(rank_env *env)
{
    const char *key = "over";
    tri_group *g = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    RANK_TRY(env, tri_barrier(g, NULL));
    if (env->rank == 0) {
        tri_group_set_timeout(g, 80);
        RANK_FAILS(env, tri_barrier(g, NULL), TRI_ERR_GROUP_TIMEOUT, "rank 1");
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
    cmocka_unit_test(a_rank_that_computes_is_not_left_behind),
    cmocka_unit_test(several_deaths_at_once_cost_no_patience),
    cmocka_unit_test(a_death_while_the_group_forms_ends_that_soon),
    cmocka_unit_test(a_rank_whose_first_call_failed_is_waited_for),
    cmocka_unit_test(a_minority_does_not_go_on),
    cmocka_unit_test(the_deadline_of_calls_can_be_changed),
};

TEST_MAIN(tests)
