/*
 * reducer_ranks.h - ranks that average plain buffers: the groups of the tests of src/comm/reducer/.
 */
#ifndef TEST_REDUCER_RANKS_H
#define TEST_REDUCER_RANKS_H

#include "base/compiler.h"
#include "testing/ranks.h"

static const TRII_UNUSED tri_group_options shm_options = {.engine = "shm", .timeout_ms = 20000};
static const TRII_UNUSED tri_group_options tcp_options = {.engine = "tcp", .timeout_ms = 20000};

/* Joins the group that the ranks were run with. */
#define JOIN(env, group)                                                                           \
    RANK_TRY(env,                                                                                  \
             tri_group_create((env)->store, (env)->rank, (env)->size, (env)->options, &(group)))

#endif
