/* traffic_check_test.c - what is said where ranks communicate different things: operations that
 * have changed places, messages of two kinds, or of which one side knows nothing. */
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/traffic_calls.h"

/* Equally long, and so nothing would be noticed. */
static const char *swapped_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = filled(4, 0, 1), *y = tri_reshape(x, TRI_SHAPE(2, 2)), *a, *b;
    tri_status status;

    RANK_TRY(env, group_of(env, &group));
    a = tri_keep(collective(ALL_REDUCE, group, env->rank == 0 ? x : y));
    b = tri_keep(collective(ALL_REDUCE, group, env->rank == 0 ? y : x));
    (void)a;
    (void)b;
    status = tri_step_end_status();
    if (status != TRI_ERR_MISMATCH)
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(status),
                         tri_last_error());
    if (strstr(tri_last_error(), "operation 1 of group ") == NULL ||
        strstr(tri_last_error(), "rank 0: all_reduce(f64 [4])") == NULL ||
        strstr(tri_last_error(), "rank 1: all_reduce(f64 [2, 2])") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static const char *agreeing_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = filled(6 * env->size, env->rank, 1), *y;

    RANK_TRY(env, group_of(env, &group));
    y = tri_reshape(x, TRI_SHAPE(env->size, 6));
    for (int kind = ALL_REDUCE; kind <= ALL_TO_ALL; kind++)
        (void)tri_keep(collective((call_kind)kind, group, y));
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void operations_that_changed_places_are_named(void **state)
{
    (void)state;
    setenv("TRI_CHECK", "order", 1);
    for (int e = 0; e < 2; e++) {
        run_threads(3, &engines[e], agreeing_rank, NULL);
        run_threads(2, &engines[e], swapped_rank, NULL);
    }
    unsetenv("TRI_CHECK");
}

/* Two that differ in length, or in type: what is said of it with TRI_CHECK=order, on both sides. */
static const char *unlike_rank(rank_env *env)
{
    const bool *longer = env->arg;
    tri_group *group = NULL;
    tri_tensor *x = filled(8, 0, 1), *n;
    tri_tensor *message = *longer ? tri_reshape(x, TRI_SHAPE(8)) : tri_cast(x, TRI_DTYPE_F32);

    RANK_TRY(env, group_of(env, &group));
    if (env->rank == 0)
        (void)tri_keep(send_to(group, message, 1, 7));
    else
        (void)tri_keep(recv_from(group, TRI_DTYPE_F64, 2, *longer ? 3 : 4, false, 0, 7));
    n = tri_keep(collective(ALL_REDUCE, group, x)); /* a short send is over at once */
    (void)n;
    RANK_FAILS(env, tri_step_end_status(), TRI_ERR_MISMATCH,
               "message 1 from rank 0 to rank 1 of group ");
    if (strstr(tri_last_error(), *longer ? "rank 0: send(8 f64, rank 1, tag 7)"
                                         : "rank 0: send(8 f32, rank 1, tag 7)") == NULL ||
        strstr(tri_last_error(), *longer ? "rank 1: recv(6 f64, rank 0, tag 7)"
                                         : "rank 1: recv(8 f64, rank 0, tag 7)") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void messages_that_differ_are_named(void **state)
{
    (void)state;
    setenv("TRI_CHECK", "order", 1);
    for (int e = 0; e < 2; e++)
        for (int longer = 0; longer < 2; longer++)
            run_threads(2, &engines[e], unlike_rank, &(bool){longer != 0});
    unsetenv("TRI_CHECK");
}

/* Tags may come in any order; what nobody sends is missed in the end. */
static const char *unmet_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = filled(2, 0, 1);

    RANK_TRY(env, group_of(env, &group));
    if (env->rank == 0) {
        (void)tri_keep(send_to(group, x, 1, 1));
        (void)tri_keep(send_to(group, x, 1, 2));
        (void)tri_keep(send_to(group, x, 1, 3));
        RANK_TRY(env, tri_step_end_status());
        RANK_TRY(env, ranks_meet(env, "sent", -1));
        RANK_TRY(env, ranks_meet(env, "missed", -1));
    } else {
        RANK_TRY(env, ranks_meet(env, "sent", -1));
        (void)tri_keep(recv_from(group, TRI_DTYPE_F64, 1, 2, false, 0, 3));
        (void)tri_keep(recv_from(group, TRI_DTYPE_F64, 1, 2, false, 0, 1));
        RANK_TRY(env, tri_step_end_status());
        tri_group_set_timeout(group, 100);
        (void)tri_keep(recv_from(group, TRI_DTYPE_F64, 1, 2, false, 0, 4));
        RANK_FAILS(env, tri_step_end_status(), TRI_ERR_GROUP_TIMEOUT,
                   "; messages that have not met: ");
        if (strstr(tri_last_error(), "rank 0: send(2 f64, rank 1, tag 2)") == NULL ||
            strstr(tri_last_error(), "rank 1: recv(2 f64, rank 0, tag 4)") == NULL ||
            strstr(tri_last_error(), "tag 1)") != NULL)
            return RANK_FAIL(env, "%s", tri_last_error());
        RANK_TRY(env, ranks_meet(env, "missed", -1));
    }
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void messages_that_nobody_receives_are_named_in_the_end(void **state)
{
    (void)state;
    setenv("TRI_CHECK", "order", 1);
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], unmet_rank, NULL);
    unsetenv("TRI_CHECK");
}

/* The rest of the value would be whatever was in its memory. */
static const char *short_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = filled(3, 0, 1);

    RANK_TRY(env, group_of(env, &group));
    if (env->rank == 0) {
        (void)tri_keep(send_to(group, x, 1, 7));
        RANK_TRY(env, tri_step_end_status());
    } else {
        (void)tri_keep(recv_from(group, TRI_DTYPE_F64, 2, 2, false, 0, 7));
        RANK_FAILS(env, tri_step_end_status(), TRI_ERR_MISMATCH,
                   "recv(4 f64, rank 0, tag 7): a message of 3 came");
    }
    RANK_TRY(env, ranks_meet(env, "heard", -1));
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void a_message_that_is_too_short_is_no_value(void **state)
{
    (void)state;
    unsetenv("TRI_CHECK");
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], short_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(operations_that_changed_places_are_named),
    cmocka_unit_test(messages_that_differ_are_named),
    cmocka_unit_test(messages_that_nobody_receives_are_named_in_the_end),
    cmocka_unit_test(a_message_that_is_too_short_is_no_value),
};

TEST_MAIN(tests)
