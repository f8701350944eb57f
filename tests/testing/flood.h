/*
 * flood.h - messages that nobody receives, until no more are taken.
 */
#ifndef TRII_TESTING_FLOOD_H
#define TRII_TESTING_FLOOD_H

#include "testing/message_ranks.h"

enum { FLOOD_LOOKS = 5, FLOOD_LOOK_MS = 100 };

/* Whether nothing is taken any more: rank 1 has looked again and again meanwhile. One that has not
 * is off its core. */
static inline const char *wait_until_taken(rank_env *env, tri_work *work, bool *taken)
{
    int64_t begun = 0, looks = 0;
    tri_status status = TRI_ERR_TIMEOUT;

    RANK_TRY(env, tri_store_add(env->store, "looks", 0, &begun));
    while (status == TRI_ERR_TIMEOUT && looks < begun + FLOOD_LOOKS) {
        RANK_TRY(env, tri_store_add(env->store, "looks", 0, &looks));
        status = tri_work_wait(work, FLOOD_LOOK_MS);
    }
    *taken = status != TRI_ERR_TIMEOUT;
    return NULL;
}

/* Rank 0 sends until nothing is taken any more; what rank 1 asks for then never comes.
 * why: what both are told. */
static inline const char *floods(rank_env *env, size_t bytes, const char *why)
{
    static unsigned char data[4096];
    tri_group *g = NULL;
    const char *failure = join(env, &g), *full = "full";
    int32_t word = 0;
    bool is_full = false;
    tri_work *work = NULL;

    if (failure != NULL)
        return failure;
    for (bool sent = true; sent && env->rank == 0;) {
        RANK_TRY(env, tri_send(g, data, bytes, TRI_DTYPE_U8, 1, 0, &work));
        failure = tri_work_test(work) == TRI_OK ? NULL : wait_until_taken(env, work, &sent);
        if (failure != NULL)
            return failure;
        if (sent)
            tri_work_destroy(work);
    }
    if (env->rank == 0)
        RANK_TRY(env, tri_store_set(env->store, full, "", 0));
    while (env->rank == 1 && !is_full) {
        if (work == NULL)
            RANK_TRY(env, tri_recv(g, &word, 1, TRI_DTYPE_I32, 0, 1, &work));
        RANK_FAILS(env, tri_work_wait(work, FLOOD_LOOK_MS), TRI_ERR_TIMEOUT, "waiting");
        RANK_TRY(env, tri_store_add(env->store, "looks", 1, NULL));
        RANK_TRY(env, tri_store_check(env->store, &full, 1, &is_full));
    }
    if (env->rank == 1) {
        tri_group_set_timeout(g, 300);
        RANK_FAILS(env, tri_recv(g, &word, 1, TRI_DTYPE_I32, 0, 2, NULL), TRI_ERR_GROUP_TIMEOUT,
                   why);
    } else {
        RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_ABORTED, why);
    }
    tri_work_destroy(work);
    tri_group_unref(g);
    return NULL;
}

#endif
