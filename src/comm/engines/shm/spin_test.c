/*
 * spin_test.c - how long a rank looks before it sleeps, where ranks outnumber cores: learnt from
 * how long its core was away, here told without a clock.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "comm/engines/shm/shm_group.h"
#include "comm/engines/shm/spin.h"
#include "comm/group/group_internal.h"

enum { MAX_NS = 50000, QUICK_NS = 2000, QUANTUM_NS = 4000000 };

/* Waits that sleep at once until one looks again. */
static int sleeps_before_a_look(shm_spin *spin)
{
    int n = 0;

    while (shm_spin_budget(spin) == 0)
        n++;
    return n;
}

static void looks_that_pay_go_on(void **state)
{
    shm_spin spin;

    (void)state;
    shm_spin_init(&spin, MAX_NS / 1000);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(shm_spin_budget(&spin), MAX_NS);
        assert_false(shm_spin_lost_core(&spin, QUICK_NS));
        shm_spin_learn(&spin, true);
    }
    assert_int_equal(spin.n_yields, 100);
}

static void looks_in_vain_become_shorter_and_longer_again(void **state)
{
    shm_spin spin;

    (void)state;
    shm_spin_init(&spin, MAX_NS / 1000);
    for (int i = 0; i < 100; i++)
        shm_spin_learn(&spin, false);
    assert_in_range(shm_spin_budget(&spin), 1, MAX_NS / 4);
    for (int i = 0; i < 100; i++)
        shm_spin_learn(&spin, true);
    assert_in_range(shm_spin_budget(&spin), MAX_NS, MAX_NS * 9 / 8);
}

static void waits_sleep_after_the_core_was_lost(void **state)
{
    shm_spin spin;
    int before = 0, n = 0;

    (void)state;
    shm_spin_init(&spin, MAX_NS / 1000);
    for (int i = 0; i < 20; i++) { /* each look loses it again: ever fewer looks, but some */
        assert_true(shm_spin_lost_core(&spin, QUANTUM_NS));
        n = sleeps_before_a_look(&spin);
        assert_true(n > 0 && n >= before);
        before = n;
    }
    assert_in_range(n, 1000, 10000);
    for (int i = 0; i < n; i++) /* they pay again */
        shm_spin_learn(&spin, true);
    assert_true(shm_spin_lost_core(&spin, QUANTUM_NS));
    assert_in_range(sleeps_before_a_look(&spin), 1, 100);
}

static void without_time_to_look_each_wait_sleeps(void **state)
{
    shm_spin spin;

    (void)state;
    shm_spin_init(&spin, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(shm_spin_budget(&spin), 0);
    assert_int_equal(spin.n_yields, 0);
}

enum { LOSSES = 10, ROUNDS = 50 };
static const tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

/* Waits often, as where ranks outnumber cores, and yields its core in none of the waits. */
static const char *waits_without_a_yield(rank_env *env)
{
    bool was_lost = env->arg != NULL;
    tri_group *group = NULL;
    shm_group *g;
    float x = 1;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    g = group->self;
    trii_lock_take(&g->lock);
    g->crowded = true;
    for (int i = 0; was_lost && i < LOSSES; i++)
        shm_spin_lost_core(&g->spin, QUANTUM_NS);
    g->spin.n_yields = 0;
    trii_lock_drop(&g->lock);
    for (int i = 0; i < ROUNDS; i++) {
        RANK_TRY(env, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_AVG, NULL));
        RANK_TRY(env, tri_barrier(group, NULL));
    }
    if (g->spin.n_yields != 0)
        return RANK_FAIL(env, "rank %d yielded %d times", env->rank, (int)g->spin.n_yields);
    tri_group_unref(group);
    return NULL;
}

static void ranks_without_time_to_look_sleep(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_SPIN_US", "0", 1), 0);
    run_threads(3, &options, waits_without_a_yield, NULL);
    assert_int_equal(unsetenv("TRI_SPIN_US"), 0);
}

static void ranks_that_lost_the_core_sleep(void **state)
{
    static int lost;

    (void)state;
    run_threads(3, &options, waits_without_a_yield, &lost);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(looks_that_pay_go_on),
    cmocka_unit_test(looks_in_vain_become_shorter_and_longer_again),
    cmocka_unit_test(waits_sleep_after_the_core_was_lost),
    cmocka_unit_test(without_time_to_look_each_wait_sleeps),
    cmocka_unit_test(ranks_without_time_to_look_sleep),
    cmocka_unit_test(ranks_that_lost_the_core_sleep),
};

TEST_MAIN(tests)
