/*
 * join_test.c - ranks that join at one store: again and again, twice at once, without success, and
 * with others that are not of their world.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "comm/group/join/join.h"
#include "base/err.h"
#include "os/clock.h"

static tri_status join(tri_store *store, trii_launch_env env, int64_t timeout_ms, tri_store **view)
{
    *view = NULL;
    return trii_join(store, &env, NULL, TRI_OK, trii_deadline_ms(timeout_ms), view);
}

/* Of trirun's workers; at a store that torchrun's agent, rank 0 and nobody serves. */
static trii_launch_env trirun_env(int rank, int size)
{
    return (trii_launch_env){.rank = rank,
                             .size = size,
                             .host = "here",
                             .port = 1,
                             .agent_store = true,
                             .new_store = true};
}

static trii_launch_env env_of(int kind, int rank, int size)
{
    trii_launch_env env = trirun_env(rank, size);

    env.new_store = kind == 0;
    env.agent_store = kind <= 1;
    snprintf(env.file, sizeof(env.file), "%s", kind == 3 ? "/file" : "");
    return env;
}

enum { KINDS = 4, WORLDS = 30, ROUNDS = 20 };

static const char *join_and_leave(rank_env *env)
{
    for (int i = 0; i < WORLDS; i++) {
        tri_store *view;
        int64_t n = 0;

        RANK_TRY(env, join(env->store, env_of(i % KINDS, env->rank, env->size), 20000, &view));
        RANK_TRY(env, tri_store_add(view, "here", 1, &n));
        if (n > env->size)
            return RANK_FAIL(env, "world %d is an earlier one", i);
        tri_store_unref(view);
        if (i % 3 > 0) /* or without a word */
            RANK_TRY(env, trii_join_leave(env->store, env->rank));
    }
    return NULL;
}

static void each_world_is_a_new_one(void **state)
{
    (void)state;
    run_threads(3, NULL, join_and_leave, NULL);
}

static void processes_join_at_one_store_again_and_again(void **state)
{
    (void)state;
    run_processes(RANKS_MAX, NULL, join_and_leave, NULL, NULL, 60);
}

/* All are rank 0, as if it were started thrice, and all live: one of them has the rank. */
static const char *take_at_once(rank_env *env)
{
    for (int i = 0; i < ROUNDS; i++) {
        tri_store *at = NULL, *view;
        char name[8];
        int64_t named = 0;
        tri_status status;

        snprintf(name, sizeof(name), "%d", i);
        RANK_TRY(env, tri_store_prefix(name, env->store, &at));
        RANK_TRY(env, ranks_meet(env, name, -1));
        status = join(at, env_of(i % 2 * 2, 0, 2), 100, &view);
        if (status != TRI_ERR_TIMEOUT)
            RANK_FAILS(env, status, TRI_ERR_STATE, "rank 0 has already joined (process ");
        RANK_TRY(env, tri_store_add(at, "named", status == TRI_ERR_STATE, &named));
        snprintf(name, sizeof(name), "%d end", i);
        RANK_TRY(env, ranks_meet(env, name, -1));
        RANK_TRY(env, tri_store_add(at, "named", 0, &named));
        if (named != env->size - 1)
            return RANK_FAIL(env, "round %d: %d processes were refused", i, (int)named);
        tri_store_unref(at);
    }
    return NULL;
}

static void of_processes_at_once_one_has_the_rank(void **state)
{
    (void)state;
    run_processes(3, NULL, take_at_once, NULL, NULL, 60);
}

/* Rank 2 is at first one that has ended, and rank 0 gives up; rank 1 has joined only once. */
static const char *rank_0_tries_again(rank_env *env)
{
    static const char stale[] = "0 stale 3 process 1 on elsewhere|";
    tri_status status = TRI_ERR_TIMEOUT;
    tri_store *view;

    if (env->rank == 0) {
        RANK_TRY(env, tri_store_set(env->store, "rank/2", stale, strlen(stale)));
        for (int64_t ms = 600; status == TRI_ERR_TIMEOUT && ms < 5000; ms *= 2) {
            status = join(env->store, trirun_env(0, 3), ms, &view);
            if (strstr(tri_last_error(), " s for rank 2 to join") != NULL)
                break; /* rank 1 may come too late for the first time */
        }
        RANK_FAILS(env, status, TRI_ERR_TIMEOUT, " s for rank 2 to join");
        RANK_TRY(env, tri_store_set(env->store, "again", "", 0));
    }
    if (env->rank == 2)
        RANK_TRY(env, tri_store_wait(env->store, (const char *[]){"again"}, 1, 20000));
    RANK_TRY(env, join(env->store, trirun_env(env->rank, 3), 20000, &view));
    tri_store_unref(view);
    return NULL;
}

static void ranks_go_over_to_the_world_of_a_rank_0_that_tries_again(void **state)
{
    (void)state;
    run_threads(3, NULL, rank_0_tries_again, NULL);
}

/* Rank 1 gives up because of rank 2, before it has come, and has ended when rank 0 looks. */
static const char *one_ends_because_of_another(rank_env *env)
{
    static const char why[] = "rank 2 of 3 exited with code 5 before it joined the group";
    tri_store *view;

    RANK_TRY(env, tri_store_set(env->store, "ended/2", "exited with code 5", 18));
    RANK_TRY(env, tri_store_set(env->store, "ended", "", 0));
    RANK_FAILS(env, join(env->store, trirun_env(1, 3), 20000, &view), TRI_ERR_PEER_LOST, why);
    RANK_TRY(env, tri_store_set(env->store, "ended/1", "exited with code 3", 18));
    RANK_FAILS(env, join(env->store, trirun_env(0, 3), 20000, &view), TRI_ERR_PEER_LOST, why);
    return NULL;
}

static void one_that_gave_up_is_not_named(void **state)
{
    (void)state;
    run_threads(1, NULL, one_ends_because_of_another, NULL);
}

/* Rank 1 believes in three. */
static const char *two_of_three(rank_env *env)
{
    for (int kind = 0; kind < KINDS; kind++) {
        tri_store *at = NULL, *view;
        char name[8];

        snprintf(name, sizeof(name), "%d", kind);
        RANK_TRY(env, tri_store_prefix(name, env->store, &at));
        if (env->rank == 1)
            RANK_FAILS(env, join(at, env_of(kind, 1, 3), 20000, &view), TRI_ERR_STATE,
                       "serves another job (2 ranks), this is 3 ranks: give each job a ");
        else
            RANK_FAILS(env, join(at, env_of(kind, 0, 2), 400, &view), TRI_ERR_TIMEOUT,
                       "for rank 1 to join");
        if (env->rank == 1 && trii_join_has(at, "rank", 1))
            return RANK_FAIL(env, "the stranger keeps the rank");
        tri_store_unref(at);
    }
    return NULL;
}

static void a_rank_with_another_world_size_is_named(void **state)
{
    (void)state;
    run_threads(2, NULL, two_of_three, NULL);
}

/* Rank 0 looks for no rank 3, and such a store does not say whether rank/0 is of this world. */
static void at_the_deadline_a_rank_beyond_the_world_hears_its_size(void **state)
{
    static const char two[] = "0 name 2 process 1 on elsewhere|";

    (void)state;
    for (int kind = 1; kind <= 3; kind += 2) {
        tri_store *store = NULL, *view;

        CHECK_OK(tri_store_hash(&store));
        CHECK_OK(tri_store_set(store, "rank/0", two, strlen(two)));
        CHECK_FAILS(join(store, env_of(kind, 3, 4), 50, &view), TRI_ERR_TIMEOUT,
                    "(process 1 on elsewhere) is of 2 ranks, this one of 4");
        tri_store_unref(store);
    }
}

/* Nobody waits for it. */
static const char *one_cannot(rank_env *env)
{
    for (int odd = 0; odd < env->size; odd++) {
        const trii_launch_env mine = env_of(2, env->rank, env->size);
        tri_store *at = NULL, *view = NULL;
        char name[16];

        snprintf(name, sizeof(name), "%d", odd);
        RANK_TRY(env, tri_store_prefix(name, env->store, &at));
        snprintf(name, sizeof(name), "rank %d: odd", odd);
        if (env->rank == odd)
            RANK_FAILS(env,
                       trii_join(at, &mine, NULL, TRII_FAIL(TRI_ERR_FORMAT, "odd"),
                                 trii_deadline_ms(20000), &view),
                       TRI_ERR_FORMAT, "odd");
        else
            RANK_FAILS(env, join(at, mine, 20000, &view), TRI_ERR_FORMAT, name);
        tri_store_unref(at);
    }
    return NULL;
}

static void a_rank_that_cannot_join_is_the_failure_of_all(void **state)
{
    (void)state;
    run_threads(3, NULL, one_cannot, NULL);
}

/* A store that rank 0 serves is of this world, so that rank has been started on two hosts. */
static void a_process_of_another_host_has_the_rank(void **state)
{
    static const char other[] = "0 name 2 process 1 on elsewhere|";
    tri_store *store = NULL, *view;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK_OK(tri_store_set(store, "rank/1", other, strlen(other)));
        if (kind == 2)
            CHECK_FAILS(join(store, env_of(kind, 1, 2), 50, &view), TRI_ERR_STATE,
                        "rank 1 has already joined (process 1 on elsewhere) at the store here port "
                        "1: one rank started twice, or two jobs with one port");
        else
            CHECK_FAILS(join(store, env_of(kind, 1, 2), 50, &view), TRI_ERR_TIMEOUT,
                        " s for rank 0 to join");
    }
    tri_store_unref(store);
}

/* Two programs with one port in setup(), of which one could not serve there. */
static void a_rank_of_another_job_makes_room(void **state)
{
    static const char rank_0[] = "0 name 2 process 1 on elsewhere|ours";
    static const char stranger[] = "0 other 2 process 2 on elsewhere|theirs";
    trii_launch_env env = env_of(2, 1, 2);
    tri_store *store = NULL, *view;
    void *now = NULL;

    (void)state;
    snprintf(env.job, sizeof(env.job), "ours");
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_store_set(store, "rank/0", rank_0, strlen(rank_0)));
    CHECK_OK(tri_store_set(store, "rank/1", stranger, strlen(stranger)));
    CHECK_FAILS(join(store, env, 50, &view), TRI_ERR_TIMEOUT, "rank 0"); /* which does not live */
    CHECK_OK(tri_store_get(store, "rank/1", 0, &now, NULL));
    assert_non_null(strstr(now, "|ours"));
    tri_store_free(now);
    snprintf(env.job, sizeof(env.job), "theirs");
    CHECK_FAILS(join(store, env, 50, &view), TRI_ERR_STATE, "serves another job (ours, 2 ranks)");
    tri_store_unref(store);
}

/* Rank 1 is one that has come and gives up, then another one that has not come yet. */
static const char *rank_1_tries_again(rank_env *env)
{
    static const char once[] = "0 once 2 process 1 on elsewhere|",
                      again[] = "0 again 2 process 1 on elsewhere|";
    char come[64], go[64];
    const char *const keys[] = {go};
    void *answer = NULL;
    bool present = true;

    if (env->rank == 0) {
        tri_store *view;

        RANK_TRY(env, join(env->store, env_of(1, 0, 2), 20000, &view));
        tri_store_unref(view);
        return NULL;
    }
    RANK_TRY(env, tri_store_set(env->store, "rank/1", once, strlen(once)));
    RANK_TRY(env, tri_store_get(env->store, "world/once", 20000, &answer, NULL));
    snprintf(come, sizeof(come), "%.16s/come/1", (const char *)answer + 2);
    snprintf(go, sizeof(go), "%.16s/go/again", (const char *)answer + 2);
    tri_store_free(answer);
    RANK_TRY(env, tri_store_set(env->store, "rank/1", again, strlen(again)));
    RANK_TRY(env, tri_store_set(env->store, come, "0 once", 6));
    RANK_TRY(env, tri_store_get(env->store, "world/again", 20000, &answer, NULL));
    tri_store_free(answer);
    RANK_TRY(env, tri_store_check(env->store, keys, 1, &present));
    if (present)
        return RANK_FAIL(env, "rank 0 did not wait for it");
    RANK_TRY(env, tri_store_set(env->store, come, "0 again", 7));
    RANK_TRY(env, tri_store_wait(env->store, keys, 1, 20000));
    return NULL;
}

static void a_rank_that_tries_again_after_joining_joins_again(void **state)
{
    (void)state;
    run_threads(2, NULL, rank_1_tries_again, NULL);
}

/* --- the end of the store ------------------------------------------------- */

typedef struct newcomer {
    tri_store *server;
    tri_status status;
} newcomer;

static void newcomer_main(void *arg)
{
    newcomer *n = arg;
    trii_launch_env env = env_of(2, 1, 2);
    tri_store *client = NULL, *view = NULL;

    n->status = tri_store_tcp("127.0.0.1", tri_store_port(n->server), NULL, &client);
    if (n->status == TRI_OK)
        n->status = trii_join(client, &env, NULL, TRI_OK, trii_deadline_ms(20000), &view);
    tri_store_unref(client);
}

/* What rank 1 makes of the end of rank 0's process, which has left the world before or has not
 * written to it yet. */
static tri_status join_at_dying(bool has_left)
{
    const tri_store_tcp_options options = {.serve = true};
    const char *const come[] = {"rank/1"};
    newcomer n = {.status = TRI_OK};
    trii_thread thread;

    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &options, &n.server));
    if (has_left)
        CHECK_OK(trii_join_leave(n.server, 0));
    CHECK_OK(trii_thread_start(&thread, "rank", newcomer_main, &n));
    CHECK_OK(tri_store_wait(n.server, come, 1, 20000));
    tri_store_unref(n.server);
    trii_thread_join(&thread);
    return n.status;
}

static void a_store_that_ends_ends_the_wait_unless_its_world_was_over(void **state)
{
    (void)state;
    assert_int_equal(join_at_dying(false), TRI_ERR_IO);
    assert_int_equal(join_at_dying(true), TRI_INPROGRESS); /* the right one is to come */
}

/* What rank 0 sees of a rank's next program, which came before rank 0 had left. */
static void a_holder_has_claimed_its_rank_before_it_comes(void **state)
{
    tri_store *store, *view;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_store_prefix("w0rld", store, &view));
    assert_int_equal(trii_join_holder_of(store, view, 1), TRII_HOLDER_NONE);
    CHECK_OK(tri_store_set(view, "come/1", "0 before", 8));
    assert_int_equal(trii_join_holder_of(store, view, 1), TRII_HOLDER_NONE);
    CHECK_OK(tri_store_set(store, "rank/1", "0 next 2 process 5 on here|", 27));
    assert_int_equal(trii_join_holder_of(store, view, 1), TRII_HOLDER_CLAIMED);
    CHECK_OK(tri_store_set(view, "come/1", "0 next", 6));
    assert_int_equal(trii_join_holder_of(store, view, 1), TRII_HOLDER_CAME);
    assert_int_equal(trii_join_holder_of(store, view, 2), TRII_HOLDER_NONE);
    tri_store_unref(view);
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_holder_has_claimed_its_rank_before_it_comes),
    cmocka_unit_test(each_world_is_a_new_one),
    cmocka_unit_test(processes_join_at_one_store_again_and_again),
    cmocka_unit_test(a_rank_that_tries_again_after_joining_joins_again),
    cmocka_unit_test(of_processes_at_once_one_has_the_rank),
    cmocka_unit_test(ranks_go_over_to_the_world_of_a_rank_0_that_tries_again),
    cmocka_unit_test(one_that_gave_up_is_not_named),
    cmocka_unit_test(a_rank_with_another_world_size_is_named),
    cmocka_unit_test(at_the_deadline_a_rank_beyond_the_world_hears_its_size),
    cmocka_unit_test(a_rank_that_cannot_join_is_the_failure_of_all),
    cmocka_unit_test(a_process_of_another_host_has_the_rank),
    cmocka_unit_test(a_rank_of_another_job_makes_room),
    cmocka_unit_test(a_store_that_ends_ends_the_wait_unless_its_world_was_over),
};

TEST_MAIN(tests)
