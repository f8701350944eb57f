/*
 * shm_torture_test.c - engine shm when memory runs out, at every point where it can.
 * ctest: labels=full timeout=180
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "base/alloc.h"

/* One use of a group; the statuses of both ranks go into arg. */
static const char *use_once(rank_env *env)
{
    tri_status *statuses = env->arg;
    tri_group *group = NULL;
    tri_work *work = NULL;
    float x[2000] = {1.0f}, *arena;
    tri_status st;

    st = tri_group_create(env->store, env->rank, env->size, env->options, &group);
    if (st == TRI_OK)
        st = tri_all_reduce(group, x, x, 2000, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (st == TRI_OK)
        st = tri_all_reduce(group, x, x, 2000, TRI_DTYPE_F32, TRI_REDOP_SUM, &work);
    if (st == TRI_OK)
        st = tri_work_wait(work, 0);
    tri_work_destroy(work);
    if (st == TRI_OK) {
        arena = tri_group_alloc(group, 5000);
        st = arena != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
        tri_group_free(group, arena);
    }
    statuses[env->rank] = st;
    tri_group_unref(group);
    return NULL;
}

/* The n-th allocation of the process fails, whichever rank makes it: both ranks come back, soon,
 * one of them with NO_MEMORY unless a second try helped, and nothing stays. */
static void every_allocation_may_fail(void **state)
{
    tri_group_options options = {.engine = "shm", .timeout_ms = 20000};
    tri_status statuses[2];
    long n = 0, made;
    int failures = 0;

    (void)state;
    do {
        tri_store *store = NULL;
        rank_env envs[2] = {{.rank = 0}, {.rank = 1}};
        trii_thread thread;

        made = trii_alloc_calls();
        CHECK_OK(tri_store_hash(&store));
        statuses[0] = statuses[1] = TRI_ERR_NO_MEMORY;
        for (int r = 0; r < 2; r++) {
            envs[r].size = 2;
            envs[r].store = store;
            envs[r].options = &options;
            envs[r].arg = statuses;
            envs[r].main = use_once;
        }
        trii_alloc_fail_at(++n);
        if (trii_thread_start(&thread, "rank 1", rank_thread, &envs[1]) == TRI_OK) {
            rank_thread(&envs[0]);
            trii_thread_join(&thread);
        }
        trii_alloc_fail_at(0);
        made = trii_alloc_calls() - made;
        tri_store_unref(store);
        assert_int_equal(trii_alloc_live(), 0);
        if (statuses[0] != TRI_OK || statuses[1] != TRI_OK) {
            failures++;
            assert_true(statuses[0] == TRI_ERR_NO_MEMORY || statuses[1] == TRI_ERR_NO_MEMORY);
            for (int r = 0; r < 2; r++) /* it was told, and waited for no deadline */
                assert_true(statuses[r] != TRI_ERR_TIMEOUT && statuses[r] != TRI_ERR_GROUP_TIMEOUT);
        }
    } while (n <= made);
    assert_true(statuses[0] == TRI_OK && statuses[1] == TRI_OK); /* none was left to fail */
    assert_true(failures > 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_allocation_may_fail),
};

TEST_MAIN(tests)
