/* traffic_waits_test.c - what a rank waits for, its peers may be waiting for too: messages that
 * cross, and steps that will never do their part. */

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "train/graph/step/host_op.h"
#include "testing/traffic_calls.h"

#define N 4
#define ROUNDS 3

/* f32, which is computed together with its neighbours. */
static tri_tensor *four(void)
{
    return tri_tensor_from(TRI_SHAPE(N), TRI_DTYPE_F32, (const float[N]){1, 2, 3, 4});
}

static tri_tensor *four_from(tri_group *group, int peer)
{
    const trii_type type = {.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {N}};

    return received(group, &type, false, peer, 0);
}

static void four_to(tri_group *group, tri_tensor *x, int peer)
{
    (void)send_to(group, x, peer, 0);
}

static void both_engines(const char *(*main)(rank_env *env))
{
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], main, NULL);
}

/* --- messages that cross -------------------------------------------------- */

/* Rank 1 answers what rank 0 sends, and rank 0 has posted the receive of the answer before. */
static const char *answer(rank_env *env, tri_group *group)
{
    tri_tensor *y = four_from(group, 0);
    double got;

    four_to(group, tri_mul_scalar(y, 2), 0);
    RANK_TRY(env, tri_item_status(tri_sum(y, NULL, 0, false), &got));
    return NULL;
}

/* The sum of the answer and of what was computed before the message. */
static const char *expect_sum(rank_env *env, tri_tensor *sum, double want)
{
    double got = 0;

    RANK_TRY(env, tri_item_status(tri_sum(sum, NULL, 0, false), &got));
    return got == want ? NULL : RANK_FAIL(env, "rank %d: %g, not %g", env->rank, got, want);
}

/* What reads the answer could be computed together with what was recorded before the message, and
 * may not. */
static const char *fused_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = four();
    const char *wrong = NULL;

    RANK_TRY(env, group_of(env, &group));
    for (int round = 0; round < ROUNDS && wrong == NULL; round++) {
        if (env->rank == 0) {
            tri_tensor *y = four_from(group, 1);
            tri_tensor *before = tri_square(x);
            tri_tensor *m = tri_reshape(x, TRI_SHAPE(2, 2));

            four_to(group, tri_reshape(tri_matmul(m, m), TRI_SHAPE(N)), 1); /* 7 10 15 22 */
            wrong = expect_sum(env, tri_add(before, y), 30 + 2 * 54);
        } else {
            wrong = answer(env, group);
        }
        RANK_TRY(env, tri_step_end_status());
    }
    tri_tensor_unref(x);
    tri_group_unref(group);
    return wrong;
}

static void an_answer_is_not_waited_for_before_the_message_is_sent(void **state)
{
    (void)state;
    both_engines(fused_rank);
}

/* The message is made on another device, which takes its time. */
static const char *devices_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = four();
    const char *wrong = NULL;

    RANK_TRY(env, group_of(env, &group));
    for (int round = 0; round < ROUNDS && wrong == NULL; round++) {
        if (env->rank == 0) {
            tri_tensor *here = tri_keep(tri_add_scalar(x, 1));
            tri_tensor *y = four_from(group, 1), *there = tri_to(here, TRI_CPU(1));

            for (int i = 0; i < 20; i++) {
                tri_tensor *m = tri_reshape(there, TRI_SHAPE(2, 2));

                there = tri_add_scalar(tri_reshape(tri_transpose(m, 0, 1), TRI_SHAPE(N)), 1);
            }
            four_to(group, there, 1);
            wrong = expect_sum(env, tri_mul_scalar(y, 3), 6 * (14 + 20 * N));
        } else {
            wrong = answer(env, group);
        }
        RANK_TRY(env, tri_step_end_status());
    }
    tri_tensor_unref(x);
    tri_group_unref(group);
    return wrong;
}

static void an_answer_is_not_waited_for_before_another_device_has_made_the_message(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    both_engines(devices_rank);
}

/* --- groups of the same ranks --------------------------------------------- */

typedef struct hurried {
    trii_host_op op; /* first */
} hurried;

static tri_status hurried_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    (void)op;
    memcpy(buffers->out[0], buffers->in[0], N * sizeof(float));
    return TRI_OK;
}

static tri_status hurried_poll(trii_host_op *op)
{
    (void)op;
    return TRI_OK;
}

static tri_status hurried_wait(trii_host_op *op, int64_t for_ns)
{
    (void)for_ns;
    return hurried_poll(op);
}

static tri_tensor *record_hurried(tri_tensor *x)
{
    static const trii_host_kind kind = {.name = "hurried",
                                        .start = hurried_start,
                                        .poll = hurried_poll,
                                        .wait = hurried_wait,
                                        .urgent = true};
    trii_step *step = trii_step_current();
    trii_host_op *op = NULL;
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;
    tri_status status = trii_resolve(step, x, &in);

    if (status == TRI_OK)
        status = trii_host_op_new(step, &kind, sizeof(hurried), &op);
    if (status == TRI_OK)
        status = trii_record_host_like(step, op, &in, 1, &out);
    return status == TRI_OK ? trii_handle_recorded(step, out) : trii_handle_failed(step, status);
}

/* Rank 1 waits for its first sum before it has what the second one is of. */
static const char *hurried_rank(rank_env *env)
{
    tri_group *groups[2] = {NULL, NULL};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_F32, (const float[N]){1, 2, 3, 4});
    const char *wrong = NULL;

    RANK_TRY(env, group_of(env, &groups[0]));
    RANK_TRY(env, tri_group_split(groups[0], 0, env->rank, NULL, &groups[1]));
    for (int g = 0; g < 2; g++)
        tri_group_set_timeout(groups[g], 20000);
    for (int round = 0; round < ROUNDS && wrong == NULL; round++) {
        tri_tensor *first = collective(ALL_REDUCE, groups[0], tri_matmul(x, x)), *second = x;
        double got[2];

        first = tri_keep(tri_matmul(first, x));
        for (int i = 0; i < 20; i++)
            second = tri_mul_scalar(tri_matmul(second, x), 0.125);
        second = tri_matmul(collective(ALL_REDUCE, groups[1], second), x);
        second = tri_keep(env->rank == 0 ? record_hurried(second) : second);
        RANK_TRY(env, tri_run());
        RANK_TRY(env, tri_item_status(tri_sum(first, NULL, 0, false), &got[0]));
        RANK_TRY(env, tri_item_status(tri_sum(second, NULL, 0, false), &got[1]));
        wrong = got[0] == 2 * 290 && got[1] > 0 ? NULL : RANK_FAIL(env, "%g %g", got[0], got[1]);
        RANK_TRY(env, tri_step_end_status());
    }
    tri_tensor_unref(x);
    for (int g = 0; g < 2; g++)
        tri_group_unref(groups[g]);
    return wrong;
}

static void what_is_urgent_on_one_rank_changes_no_order_of_groups(void **state)
{
    (void)state;
    both_engines(hurried_rank);
}

/* --- parts of a step that will not come ----------------------------------- */

static tri_status same_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    return TRI_OK;
}

/* Late enough that the first device waits for its peer by then. */
static tri_status fail_late(const tri_function_call *call)
{
    volatile double x = 1;

    (void)call;
    for (int i = 0; i < 3000000; i++)
        x = x * 0.5 + 1;
    return tri_status_fail(TRI_ERR_INVALID_ARG, "no such luck");
}

/* Rank 0 waits for an answer to what its other device does not make. */
static const char *other_device_rank(rank_env *env)
{
    static const tri_function_class late_failure = {
        .name = "late_failure", .shape = same_shape, .forward = fail_late};
    tri_group *group = NULL;
    tri_tensor *x = four(), *y = NULL;

    RANK_TRY(env, group_of(env, &group));
    if (env->rank == 0) {
        tri_tensor *there = tri_to(tri_keep(tri_add_scalar(x, 1)), TRI_CPU(1)), *bad = NULL;

        y = four_from(group, 1);
        tri_function_apply(&late_failure, NULL, &there, 1, &bad, 1);
        four_to(group, tri_mul_scalar(bad, 2), 1);
        RANK_FAILS(env, tri_item_status(tri_sum(y, NULL, 0, false), &(double){0}),
                   TRI_ERR_INVALID_ARG, "no such luck");
    } else {
        y = four_from(group, 0);
        four_to(group, y, 0);
        RANK_FAILS(env, tri_run(), TRI_ERR_ABORTED, "no such luck");
    }
    RANK_TRY(env, ranks_meet(env, "device", -1));
    tri_step_end();
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void a_device_that_fails_ends_the_wait_for_a_peer(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    both_engines(other_device_rank);
}

/* Rank 0's step fails before it runs: after an operation that is recorded, or before one. */
static const char *mistaken_rank(rank_env *env)
{
    const bool behind = *(const bool *)env->arg;
    tri_group *group = NULL;
    tri_tensor *x = four(), *y = NULL,
               *wrong = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F32, &(float){0});

    RANK_TRY(env, group_of(env, &group));
    tri_requires_grad(x, true);
    for (int part = 0; part < 2; part++) {
        if (part == behind && env->rank == 0)
            tri_backward(tri_matmul(x, wrong));
        else if (part != behind)
            y = tri_keep(collective(ALL_REDUCE, group, x));
    }
    (void)y;
    RANK_FAILS(env, tri_run(), env->rank == 0 ? TRI_ERR_INVALID_ARG : TRI_ERR_ABORTED,
               "tri_matmul(f32 [4], f32 [1])");
    RANK_TRY(env, ranks_meet(env, "mistake", -1));
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(wrong);
    tri_group_unref(group);
    return NULL;
}

static void a_step_that_cannot_run_any_more_is_told_to_peers(void **state)
{
    (void)state;
    for (int behind = 0; behind < 2; behind++)
        for (int e = 0; e < 2; e++)
            run_threads(2, &engines[e], mistaken_rank, &(bool){behind == 1});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_answer_is_not_waited_for_before_the_message_is_sent),
    cmocka_unit_test(an_answer_is_not_waited_for_before_another_device_has_made_the_message),
    cmocka_unit_test(what_is_urgent_on_one_rank_changes_no_order_of_groups),
    cmocka_unit_test(a_device_that_fails_ends_the_wait_for_a_peer),
    cmocka_unit_test(a_step_that_cannot_run_any_more_is_told_to_peers),
};

TEST_MAIN(tests)
