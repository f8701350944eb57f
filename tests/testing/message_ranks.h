/*
 * message_ranks.h - what the tests of messages begin with: the ranks of one group as threads, on an
 * engine and on hosts that are pretended, and nothing left in memory afterwards.
 */
#ifndef TRII_TESTING_MESSAGE_RANKS_H
#define TRII_TESTING_MESSAGE_RANKS_H

#include <stdlib.h>

#include "base/alloc.h"
#include "testing/check.h"
#include "testing/ranks.h"

/* hosts as in TRI_HOSTS; NULL: all on this one. */
static inline void run_ranks(const char *engine, const char *hosts, int size, int64_t timeout_ms,
                             const char *(*main)(rank_env *env))
{
    tri_group_options options = {.engine = engine, .timeout_ms = timeout_ms};

    if (hosts != NULL)
        setenv("TRI_HOSTS", hosts, 1);
    run_threads(size, &options, main, NULL);
    unsetenv("TRI_HOSTS");
    assert_int_equal(trii_alloc_live(), 0);
}

static inline const char *join(rank_env *env, tri_group **group_out)
{
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, group_out));
    return NULL;
}

#endif
