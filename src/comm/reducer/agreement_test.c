/* agreement_test.c - what ranks hear of each other when they compare, and of one that cannot. */
#include "comm/reducer/agreement.h"

#include <stdio.h>

#include "base/err.h"
#include "testing/check.h"
#include "testing/ranks.h"

typedef struct what {
    const rank_env *env;
    int odd, failing; /* ranks; -1: none */
} what;

static tri_status hash(void *ctx, int64_t index, uint64_t *hash_out)
{
    const what *w = ctx;

    if (index == 2 && w->env->rank == w->failing)
        return TRII_FAIL(TRI_ERR_IO, "the disk is gone");
    *hash_out = (uint64_t)index + (index == 3 && w->env->rank == w->odd ? 100 : 0);
    return TRI_OK;
}

static void describe(void *ctx, int64_t index, char line[TRII_AGREE_LINE])
{
    const what *w = ctx;

    snprintf(line, TRII_AGREE_LINE, "entry %d of rank %d", (int)index, w->env->rank);
}

static const char *compare(rank_env *env)
{
    tri_group *group;
    what w = {.env = env};
    const trii_agreement a = {.n = 4, .ctx = &w, .hash = hash, .describe = describe};
    trii_agreement agreement = a;
    trii_difference found;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    agreement.group = group;
    for (int k = -1; k < env->size; k++) { /* all are alike; then one differs from rank 0 */
        int wanted = k == 0 && env->size > 1 ? 1 : k > 0 ? k : 0;

        w.odd = k;
        w.failing = -1;
        RANK_TRY(env, trii_agree(&agreement, &found));
        if (found.rank != wanted)
            return RANK_FAIL(env, "found rank %d, not %d", found.rank, wanted);
    }
    for (int k = 0; k < env->size; k++) { /* one fails */
        char line[64];

        w.odd = -1;
        w.failing = k;
        snprintf(line, sizeof(line), k == env->rank ? "the disk is gone" : "rank %d failed", k);
        RANK_FAILS(env, trii_agree(&agreement, &found), TRI_ERR_IO, line);
    }
    w.failing = -1; /* which is no failure of the group */
    RANK_TRY(env, trii_agree(&agreement, &found));
    tri_group_unref(group);
    return NULL;
}

static void ranks_hear_who_differs_and_who_failed(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++)
        run_threads(size, NULL, compare, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_hear_who_differs_and_who_failed),
};

TEST_MAIN(tests)
