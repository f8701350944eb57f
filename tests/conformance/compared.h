/*
 * compared.h - what holds for an engine whose calls the group compares (TRI_CHECK_CALLS): for tests
 * of plug-ins.
 */
#ifndef TEST_COMPARED_H
#define TEST_COMPARED_H

#include <stdlib.h>

#include "conformance/calls.h"

/* Rank 2 makes another call than ranks 0 and 1. */
static inline tri_status compared_odd(tri_group *g, int what, bool odd)
{
    static const size_t even_counts[3] = {4, 5, 6}, odd_counts[3] = {4, 6, 5};
    float *x = calloc(64, sizeof(*x)), *y = calloc(64, sizeof(*y));
    tri_status st;

    switch (what) {
    case 0:
        st = tri_reduce(g, x, y, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, odd, NULL);
        break;
    case 1:
        st = odd ? tri_barrier(g, NULL)
                 : tri_all_reduce(g, x, y, 4, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
        break;
    case 2:
        st = tri_all_gather(g, x, y, odd ? 20 : 4, TRI_DTYPE_F32, NULL);
        break;
    case 3:
        st = tri_all_reduce(g, x, y, 4, odd ? TRI_DTYPE_I32 : TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
        break;
    case 4:
        st = tri_all_reduce(g, x, y, 4, TRI_DTYPE_F32, odd ? TRI_REDOP_MAX : TRI_REDOP_SUM, NULL);
        break;
    default:
        st = tri_all_gather_v(g, x, y, odd ? odd_counts : even_counts, TRI_DTYPE_F32, NULL);
        break;
    }
    free(x);
    free(y);
    return st;
}
#define COMPARED_ODDS 6

/* Collectives that do not match: both calls are named, on every rank. 3 ranks. */
static inline const char *compared_sides(rank_env *env)
{
    for (int what = 0; what < COMPARED_ODDS; what++) {
        tri_group *g = NULL;

        RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
        RANK_FAILS(env, compared_odd(g, what, env->rank == 2), TRI_ERR_MISMATCH,
                   "the ranks disagree: rank ");
        if (strstr(tri_last_error(), "rank 2 calls") == NULL ||
            strstr(tri_last_error(), "(compared.h:") == NULL)
            return RANK_FAIL(env, "case %d: %s", what, tri_last_error());
        tri_group_unref(g);
    }
    return NULL;
}

/* Everybody sends to everybody, and takes what comes. */
static inline const char *compared_anybody(rank_env *env)
{
    tri_group *g = NULL;
    int32_t out[3], in[3];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    for (int turn = 0; turn < 10; turn++) {
        tri_work *sends[RANKS_MAX];
        int seen = 0;

        out[0] = out[2] = 1000 * env->rank + turn;
        for (int r = 0; r < env->size; r++) {
            if (r != env->rank)
                RANK_TRY(env, tri_send(g, out, 3, TRI_DTYPE_I32, r, turn, &sends[r]));
        }
        for (int r = 1; r < env->size; r++) {
            int from = -1;

            RANK_TRY(env, tri_recv_any(g, in, 3, TRI_DTYPE_I32, turn, &from, NULL));
            if (from < 0 || in[0] != 1000 * from + turn || in[2] != in[0])
                return RANK_FAIL(env, "turn %d: from %d, says %d", turn, from, in[0]);
            seen |= 1 << from;
        }
        if (seen != (1 << env->size) - 1 - (1 << env->rank))
            return RANK_FAIL(env, "turn %d: messages from %#x", turn, seen);
        for (int r = 0; r < env->size; r++) {
            if (r == env->rank)
                continue;
            RANK_TRY(env, tri_work_wait(sends[r], 0));
            tri_work_destroy(sends[r]);
        }
    }
    tri_group_unref(g);
    return NULL;
}

#endif
