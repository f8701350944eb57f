/*
 * group_agree_test.c - ranks agree by what each of them says: a failure is everybody's, also where
 * somebody never says anything.
 */
#include "testing/check.h"
#include "testing/hooked_store.h"
#include "testing/ranks.h"

#include "base/err.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"
#include "os/thread.h"

static trii_group_args args_of(const rank_env *env, int64_t deadline_ms)
{
    return (trii_group_args){.store = env->store,
                             .rank = env->rank,
                             .size = env->size,
                             .name = "agree",
                             .deadline_ns = trii_deadline_ms(deadline_ms)};
}

static const char *all_say_where_they_are(rank_env *env)
{
    const trii_group_args args = args_of(env, 30000);
    char mine[32], *texts[RANKS_MAX] = {NULL};

    snprintf(mine, sizeof(mine), "at %d", env->rank);
    RANK_TRY(env, trii_group_gather(&args, "where", TRI_OK, mine, texts));
    for (int r = 0; r < env->size; r++) {
        char expected[32];

        snprintf(expected, sizeof(expected), "at %d", r);
        if (strcmp(texts[r], expected) != 0)
            return RANK_FAIL(env, "rank %d says %s", r, texts[r]);
        tri_store_free(texts[r]);
    }
    return NULL;
}

static void texts_come_in_the_order_of_ranks(void **state)
{
    (void)state;
    run_threads(5, NULL, all_say_where_they_are, NULL);
}

/* arg: what rank 2 wants, or NULL: the same as the others. */
static const char *all_say_what_they_want(rank_env *env)
{
    const trii_group_args args = args_of(env, 30000);
    bool odd = env->rank == 2 && env->arg != NULL;
    const trii_engine_id id = {.what = odd ? env->arg : "engine a"};
    char *texts[RANKS_MAX] = {NULL};

    if (env->arg != NULL) {
        RANK_FAILS(env, trii_group_begin(&args, &id, TRI_OK, "me", texts), TRI_ERR_INVALID_ARG,
                   "rank 0 has engine a, rank 2 has engine a and b");
        return NULL;
    }
    RANK_TRY(env, trii_group_begin(&args, &id, TRI_OK, "me|not you", texts));
    for (int r = 0; r < env->size; r++) {
        if (strcmp(texts[r], "me|not you") != 0)
            return RANK_FAIL(env, "rank %d says %s", r, texts[r]);
        tri_store_free(texts[r]);
    }
    return NULL;
}

static void a_rank_that_differs_is_named_on_all_ranks(void **state)
{
    static char other[] = "engine a and b";

    (void)state;
    run_threads(4, NULL, all_say_what_they_want, NULL);
    run_threads(4, NULL, all_say_what_they_want, other);
}

/* Rank 1 fails; rank 2 comes (arg NULL) or does not. */
static const char *one_fails(rank_env *env)
{
    const char *const said[] = {"step/1"};
    char *texts[RANKS_MAX] = {NULL};
    trii_group_args args;
    tri_status mine = TRI_OK;

    if (env->rank == 2 && env->arg != NULL)
        return NULL;
    if (env->rank == 0)
        RANK_TRY(env, tri_store_wait(env->store, said, 1, 30000));
    args = args_of(env, env->arg == NULL ? 30000 : 300);
    if (env->rank == 1)
        mine = TRII_FAIL(TRI_ERR_NO_MEMORY, "no room for it");
    RANK_FAILS(env, trii_group_gather(&args, "step", mine, "well", texts), TRI_ERR_NO_MEMORY,
               "rank 1: no room for it");
    if (env->arg != NULL && env->rank == 0 &&
        strstr(tri_last_error(), "s for rank 2 to join") == NULL)
        return RANK_FAIL(env, "%s", tri_last_error());
    return NULL;
}

static void a_failure_of_one_is_everybodys(void **state)
{
    (void)state;
    run_threads(3, NULL, one_fails, NULL);
}

static void a_failure_comes_before_who_is_missing(void **state)
{
    static int gone;

    (void)state;
    run_threads(3, NULL, one_fails, &gone);
}

static const char *one_is_missing(rank_env *env)
{
    const trii_group_args args = args_of(env, 300);

    if (env->rank == 0)
        RANK_FAILS(env, trii_group_agree(&args, "step", TRI_OK), TRI_ERR_TIMEOUT,
                   "s for rank 1 to join");
    return NULL;
}

static void missing_ranks_are_named(void **state)
{
    (void)state;
    run_threads(2, NULL, one_is_missing, NULL);
}

static tri_status before_nothing(void *arg, const char *key)
{
    (void)arg;
    (void)key;
    return TRI_OK;
}

static tri_status reads_only_what_is_there(tri_store *self, const char *key, const void *expected,
                                           size_t expected_bytes, const void *desired,
                                           size_t desired_bytes, void **value_out,
                                           size_t *bytes_out)
{
    bool there = false;
    tri_status status = tri_store_check(hooked_under(self), &key, 1, &there);

    if (status == TRI_OK && !there)
        return TRII_FAIL(TRI_ERR_IO, "%s would end waits", key);
    return hooked_compare_set(self, key, expected, expected_bytes, desired, desired_bytes,
                              value_out, bytes_out);
}

/* With PyTorch's server a rank that looked for a report would end the waits of others for it. */
static void missing_ranks_are_named_without_a_word_to_others(void **state)
{
    trii_group_args args = {.size = 4, .rank = 1, .name = "agree"};
    trii_store_ops ops;
    hooked_store view;
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    hooked_store_init(&view, store, before_nothing, NULL);
    ops = *view.base.ops;
    ops.compare_set = reads_only_what_is_there;
    view.base.ops = &ops;
    args.store = &view.base;
    args.deadline_ns = trii_deadline_ms(50);
    CHECK_OK(tri_store_set(store, "step/3", "0 ", 2));
    CHECK_FAILS(trii_group_agree(&args, "step", TRI_OK), TRI_ERR_TIMEOUT, "s for ranks 0, 2 to");
    args.deadline_ns = trii_deadline_ms(50);
    CHECK_OK(tri_store_set(store, "end/2", "-5 odd", 6));
    CHECK_FAILS(trii_group_gather(&args, "end", TRI_OK, "", NULL), TRI_ERR_IO, "rank 2: odd");
    tri_store_unref(store);
}

enum { MANY = 40 }; /* more than wait for each other's keys */

typedef struct one_of_many {
    tri_store *store;
    int rank;
    tri_status status[2];
    char why[512];
    trii_thread thread;
} one_of_many;

static void do_a_step(one_of_many *m, tri_store *store)
{
    const trii_group_args args = {.store = store,
                                  .rank = m->rank,
                                  .size = MANY,
                                  .name = "many",
                                  .deadline_ns = trii_deadline_ms(30000)};

    m->status[0] = trii_group_agree(&args, "step", TRI_OK);
    snprintf(m->why, sizeof(m->why), "%s", tri_last_error());
}

/* All can do the first step, rank 7 not the second one. */
static void do_two_steps(void *arg)
{
    one_of_many *m = arg;
    const trii_group_args args = {.store = m->store,
                                  .rank = m->rank,
                                  .size = MANY,
                                  .name = "many",
                                  .deadline_ns = trii_deadline_ms(30000)};
    tri_status mine;

    m->status[0] = trii_group_agree(&args, "first", TRI_OK);
    mine = m->rank == 7 ? TRII_FAIL(TRI_ERR_UNSUPPORTED, "it cannot") : TRI_OK;
    m->status[1] = trii_group_agree(&args, "second", mine);
    snprintf(m->why, sizeof(m->why), "%s", tri_last_error());
}

static void many_hear_of_a_failure(void **state)
{
    one_of_many many[MANY];
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    for (int r = 0; r < MANY; r++) {
        many[r] = (one_of_many){.store = store, .rank = r};
        CHECK_OK(trii_thread_start(&many[r].thread, "rank", do_two_steps, &many[r]));
    }
    for (int r = 0; r < MANY; r++) {
        trii_thread_join(&many[r].thread);
        if (many[r].status[0] != TRI_OK || many[r].status[1] != TRI_ERR_UNSUPPORTED ||
            strcmp(many[r].why, "rank 7: it cannot") != 0)
            fail_msg("rank %d: %s, %s: %s", r, tri_status_name(many[r].status[0]),
                     tri_status_name(many[r].status[1]), many[r].why);
    }
    tri_store_unref(store);
}

static tri_status has_no_room(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    (void)self;
    (void)delta;
    (void)sum_out;
    return TRII_FAIL(TRI_ERR_NO_MEMORY, "no room for %s", key);
}

/* It has done its part, but cannot be counted. */
static void do_a_step_without_room(void *arg)
{
    one_of_many *m = arg;
    trii_store_ops ops;
    hooked_store poor;

    hooked_store_init(&poor, m->store, before_nothing, NULL);
    ops = *poor.base.ops;
    ops.add = has_no_room;
    poor.base.ops = &ops;
    do_a_step(m, &poor.base);
}

static void do_a_step_with_room(void *arg)
{
    one_of_many *m = arg;

    do_a_step(m, m->store);
}

static void many_hear_of_one_that_cannot_be_counted(void **state)
{
    one_of_many many[MANY];
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    for (int r = 0; r < MANY; r++) {
        many[r] = (one_of_many){.store = store, .rank = r};
        CHECK_OK(trii_thread_start(&many[r].thread, "rank",
                                   r == 7 ? do_a_step_without_room : do_a_step_with_room,
                                   &many[r]));
    }
    for (int r = 0; r < MANY; r++)
        trii_thread_join(&many[r].thread);
    for (int r = 0; r < MANY; r++) {
        if (many[r].status[0] != TRI_ERR_NO_MEMORY ||
            strstr(many[r].why, "rank 7: no room for step/said") == NULL)
            fail_msg("rank %d: %s: %s", r, tri_status_name(many[r].status[0]), many[r].why);
    }
    tri_store_unref(store);
}

static bool has_ended(void *arg)
{
    static const char *const keys[] = {"ended"};
    const rank_env *env = arg;
    bool there = false;

    return tri_store_check(env->store, keys, 1, &there) == TRI_OK && there;
}

/* Rank 2 refuses and ends. Rank 1 has seen nothing of that when rank 0 sees the end. */
static const char *one_refuses_and_ends(rank_env *env)
{
    const char *const ended[] = {"ended"}, *const heard[] = {"heard"};
    const trii_engine_id id = {.what = "engine a"};
    trii_group_args args = args_of(env, 30000);
    char *texts[RANKS_MAX] = {NULL};

    args.is_over = has_ended;
    args.is_over_arg = env;
    if (env->rank == 1)
        RANK_TRY(env, tri_store_wait(env->store, heard, 1, 30000));
    if (env->rank == 2) {
        RANK_TRY(env, trii_agree_refuse(&args, TRI_ERR_FORMAT, "odd"));
        RANK_TRY(env, tri_store_set(env->store, ended[0], "", 0));
        return NULL;
    }
    RANK_FAILS(env, trii_group_begin(&args, &id, TRI_OK, "", texts), TRI_ERR_FORMAT, "rank 2: odd");
    RANK_TRY(env, tri_store_set(env->store, heard[0], "", 0));
    return NULL;
}

static void a_rank_that_refused_and_ended_is_the_cause(void **state)
{
    (void)state;
    run_threads(3, NULL, one_refuses_and_ends, NULL);
}

/* The failure of the lowest rank, unless that gave up because of another. */
static const char *two_fail(rank_env *env)
{
    const trii_group_args args = args_of(env, 30000);
    tri_status mine = TRI_OK;

    RANK_TRY(env, trii_group_agree(&args, "well", TRI_OK));
    if (env->rank == 0)
        mine = TRII_FAIL(TRI_ERR_ABORTED, "another gave up");
    if (env->rank >= 2)
        mine = TRII_FAIL(TRI_ERR_IO, "odd");
    RANK_FAILS(env, trii_group_agree(&args, "ill", mine), TRI_ERR_IO, "rank 2: odd");
    return NULL;
}

static void all_hear_of_the_same_failure(void **state)
{
    (void)state;
    run_threads(4, NULL, two_fail, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(texts_come_in_the_order_of_ranks),
    cmocka_unit_test(a_rank_that_differs_is_named_on_all_ranks),
    cmocka_unit_test(a_failure_of_one_is_everybodys),
    cmocka_unit_test(a_failure_comes_before_who_is_missing),
    cmocka_unit_test(missing_ranks_are_named),
    cmocka_unit_test(missing_ranks_are_named_without_a_word_to_others),
    cmocka_unit_test(many_hear_of_a_failure),
    cmocka_unit_test(many_hear_of_one_that_cannot_be_counted),
    cmocka_unit_test(a_rank_that_refused_and_ended_is_the_cause),
    cmocka_unit_test(all_hear_of_the_same_failure),
};

TEST_MAIN(tests)
