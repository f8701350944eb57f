/*
 * incarnation_test.c - one rank that joins several times at one store: one after the other, and two
 * processes at once.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "group/join/incarnation.h"

static const trii_launch_env rank_0 = {.size = 2, .host = "here", .port = 1};

/* Joins at the store's next turn; which it is, negative = the one it had. */
static int take(tri_store *store)
{
    tri_store *view = NULL, *expected = NULL;
    bool again = false, there = false;
    const char *keys[] = {"x"};
    int turn = 0;

    CHECK_OK(trii_incarnation_take(store, &rank_0, &view, &again));
    CHECK_OK(tri_store_set(view, "x", "", 0));
    for (int t = 1; t < 5 && !there; t++) {
        char prefix[16];

        snprintf(prefix, sizeof(prefix), "turn/%d", t);
        CHECK_OK(tri_store_prefix(prefix, store, &expected));
        CHECK_OK(tri_store_check(expected, keys, 1, &there));
        CHECK_OK(tri_store_delete(expected, "x", NULL));
        tri_store_unref(expected);
        turn = t;
    }
    assert_true(there);
    tri_store_unref(view);
    return again ? -turn : turn;
}

static void a_turn_lasts_until_the_ranks_have_met(void **state)
{
    tri_store *store = NULL, *view = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    assert_int_equal(take(store), 1);
    assert_int_equal(take(store), -1); /* in vain, so far */
    CHECK_OK(tri_store_prefix("turn/1", store, &view));
    CHECK_OK(trii_incarnation_joined(view, 0));
    assert_int_equal(take(store), 2); /* without a word at the end */
    tri_store_unref(view);
    CHECK_OK(tri_store_prefix("turn/2", store, &view));
    CHECK_OK(trii_incarnation_joined(view, 0));
    CHECK_OK(trii_incarnation_left(view, 0));
    tri_store_unref(view);
    assert_int_equal(take(store), 3);
    assert_int_equal(take(store), -3);
    tri_store_unref(store);
}

enum { ROUNDS = 100 };

/* All are rank 0, as if it were started twice, and all live: one of them gets the turn. */
static const char *take_at_once(rank_env *env)
{
    for (int i = 0; i < ROUNDS; i++) {
        tri_store *at = NULL, *view = NULL;
        char name[8];
        bool again = false;
        int64_t taken = 0;
        tri_status status;

        snprintf(name, sizeof(name), "%d", i);
        RANK_TRY(env, tri_store_prefix(name, env->store, &at));
        RANK_TRY(env, ranks_meet(env, name, -1));
        status = trii_incarnation_take(at, &rank_0, &view, &again);
        if (status != TRI_OK)
            RANK_FAILS(env, status, TRI_ERR_STATE, "rank 0 has already joined (process ");
        RANK_TRY(env, tri_store_add(at, "taken", status == TRI_OK, &taken));
        snprintf(name, sizeof(name), "%d end", i);
        RANK_TRY(env, ranks_meet(env, name, -1));
        RANK_TRY(env, tri_store_add(at, "taken", 0, &taken));
        if (taken != 1)
            return RANK_FAIL(env, "round %d: %d processes have the turn", i, (int)taken);
        tri_store_unref(view);
        tri_store_unref(at);
    }
    return NULL;
}

static void of_processes_at_once_one_has_the_turn(void **state)
{
    (void)state;
    run_processes(3, NULL, take_at_once, NULL, NULL, 60);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_turn_lasts_until_the_ranks_have_met),
    cmocka_unit_test(of_processes_at_once_one_has_the_turn),
};

TEST_MAIN(tests)
