/*
 * tcp_abort_test.c - a rank aborts the group while its socket is full, since its peer takes nothing
 * at the moment: the reason comes after all that was begun, and nobody takes the rank for dead.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "comm/engines/tcp/tcp.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"

static const tri_group_options options = {.engine = "tcp", .timeout_ms = 30000};

enum { COUNT = 4 << 20, PIECE = 16 << 10 };
typedef enum flood { COLLECTIVE, MESSAGES } flood;

/* Whether part of a frame waits for room. */
static bool is_stuck(const tri_group *group)
{
    tcp_group *g = group->self;
    bool stuck;

    trii_mutex_lock(&g->mutex);
    stuck = g->conns[1].out_stuck && g->conns[1].out_left > 0;
    trii_mutex_unlock(&g->mutex);
    return stuck;
}

static const char *fill(rank_env *env, tri_group *group, flood what, float *data)
{
    int64_t deadline = trii_deadline_ms(20000);
    tri_work *work = NULL;

    if (what == COLLECTIVE)
        RANK_TRY(env,
                 tri_all_reduce(group, data, data, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
    while (!is_stuck(group)) {
        if (trii_now_ns() > deadline)
            return RANK_FAIL(env, "the socket is never full");
        if (what == MESSAGES) {
            tri_work_destroy(work); /* what it has begun goes on */
            work = NULL;
            RANK_TRY(env, tri_send(group, data, PIECE, TRI_DTYPE_U8, 1, 2, &work));
        }
    }
    tri_group_abort(group, "the oven is too hot");
    tri_work_destroy(work);
    return NULL;
}

static const char *hear(rank_env *env, tri_group *group, float *data)
{
    RANK_FAILS(env, tri_all_reduce(group, data, data, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
               TRI_ERR_ABORTED, "the oven is too hot");
    return NULL;
}

static const char *aborting_rank(rank_env *env)
{
    tri_group *group = NULL;
    float *data = calloc(COUNT, sizeof(*data));
    const char *wrong = NULL;

    RANK_TRY(env, data != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, &options, &group));
    if (env->rank == 0)
        wrong = fill(env, group, *(const flood *)env->arg, data);
    RANK_TRY(env, ranks_meet(env, "aborted", -1));
    if (env->rank == 1)
        wrong = hear(env, group, data);
    RANK_TRY(env, ranks_meet(env, "heard", -1));
    tri_group_unref(group);
    free(data);
    return wrong;
}

static void its_reason_comes_through_a_full_socket(void **state)
{
    (void)state;
    for (flood what = COLLECTIVE; what <= MESSAGES; what++)
        run_threads(2, NULL, aborting_rank, &what);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(its_reason_comes_through_a_full_socket),
};

TEST_MAIN(tests)
