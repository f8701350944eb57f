/* dist_failing_test.c - a rank whose step fails while it is recorded tells the ranks that wait, or
 * will wait, for its part of the step: in collectives that it never records, and in gradients. */
/* ctest: also=TRI_EAGER=1 also=TRI_CHECK=order */
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"

static const tri_group_options engines[] = {{.engine = "shm"}, {.engine = "tcp"}};

typedef enum where {
    BEFORE_ALL,    /* the operand of the first collective */
    BEFORE_SEND,   /* of a message */
    IN_ARGUMENTS,  /* of the collective itself */
    AFTER_COPY,    /* which is no collective, but its gradient is */
    AFTER_REDUCE,  /* whose gradient waits for nobody */
    AFTER_RUN,     /* the collective is over, and its gradient is to come */
    IN_TWO_GROUPS, /* one of which has nothing under way */
    N_WHERE
} where;

static tri_tensor *sum(tri_tensor *t)
{
    return tri_sum(t, NULL, 0, false);
}

/* x on rank 0; on rank 1 what cannot be. */
static tri_tensor *or_not(const rank_env *env, tri_tensor *x)
{
    return env->rank == 0 ? x : tri_matmul(x, tri_ones(TRI_SHAPE(3), TRI_DTYPE_F64));
}

/* The loss of a step in which rank 1 fails. */
static tri_tensor *record(rank_env *env, where at, tri_tensor *x, tri_group *group,
                          tri_group *other)
{
    tri_tensor *y;

    switch (at) {
    case BEFORE_ALL:
        return sum(tri_dist_all_reduce(or_not(env, x), TRI_REDOP_SUM, group));
    case BEFORE_SEND:
        return env->rank == 0 ? sum(tri_dist_recv(TRI_SHAPE(4), TRI_DTYPE_F64, true, 1, 0, group))
                              : sum(tri_dist_send(or_not(env, x), 0, 0, group));
    case IN_ARGUMENTS:
        return sum(tri_dist_all_gather(x, env->rank, group));
    case AFTER_COPY:
        return sum(or_not(env, tri_dist_copy_to(x, group)));
    case AFTER_REDUCE:
        y = or_not(env, tri_dist_reduce_from(tri_dist_copy_to(x, group), group));
        return sum(y);
    case AFTER_RUN:
        y = tri_keep(tri_dist_all_gather(x, 0, group));
        return tri_run() == TRI_OK ? sum(or_not(env, tri_narrow(y, 0, 0, 4))) : NULL;
    default:
        y = tri_dist_copy_to(tri_dist_copy_to(x, other), group);
        return sum(tri_dist_reduce_from(tri_dist_reduce_from(or_not(env, y), group), other));
    }
}

static const char *failing_rank(rank_env *env)
{
    const where at = *(const where *)env->arg;
    tri_group *group = NULL, *other = NULL;
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(4), TRI_DTYPE_F64, (const double[]){1, 2, 3, 4});
    const char *why =
        at == IN_ARGUMENTS ? "tri_dist_all_gather(f64 [4])" : "tri_matmul(f64 [4], f64 [3])";

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &other));
    tri_group_set_timeout(group, 20000);
    tri_group_set_timeout(other, 20000);
    tri_requires_grad(x, true);
    tri_backward(record(env, at, x, group, other));
    if (tri_run() != (env->rank == 0 ? TRI_ERR_ABORTED : TRI_ERR_INVALID_ARG) ||
        strstr(tri_last_error(), why) == NULL)
        return RANK_FAIL(env, "case %d, rank %d: %s", at, env->rank, tri_last_error());
    RANK_TRY(env, ranks_meet(env, "failed", -1));
    tri_step_end();
    tri_tensor_unref(x);
    tri_group_unref(group);
    tri_group_unref(other);
    return NULL;
}

static void those_that_wait_are_told(void **state)
{
    (void)state;
    for (where at = 0; at < N_WHERE; at++)
        for (int e = 0; e < 2; e++)
            run_threads(2, &engines[e], failing_rank, &at);
}

/* Nobody waits for this rank any more: all gradients have been there. */
static const char *late_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(4), TRI_DTYPE_F64, (const double[]){1, 2, 3, 4});
    double got = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    tri_requires_grad(x, true);
    tri_backward(sum(tri_dist_all_reduce(tri_dist_copy_to(x, group), TRI_REDOP_SUM, group)));
    RANK_TRY(env, tri_run());
    tri_backward(sum(tri_matmul(x, tri_ones(TRI_SHAPE(3), TRI_DTYPE_F64))));
    RANK_FAILS(env, tri_run(), TRI_ERR_INVALID_ARG, "tri_matmul");
    tri_step_end();
    RANK_TRY(env, tri_item_status(sum(tri_dist_all_reduce(x, TRI_REDOP_SUM, group)), &got));
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    tri_group_unref(group);
    return got == 20 ? NULL : RANK_FAIL(env, "%g", got);
}

static void a_group_in_which_nobody_waits_lives_on(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], late_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(those_that_wait_are_told),
    cmocka_unit_test(a_group_in_which_nobody_waits_lives_on),
};

TEST_MAIN(tests)
