/* traffic_test.c - collectives and messages of a recorded step: values, gradients, their order. */
/* ctest: also=TRI_CHECK=order */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/traffic_calls.h"

static tri_tensor *trained(tri_tensor *x)
{
    tri_requires_grad(x, true);
    return x;
}

/* --- gradients ------------------------------------------------------------ */

#define N 6

/* The loss of rank r is the sum of (r + 1) w_i y_i^2 with w_i = i + 1. */
static tri_tensor *loss_of(const rank_env *env, tri_tensor *y, tri_tensor *w)
{
    return tri_mul_scalar(tri_sum(tri_mul(tri_square(y), w), NULL, 0, false), env->rank + 1.0);
}

/* x_r[i] = r + i / 4 */
static double x_at(int r, int i)
{
    return r + 0.25 * i;
}

static const char *expect(rank_env *env, tri_tensor *x, const double *want, int n)
{
    double got[64];

    RANK_TRY(env, tri_tensor_copy_out(tri_grad(x), got, (size_t)n * sizeof(double)));
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) < 1e-12))
            return RANK_FAIL(env, "rank %d: gradient %d is %g, not %g", env->rank, i, got[i],
                             want[i]);
    return NULL;
}

static const char *all_reduce_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = filled(N, env->rank, 0.25), *w = filled(N, 1, 1);
    double want[N], ranks = env->size * (env->size + 1) / 2.0;
    const char *wrong = NULL;

    RANK_TRY(env, group_of(env, &group));
    tri_requires_grad(x, true);
    for (int round = 0; round < 3 && wrong == NULL; round++) {
        tri_backward(loss_of(env, collective(ALL_REDUCE, group, x), w));
        for (int i = 0; i < N; i++) {
            double sum = 0;

            for (int r = 0; r < env->size; r++)
                sum += x_at(r, i);
            want[i] = (round + 1) * ranks * 2 * sum * (i + 1); /* it adds up */
        }
        wrong = expect(env, x, want, N);
        RANK_TRY(env, tri_step_end_status());
    }
    tri_tensor_unref(x);
    tri_tensor_unref(w);
    tri_group_unref(group);
    return wrong;
}

static void a_sum_over_ranks_has_a_gradient(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        for (int size = 1; size <= 3; size++)
            run_threads(size, size > 1 ? &engines[e] : NULL, all_reduce_rank, NULL);
}

static const char *parts_rank(rank_env *env)
{
    tri_group *group = NULL;
    int p = env->size, n = 2;
    tri_tensor *x = filled(n, env->rank, 0.25), *all = filled((int64_t)p * n, env->rank, 0.25);
    tri_tensor *w = filled(n, 1, 1), *y;
    double want[64], ranks = p * (p + 1) / 2.0;
    const char *wrong;

    RANK_TRY(env, group_of(env, &group));
    tri_requires_grad(x, true);
    tri_requires_grad(all, true);
    /* every rank has every part, and weighs it by r + 1 */
    tri_backward(loss_of(env, collective(ALL_GATHER, group, x), w));
    for (int i = 0; i < n; i++)
        want[i] = ranks * 2 * x_at(env->rank, i) * (i + 1);
    wrong = expect(env, x, want, n);
    RANK_TRY(env, tri_step_end_status());
    /* the mean over ranks of part r is rank r's */
    y = tri_reshape(all, TRI_SHAPE(p, n));
    tri_backward(loss_of(env, collective(REDUCE_SCATTER, group, y), w));
    for (int r = 0; r < p; r++)
        for (int i = 0; i < n; i++) {
            double mean = 0;

            for (int q = 0; q < p; q++)
                mean += x_at(q, r * n + i) / p;
            want[r * n + i] = (r + 1) * 2 * mean * (i + 1) / p;
        }
    if (wrong == NULL)
        wrong = expect(env, all, want, p * n);
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(all);
    all = filled((int64_t)p * n, env->rank, 0.25);
    tri_requires_grad(all, true);
    /* part r goes to rank r, which weighs it */
    y = tri_reshape(all, TRI_SHAPE(p, n));
    tri_backward(loss_of(env, collective(ALL_TO_ALL, group, y), w));
    for (int r = 0; r < p; r++)
        for (int i = 0; i < n; i++)
            want[r * n + i] = (r + 1) * 2 * x_at(env->rank, r * n + i) * (i + 1);
    if (wrong == NULL)
        wrong = expect(env, all, want, p * n);
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(all);
    tri_tensor_unref(w);
    tri_group_unref(group);
    return wrong;
}

static void parts_of_ranks_have_gradients(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        for (int size = 1; size <= 3; size++)
            run_threads(size, size > 1 ? &engines[e] : NULL, parts_rank, NULL);
}

/* --- a pipeline ----------------------------------------------------------- */

#define ROWS 4
#define WIDTH 5
#define BATCHES 3

static tri_tensor *weight_of(int stage)
{
    tri_tensor *flat = filled(WIDTH * WIDTH, stage == 0 ? -1 : 0.5, stage == 0 ? 0.09 : -0.04);
    double data[WIDTH * WIDTH];

    if (tri_tensor_copy_out(flat, data, sizeof(data)) != TRI_OK)
        return NULL;
    tri_tensor_unref(flat);
    return trained(tri_tensor_from(TRI_SHAPE(WIDTH, WIDTH), TRI_DTYPE_F64, data));
}

static tri_tensor *batch(int number)
{
    double data[ROWS * WIDTH];

    for (int i = 0; i < ROWS * WIDTH; i++)
        data[i] = 0.3 * (i % 7) - 0.1 * number - 0.5;
    return tri_tensor_from(TRI_SHAPE(ROWS, WIDTH), TRI_DTYPE_F64, data);
}

static tri_tensor *stage(tri_tensor *x, tri_tensor *w)
{
    return tri_tanh(tri_matmul(x, w));
}

typedef struct pipeline {
    double grads[2][WIDTH * WIDTH];
} pipeline;

static const char *pipeline_rank(rank_env *env)
{
    const pipeline *want = env->arg;
    tri_group *group = NULL;
    tri_tensor *w = weight_of(env->rank), *x[BATCHES];
    const char *wrong;

    RANK_TRY(env, group_of(env, &group));
    for (int b = 0; b < BATCHES; b++) {
        x[b] = batch(b);
        if (env->rank == 0) {
            tri_backward(send_to(group, stage(x[b], w), 1, 7));
        } else {
            tri_tensor *h = recv_from(group, TRI_DTYPE_F64, ROWS, WIDTH, true, 0, 7);

            tri_backward(tri_sum(tri_square(stage(h, w)), NULL, 0, false));
        }
    }
    wrong = expect(env, w, want->grads[env->rank], WIDTH * WIDTH);
    RANK_TRY(env, tri_step_end_status());
    for (int b = 0; b < BATCHES; b++)
        tri_tensor_unref(x[b]);
    tri_tensor_unref(w);
    tri_group_unref(group);
    return wrong;
}

static void two_stages_on_two_ranks_are_one_process(void **state)
{
    pipeline p;
    tri_tensor *w[2] = {weight_of(0), weight_of(1)};

    (void)state;
    for (int b = 0; b < BATCHES; b++) {
        tri_tensor *x = batch(b);

        tri_backward(tri_sum(tri_square(stage(stage(x, w[0]), w[1])), NULL, 0, false));
        tri_tensor_unref(x);
    }
    for (int s = 0; s < 2; s++)
        CHECK_OK(tri_tensor_copy_out(tri_grad(w[s]), p.grads[s], sizeof(p.grads[s])));
    tri_step_end();
    tri_tensor_unref(w[0]);
    tri_tensor_unref(w[1]);
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], pipeline_rank, &p);
}

static const char *large_message_rank(rank_env *env)
{
    const int64_t n = 1000003;
    tri_group *group = NULL;
    tri_tensor *x = filled(n, env->rank, 0.001), *y;
    double got = 0;

    RANK_TRY(env, group_of(env, &group));
    /* each sends before it receives, and reads its token first */
    y = tri_keep(send_to(group, x, 1 - env->rank, 0));
    RANK_TRY(env,
             tri_item_status(tri_sum(recv_from(group, TRI_DTYPE_F64, 1, n, false, 1 - env->rank, 0),
                                     NULL, 0, false),
                             &got));
    (void)y;
    if (!(fabs(got - ((1 - env->rank) * (double)n + 0.001 * (double)(n * (n - 1) / 2))) < 1))
        return RANK_FAIL(env, "rank %d: the sum of what came is %g", env->rank, got);
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void large_messages_cross(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], large_message_rank, NULL);
}

/* --- order ---------------------------------------------------------------- */

static const char *opposite_rank(rank_env *env)
{
    const int64_t n = *(const int64_t *)env->arg;
    tri_group *group[2] = {NULL, NULL};
    tri_tensor *x = filled(n, 1, 0), *y[2];

    for (int g = 0; g < 2; g++)
        RANK_TRY(env, group_of(env, &group[g]));
    for (int round = 0; round < 3; round++) {
        double got[2];

        for (int g = 0; g < 2; g++)
            y[g] = collective(ALL_REDUCE, group[g], tri_mul_scalar(x, g + 1));
        /* the plan waits first for what is read first */
        for (int g = 0; g < 2; g++) {
            int which = env->rank == 0 ? g : 1 - g;

            y[which] = tri_keep(tri_sum(y[which], NULL, 0, false));
        }
        for (int g = 0; g < 2; g++) {
            RANK_TRY(env, tri_item_status(y[g], &got[g]));
            if (!(fabs(got[g] - (double)(2 * (g + 1) * n)) < 1e-6))
                return RANK_FAIL(env, "rank %d: %g", env->rank, got[g]);
        }
        RANK_TRY(env, tri_step_end_status());
    }
    tri_tensor_unref(x);
    for (int g = 0; g < 2; g++)
        tri_group_unref(group[g]);
    return NULL;
}

static void two_groups_may_be_waited_for_in_opposite_order(void **state)
{
    static int64_t sizes[] = {3, 300007};

    (void)state;
    for (int e = 0; e < 2; e++)
        for (int k = 0; k < 2; k++)
            run_threads(2, &engines[e], opposite_rank, &sizes[k]);
}

/* Two devices on each rank, one group: what either makes has its place in one order. */
static const char *lanes_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *w[2];
    const char *wrong = NULL;

    w[0] = trained(filled(N, 1, 0.5));
    w[1] = trained(filled(N, 2, -0.25));
    RANK_TRY(env, group_of(env, &group));
    for (int round = 0; round < 4 && wrong == NULL; round++) {
        tri_tensor *loss = NULL;
        double want[N];

        for (int k = 0; k < 4; k++) {
            tri_tensor *x = tri_mul_scalar(w[k % 2], env->rank + 1.0);

            x = collective(ALL_REDUCE, group, tri_to(x, TRI_CPU((k + round) % 2)));
            x = tri_sum(tri_square(tri_to(x, TRI_CPU(0))), NULL, 0, false);
            loss = loss != NULL ? tri_add(loss, x) : x;
        }
        tri_backward(loss);
        for (int k = 0; k < 2 && wrong == NULL; k++) {
            for (int i = 0; i < N; i++) /* twice the square of 3 w, on two ranks */
                want[i] = (round + 1) * 2 * 2 * (2 * 3 * (k == 0 ? 1 + 0.5 * i : 2 - 0.25 * i)) *
                          (env->rank + 1);
            wrong = expect(env, w[k], want, N);
        }
        RANK_TRY(env, tri_step_end_status());
    }
    tri_tensor_unref(w[0]);
    tri_tensor_unref(w[1]);
    tri_group_unref(group);
    return wrong;
}

static void two_devices_share_a_group(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], lanes_rank, NULL);
}

/* What is communicated need not lie in one piece: columns of x, every rank's own. */
static const char *columns_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *flat = filled(12, env->rank, 0.25), *x, *y, *z;
    double want[12], got[6];

    RANK_TRY(env, group_of(env, &group));
    tri_requires_grad(flat, true);
    for (int round = 0; round < 2; round++) {
        x = tri_transpose(tri_reshape(flat, TRI_SHAPE(3, 4)), 0, 1); /* [4, 3] */
        x = tri_narrow(x, 0, 1, 2);                                  /* columns 1 and 2 */
        y = tri_keep(collective(ALL_REDUCE, group, x));
        z = collective(ALL_TO_ALL, group, x);
        tri_backward(tri_add(tri_sum(tri_square(y), NULL, 0, false),
                             tri_sum(tri_mul_scalar(z, 3), NULL, 0, false)));
        RANK_TRY(env, tri_tensor_copy_out(y, got, sizeof(got)));
        for (int i = 0; i < 12; i++) {
            int row = i / 4, column = i % 4;
            double sum = 1 + 2 * 0.25 * i;

            want[i] = column == 1 || column == 2 ? (round + 1) * (2 * 2 * sum + 3) : 0;
            if (want[i] != 0 && !(fabs(got[(column - 1) * 3 + row] - sum) < 1e-12))
                return RANK_FAIL(env, "rank %d: element %d is %g, not %g", env->rank, i,
                                 got[(column - 1) * 3 + row], sum);
        }
        RANK_TRY(env, tri_run());
        if (expect(env, flat, want, 12) != NULL)
            return env->text;
        RANK_TRY(env, tri_step_end_status());
    }
    tri_tensor_unref(flat);
    tri_group_unref(group);
    return NULL;
}

static void views_are_communicated(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], columns_rank, NULL);
}

/* --- sizes, gradients that nobody wants ----------------------------------- */

static const char *empty_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = trained(filled(0, 0, 0)), *y, *none;
    double got = 1;

    RANK_TRY(env, group_of(env, &group));
    y = collective(ALL_REDUCE, group, x);
    y = tri_add(tri_sum(y, NULL, 0, false),
                tri_sum(collective(ALL_GATHER, group, x), NULL, 0, false));
    if (env->rank == 0)
        tri_backward(send_to(group, tri_reshape(x, TRI_SHAPE(0, 1)), 1, 1));
    else
        tri_backward(tri_sum(recv_from(group, TRI_DTYPE_F64, 0, 1, true, 0, 1), NULL, 0, false));
    tri_backward(y);
    RANK_TRY(env, tri_item_status(y, &got));
    if (got != 0 || tri_grad(x) == NULL)
        return RANK_FAIL(env, "rank %d: %g", env->rank, got);
    RANK_TRY(env, tri_step_end_status());
    tri_no_grad_begin();
    tri_requires_grad(x, true);
    none = collective(ALL_REDUCE, group, x);
    tri_no_grad_end();
    tri_backward(tri_sum(none, NULL, 0, false));
    RANK_FAILS(env, tri_step_end_status(), TRI_ERR_INVALID_ARG, "depends on no tensor");
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void nothing_is_sent_and_differentiated_too(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], empty_rank, NULL);
}

/* --- what is wrong -------------------------------------------------------- */

static const char *refused_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = filled(3, 0, 1);

    RANK_TRY(env, group_of(env, &group));
    RANK_FAILS(env, tri_tensor_status(send_to(group, x, 5, 0)), TRI_ERR_INVALID_ARG,
               "send: peer 5 is out of range (group of 2)");
    tri_step_end();
    RANK_FAILS(env, tri_tensor_status(send_to(group, x, 1, -1)), TRI_ERR_INVALID_ARG,
               "send: tag -1 is outside 0 to 536870911");
    tri_step_end();
    RANK_FAILS(env, tri_tensor_status(collective(ALL_TO_ALL, group, x)), TRI_ERR_INVALID_ARG,
               "all_to_all: the operand is f64 [3]; its first dimension must be the size of the "
               "group, 2");
    tri_step_end();
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void wrong_operands_are_refused(void **state)
{
    (void)state;
    run_threads(2, NULL, refused_rank, NULL);
}

/* One rank's kernel fails: the others hear why, and all go on with another group. */
static const char *failing_rank(rank_env *env)
{
    const int64_t labels[2] = {0, env->rank == 0 ? 77 : 1};
    const float zeros[4] = {0};
    tri_group *group = NULL;
    tri_tensor *x = trained(tri_tensor_from(TRI_SHAPE(2, 2), TRI_DTYPE_F32, zeros));
    tri_tensor *t = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_I64, labels), *loss;
    double got = 0;

    RANK_TRY(env, group_of(env, &group));
    loss = tri_cross_entropy(x, t, NULL);
    loss = tri_sum(collective(ALL_REDUCE, group, tri_mul(x, loss)), NULL, 0, false);
    tri_backward(loss);
    if (env->rank == 0)
        RANK_FAILS(env, tri_step_end_status(), TRI_ERR_INVALID_ARG, "77");
    else
        RANK_FAILS(env, tri_step_end_status(), TRI_ERR_ABORTED, "77");
    if (env->rank == 1 && strstr(tri_last_error(), "all_reduce") == NULL)
        return RANK_FAIL(env, "the operation is not named: %s", tri_last_error());
    if (trii_has_grad(x))
        return RANK_FAIL(env, "rank %d: a gradient of a step that failed", env->rank);
    tri_group_unref(group);
    RANK_TRY(env, ranks_meet(env, "failed", -1));
    RANK_TRY(env, group_of(env, &group));
    RANK_TRY(env, tri_item_status(
                      tri_sum(collective(ALL_REDUCE, group, tri_add_scalar(x, 1)), NULL, 0, false),
                      &got));
    if (got != 8)
        return RANK_FAIL(env, "rank %d: %g", env->rank, got);
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(t);
    tri_group_unref(group);
    return NULL;
}

static void a_failed_step_ends_on_all_ranks_and_the_next_one_works(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], failing_rank, NULL);
}

static const char *dying_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = filled(5, 0, 1), *y;

    RANK_TRY(env, group_of(env, &group));
    RANK_TRY(env, ranks_meet(env, "made", -1));
    if (env->rank == 1)
        _exit(0);
    y = recv_from(group, TRI_DTYPE_F64, 1, 5, false, 1, 0);
    y = tri_add(y, collective(ALL_REDUCE, group, x));
    RANK_FAILS(env, tri_item_status(tri_sum(y, NULL, 0, false), &(double){0}), TRI_ERR_PEER_LOST,
               "rank 1");
    if (strstr(tri_last_error(), "operation ") == NULL)
        return RANK_FAIL(env, "the operation is not named: %s", tri_last_error());
    tri_step_end();
    if (tri_item(tri_sum(x, NULL, 0, false)) != 10)
        return RANK_FAIL(env, "the next step does not work");
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void a_rank_that_dies_ends_the_step_of_the_others(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_processes(2, &engines[e], dying_rank, NULL, NULL, 60);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_over_ranks_has_a_gradient),
        cmocka_unit_test(parts_of_ranks_have_gradients),
        cmocka_unit_test(two_stages_on_two_ranks_are_one_process),
        cmocka_unit_test(large_messages_cross),
        cmocka_unit_test(two_groups_may_be_waited_for_in_opposite_order),
        cmocka_unit_test(two_devices_share_a_group),
        cmocka_unit_test(views_are_communicated),
        cmocka_unit_test(nothing_is_sent_and_differentiated_too),
        cmocka_unit_test(wrong_operands_are_refused),
        cmocka_unit_test(a_failed_step_ends_on_all_ranks_and_the_next_one_works),
        cmocka_unit_test(a_rank_that_dies_ends_the_step_of_the_others),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
