/*
 * batch_failure_test.c - a batch of which one call fails: the others are still waited for, since
 * their buffers are theirs until they are over. Each engine with ranks as threads.
 */
#include "testing/message_ranks.h"

enum { MANY = 1000, QUIET_MS = 150 };

#define TOO_MUCH "the message from rank 0 has 2"

static void fill(int32_t *buffer, int32_t value)
{
    for (int i = 0; i < MANY; i++)
        buffer[i] = value;
}

static bool is_filled(const int32_t *buffer, int32_t value)
{
    for (int i = 0; i < MANY; i++) {
        if (buffer[i] != value)
            return false;
    }
    return true;
}

/* A message that is too long for its receive, and, once rank 1 has said or after a while, what the
 * other receive waits for. */
static const char *send_both(rank_env *env, tri_group *g, const char *key, bool says)
{
    int32_t out[MANY];

    fill(out, 7);
    RANK_TRY(env, tri_send(g, out, 2, TRI_DTYPE_I32, 1, 1, NULL));
    if (says)
        RANK_TRY(env, tri_store_wait(env->store, &key, 1, 20000));
    else if (tri_store_wait(env->store, &key, 1, QUIET_MS) == TRI_OK)
        return RANK_FAIL(env, "the batch has ended before its second call");
    RANK_TRY(env, tri_send(g, out, MANY, TRI_DTYPE_I32, 1, 2, NULL));
    return NULL;
}

static const char *post_both(rank_env *env, tri_group *g, int32_t *one, int32_t *many)
{
    fill(many, -1);
    RANK_TRY(env, tri_group_batch_begin(g));
    RANK_TRY(env, tri_recv(g, one, 1, TRI_DTYPE_I32, 0, 1, NULL));
    RANK_TRY(env, tri_recv(g, many, MANY, TRI_DTYPE_I32, 0, 2, NULL));
    return NULL;
}

/* The message that was too long stays. */
static const char *take_what_stayed(rank_env *env, tri_group *g)
{
    int32_t two[2];

    RANK_TRY(env, tri_recv(g, two, 2, TRI_DTYPE_I32, 0, 1, NULL));
    return NULL;
}

static const char *blocking(rank_env *env, tri_group *g)
{
    int32_t one, many[MANY];
    const char *failure;

    if (env->rank != 1)
        return env->rank == 0 ? send_both(env, g, "blocking is over", false) : NULL;
    failure = post_both(env, g, &one, many);
    if (failure != NULL)
        return failure;
    RANK_FAILS(env, tri_group_batch_end(g, NULL), TRI_ERR_INVALID_ARG, TOO_MUCH);
    if (!is_filled(many, 7))
        return RANK_FAIL(env, "the second receive is not over");
    RANK_TRY(env, tri_store_set(env->store, "blocking is over", "", 0));
    return take_what_stayed(env, g);
}

/* A caller that looks or waits for a time is told that the batch is not over; one that waits twice
 * gets the failure twice. */
static const char *with_a_handle(rank_env *env, tri_group *g)
{
    int32_t one, many[MANY];
    tri_work *work = NULL;
    const char *failure;

    if (env->rank != 1)
        return env->rank == 0 ? send_both(env, g, "the first has failed", true) : NULL;
    failure = post_both(env, g, &one, many);
    if (failure != NULL)
        return failure;
    RANK_TRY(env, tri_group_batch_end(g, &work));
    while (tri_work_error(work)[0] == '\0') {
        if (tri_work_test(work) != TRI_INPROGRESS)
            return RANK_FAIL(env, "the batch is over before its second call: %s", tri_last_error());
    }
    if (tri_work_test(work) != TRI_INPROGRESS)
        return RANK_FAIL(env, "the batch is over before its second call: %s", tri_last_error());
    RANK_FAILS(env, tri_work_wait(work, 20), TRI_ERR_TIMEOUT, "still waiting after 20 ms");
    RANK_TRY(env, tri_store_set(env->store, "the first has failed", "", 0));
    for (int i = 0; i < 2; i++)
        RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_INVALID_ARG, TOO_MUCH);
    RANK_FAILS(env, tri_work_test(work), TRI_ERR_INVALID_ARG, TOO_MUCH);
    if (!is_filled(many, 7))
        return RANK_FAIL(env, "the second receive is not over");
    tri_work_destroy(work);
    return take_what_stayed(env, g);
}

static const char *fails_in_a_batch(rank_env *env)
{
    tri_group *g = NULL;
    const char *failure = join(env, &g);

    if (failure == NULL)
        failure = blocking(env, g);
    if (failure == NULL)
        failure = with_a_handle(env, g);
    if (failure != NULL)
        return failure;
    RANK_TRY(env, tri_barrier(g, NULL));
    tri_group_unref(g);
    return NULL;
}

static void shm_waits_for_the_calls_beside_one_that_failed(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 2, 40000, fails_in_a_batch);
}

static void tcp_waits_for_the_calls_beside_one_that_failed(void **state)
{
    (void)state;
    run_ranks("tcp", NULL, 2, 40000, fails_in_a_batch);
}

static void hierarchy_waits_for_the_calls_beside_one_that_failed(void **state)
{
    (void)state;
    run_ranks("hierarchy", "a,a,b", 3, 40000, fails_in_a_batch);
    run_ranks("hierarchy", "a,b,a", 3, 40000, fails_in_a_batch);
}

/* A group that fails ends all calls of a batch, also those that had waited longest. */
static const char *fails_as_a_group(rank_env *env)
{
    int32_t in[8];
    tri_group *g = NULL;
    tri_work *work = NULL;
    const char *failure = join(env, &g);

    if (failure != NULL)
        return failure;
    if (env->rank == 1) {
        RANK_TRY(env, tri_group_batch_begin(g));
        for (int i = 0; i < 8; i++)
            RANK_TRY(env, tri_recv(g, &in[i], 1, TRI_DTYPE_I32, 0, i, NULL));
        RANK_TRY(env, tri_group_batch_end(g, &work));
        RANK_TRY(env, tri_store_set(env->store, "posted", "", 0));
        for (int i = 0; i < 2; i++)
            RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_ABORTED, "recv");
        RANK_FAILS(env, tri_work_test(work), TRI_ERR_ABORTED, "recv");
        tri_work_destroy(work);
    } else {
        const char *key = "posted";

        RANK_TRY(env, tri_store_wait(env->store, &key, 1, 20000));
        tri_group_abort(g, "enough");
    }
    tri_group_unref(g);
    return NULL;
}

static void a_failed_group_ends_all_calls_of_a_batch(void **state)
{
    (void)state;
    run_ranks("shm", NULL, 2, 40000, fails_as_a_group);
    run_ranks("tcp", NULL, 2, 40000, fails_as_a_group);
    run_ranks("hierarchy", "a,a,b", 3, 40000, fails_as_a_group);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shm_waits_for_the_calls_beside_one_that_failed),
    cmocka_unit_test(tcp_waits_for_the_calls_beside_one_that_failed),
    cmocka_unit_test(hierarchy_waits_for_the_calls_beside_one_that_failed),
    cmocka_unit_test(a_failed_group_ends_all_calls_of_a_batch),
};

TEST_MAIN(tests)
