/*
 * given_up_test.c - a rank that gives up a call has its buffers back at once and writes to them; a
 * peer that is just reading them must not take what it got for a result.
 */
#include "os/clock.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/scratch.h"

enum { N = 1 << 20, TRIALS = TEST_SANITIZED ? 15 : 60, VALUE = 7 };

static uint64_t draws = 1; /* of rank 1's thread */

/* Moments from before the peer reads until after it has. */
static void wait_a_moment(void)
{
    int64_t until = trii_now_ns() + scratch_random(&draws) % 3000 * 1000;

    while (trii_now_ns() < until)
        ;
}

static const char *give_up(rank_env *env, tri_group *group, float *src, float *dst)
{
    tri_work *work = NULL;
    tri_status st;

    RANK_TRY(env, tri_all_gather(group, src, dst, N, TRI_DTYPE_F32, &work));
    wait_a_moment();
    tri_group_abort(group, "changed its mind");
    st = tri_work_wait(work, 0);
    for (int i = 0; st != TRI_OK && i < N; i++)
        src[i] = -1; /* it is ours again */
    tri_work_destroy(work);
    return NULL;
}

static const char *read_on(rank_env *env, tri_group *group, float *src, float *dst)
{
    tri_status st = tri_all_gather(group, src, dst, N, TRI_DTYPE_F32, NULL);

    for (int i = 0; st == TRI_OK && i < 2 * N; i++) {
        if (dst[i] != VALUE)
            return RANK_FAIL(env, "element %d became %g, and the call succeeded", i,
                             (double)dst[i]);
    }
    if (st != TRI_OK && st != TRI_ERR_ABORTED)
        return RANK_FAIL(env, "%s: %s", tri_status_name(st), tri_last_error());
    return NULL;
}

static const char *gather_often(rank_env *env)
{
    const bool *arena = env->arg;
    float *dst = malloc(2 * N * sizeof(*dst)), *heap = malloc(N * sizeof(*heap));
    const char *failure = NULL;

    for (int trial = 0; trial < TRIALS && failure == NULL; trial++) {
        tri_group *group = NULL;
        float *src = heap;

        RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
        if (*arena)
            src = tri_group_alloc(group, N * sizeof(*src));
        if (src == NULL || dst == NULL)
            return RANK_FAIL(env, "%s", tri_last_error());
        for (int i = 0; i < N; i++)
            src[i] = VALUE;
        RANK_TRY(env, tri_barrier(group, NULL));
        failure = env->rank == 1 ? give_up(env, group, src, dst) : read_on(env, group, src, dst);
        if (*arena)
            tri_group_free(group, src);
        tri_group_unref(group);
    }
    free(dst);
    free(heap);
    return failure;
}

static void nobody_takes_what_was_given_up_for_a_result(void **state)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

    (void)state;
    for (int i = 0; i < 2; i++) {
        bool arena = i == 0;

        run_processes(2, &options, gather_often, &arena, NULL, 30);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nobody_takes_what_was_given_up_for_a_result),
};

TEST_MAIN(tests)
