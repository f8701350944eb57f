/*
 * shm_given_up_test.c - a rank gives up before a peer has read its buffers where they lie: its
 * caller has them back, and may have written to them. What the peer reads then is not a result.
 */
#include "testing/check.h"
#include "testing/ranks.h"

#include "comm/engines/shm/shm_group.h"
#include "comm/group/group_internal.h"

enum { COUNT = 100000 };

static const tri_group_options options = {.engine = "shm", .timeout_ms = 20000};

/* The peers can see it from now on, and are not woken for it. */
static void give_up(tri_group *group)
{
    shm_group *g = group->self;
    shm_head *head = &g->block->head;

    atomic_store(&g->end_published, 1); /* its control thread shall not write there as well */
    head->status = TRI_ERR_ABORTED;
    snprintf(head->text, sizeof(head->text), "rank 0 gave up");
    atomic_store(&head->state, SHM_FAILED);
}

static const char *summed_in_arenas(rank_env *env)
{
    tri_group *g = NULL;
    tri_work *work = NULL;
    float *x;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    x = tri_group_alloc(g, COUNT * sizeof(*x));
    if (x == NULL)
        return RANK_FAIL(env, "no memory");
    if (env->rank == 0) {
        RANK_TRY(env, tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, &work));
        give_up(g);
    }
    RANK_TRY(env, ranks_meet(env, "given up", -1));
    if (env->rank == 1)
        RANK_FAILS(env, tri_all_reduce(g, x, x, COUNT, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL),
                   TRI_ERR_ABORTED, "rank 0 gave up");
    RANK_TRY(env, ranks_meet(env, "failed", -1)); /* rank 0 would sum, too, if it waited now */
    if (env->rank == 0)
        RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_ABORTED, "rank 0 gave up");
    tri_work_destroy(work);
    tri_group_unref(g);
    return NULL;
}

static void a_sum_over_its_buffers_fails(void **state)
{
    (void)state;
    run_threads(2, &options, summed_in_arenas, NULL);
}

static const char *received(rank_env *env)
{
    static float x[2][COUNT];
    tri_group *g = NULL;
    tri_work *work = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &g));
    if (env->rank == 0) {
        RANK_TRY(env, tri_send(g, x[0], COUNT, TRI_DTYPE_F32, 1, 0, &work));
        give_up(g);
    }
    RANK_TRY(env, ranks_meet(env, "given up", -1));
    if (env->rank == 1)
        RANK_FAILS(env, tri_recv(g, x[1], COUNT, TRI_DTYPE_F32, 0, 0, NULL), TRI_ERR_ABORTED,
                   "rank 0 gave up");
    RANK_TRY(env, ranks_meet(env, "failed", -1)); /* without CMA rank 0 would send, if it waited */
    if (env->rank == 0 && tri_work_wait(work, 0) != TRI_OK) /* without CMA it may have sent all */
        RANK_FAILS(env, tri_work_wait(work, 0), TRI_ERR_ABORTED, "rank 0 gave up");
    tri_work_destroy(work);
    tri_group_unref(g);
    return NULL;
}

static void a_message_of_it_is_not_received(void **state)
{
    (void)state;
    run_threads(2, &options, received, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_sum_over_its_buffers_fails),
    cmocka_unit_test(a_message_of_it_is_not_received),
};

TEST_MAIN(tests)
