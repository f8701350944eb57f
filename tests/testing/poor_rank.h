/*
 * poor_rank.h - ranks of which one has no memory: each allocation that it makes at one place of
 * what they do together fails in turn. All ranks fail then or none does, and none by its deadline.
 * Tests only.
 */
#ifndef TEST_POOR_RANK_H
#define TEST_POOR_RANK_H

#include "base/alloc.h"
#include "os/clock.h"
#include "testing/ranks.h"

typedef struct poor_work {
    tri_status (*run)(rank_env *env, tri_group *group);
    /* What `run` has made, when all ranks have said how it went: one that leaves a group before
     * would tell the others by that. NULL = nothing. */
    void (*clean)(void);
    bool alone; /* what fails may be this rank's alone, as the others hear when it leaves */
} poor_work;

/* The allocation that fails, 0 = none; how many there were at most, of the rank that has been
 * there. */
static long poor_at, poor_calls, poor_from;
static bool poor_now;

/* here: whether this is the rank and the place. */
static inline void poor_begin(bool here)
{
    if (!here)
        return;
    poor_now = true;
    poor_from = trii_alloc_calls();
    trii_alloc_fail_at(poor_at);
}

static inline void poor_end(void)
{
    trii_alloc_fail_at(0);
    if (poor_now && trii_alloc_calls() - poor_from > poor_calls)
        poor_calls = trii_alloc_calls() - poor_from;
    poor_now = false;
}

static inline void poor_clean(const poor_work *work, tri_group *group)
{
    if (work->clean != NULL)
        work->clean();
    tri_group_unref(group);
}

static inline const char *poor_once(rank_env *env, const poor_work *work)
{
    char key[32], line[512];
    tri_store *view = NULL;
    tri_group *group = NULL;
    tri_status status;
    int64_t n_failed = 0, begun = trii_now_ns();

    snprintf(key, sizeof(key), "poor/%ld", poor_at);
    RANK_TRY(env, tri_store_prefix(key, env->store, &view));
    RANK_TRY(env, tri_group_create(view, env->rank, env->size, env->options, &group));
    status = work->run(env, group);
    poor_end();
    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (work->alone)
        poor_clean(work, group);
    else if ((trii_now_ns() - begun) / 1000000 >= env->options->timeout_ms)
        return RANK_FAIL(env, "rank %d, allocation %ld: it waited for its deadline: %s", env->rank,
                         poor_at, line);
    if (status == TRI_ERR_GROUP_TIMEOUT || status == TRI_ERR_TIMEOUT ||
        (poor_at == 0 && status < 0))
        return RANK_FAIL(env, "rank %d, allocation %ld: %s", env->rank, poor_at, line);
    RANK_TRY(env, tri_store_add(view, "failed", status != TRI_OK, &n_failed));
    snprintf(key, sizeof(key), "n%ld", poor_at);
    RANK_TRY(env, ranks_meet(env, key, -1));
    RANK_TRY(env, tri_store_add(view, "failed", 0, &n_failed));
    if (!work->alone && n_failed != 0 && n_failed != env->size)
        return RANK_FAIL(env, "rank %d, allocation %ld: %d failed, here %s: %s", env->rank, poor_at,
                         (int)n_failed, tri_status_name(status), line);
    if (!work->alone)
        poor_clean(work, group);
    tri_store_unref(view);
    return NULL;
}

/* Of processes: what fails is counted in each of them. */
static inline const char *poor_each(rank_env *env, const poor_work *work)
{
    const char *failure;
    int64_t most = 0;

    poor_at = poor_calls = 0;
    failure = poor_once(env, work);
    if (failure != NULL)
        return failure;
    RANK_TRY(env, tri_store_add(env->store, "most", poor_calls, &most));
    RANK_TRY(env, ranks_meet(env, "most", -1));
    RANK_TRY(env, tri_store_add(env->store, "most", 0, &most));
    if (most == 0)
        return RANK_FAIL(env, "nothing was allocated");
    for (poor_at = 1; poor_at <= most && failure == NULL; poor_at++)
        failure = poor_once(env, work);
    return failure;
}

#endif
