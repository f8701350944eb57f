/* dist_places_test.c - every collective of dist.h, with its gradient, where programs use them: on
 * other devices, under tri_autocast, in contexts of several threads, with nothing and with 2^22
 * elements to send; by kernels one at a time, and with every value or call looked at. */
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"

static const tri_group_options engines[] = {{.engine = "shm"}, {.engine = "tcp"}};

enum { CALLS = 12 };

typedef struct place {
    tri_device device;
    tri_dtype dtype;
    int64_t rows; /* of each rank */
    bool casts;   /* under tri_autocast */
} place;

/* What the calls have of a rank's x, which is x = rank + 1 throughout: the sum of the result, and
 * what each element of x gets as its gradient, where the loss of each rank is that sum. */
typedef struct wanted {
    double sum, grad;
} wanted;

static tri_tensor *exchanged(tri_tensor *x, int rank, int size, tri_group *group)
{
    int64_t to[RANKS_MAX] = {0}, from[RANKS_MAX] = {0};

    to[(rank + 1) % size] = from[(rank + size - 1) % size] = tri_tensor_size(x, 0);
    return tri_dist_all_to_all_v(x, to, from, group);
}

static tri_tensor *messages(tri_tensor *x, int rank, int size, const place *p, tri_group *group)
{
    tri_tensor *token = tri_dist_send(x, (rank + 1) % size, 5, group), *y;

    TRI_ON(p->device)
    {
        y = tri_dist_recv(TRI_SHAPE(size * p->rows, 2), tri_tensor_dtype(x), true,
                          (rank + size - 1) % size, 5, group);
    }
    return tri_add(y, tri_cast(tri_sum(token, NULL, 0, false), tri_tensor_dtype(x)));
}

static tri_tensor *called(int k, tri_tensor *x, int rank, const place *p, tri_group *group,
                          wanted *want)
{
    int size = tri_group_size(group), last = (rank + size - 1) % size;
    const double part = 2.0 * (double)p->rows, whole = size * part, total = size * (size + 1) / 2.0;

    switch (k) {
    case 0:
        *want = (wanted){whole * total, size};
        return tri_dist_all_reduce(x, TRI_REDOP_SUM, group);
    case 1:
        *want = (wanted){whole * total / size, 1};
        return tri_dist_all_reduce(x, TRI_REDOP_AVG, group);
    case 2:
        *want = (wanted){whole * total, size};
        return tri_dist_all_gather(x, 1, group);
    case 3:
        *want = (wanted){part * total, 1};
        return tri_dist_reduce_scatter(x, TRI_REDOP_SUM, 0, group);
    case 4:
        *want = (wanted){part * total, 1};
        return tri_dist_all_to_all(x, group);
    case 5:
        *want = (wanted){whole * (last + 1), 1};
        return exchanged(x, rank, size, group);
    case 6:
        *want = (wanted){whole * size, rank == size - 1 ? size : 0};
        return tri_dist_broadcast(x, size - 1, group);
    case 7:
        *want = (wanted){whole * (last + 1), 1};
        return messages(x, rank, size, p, group);
    case 8:
        *want = (wanted){whole * (rank + 1), size};
        return tri_dist_copy_to(x, group);
    case 9:
        *want = (wanted){whole * total, 1};
        return tri_dist_reduce_from(x, group);
    case 10:
        *want = (wanted){part * (rank + 1), 1};
        return tri_dist_scatter_to(x, 0, group);
    default:
        *want = (wanted){whole * total, 1};
        return tri_dist_gather_from(x, 0, group);
    }
}

static tri_tensor *sum(tri_tensor *t)
{
    return tri_sum(tri_cast(t, TRI_DTYPE_F64), NULL, 0, false);
}

/* x (16 bits under tri_autocast, as a product is) and the call. */
static tri_tensor *under(const place *p, int k, tri_tensor *x, int rank, tri_group *group,
                         wanted *want)
{
    tri_tensor *mean = NULL, *y = NULL;

    if (!p->casts)
        return called(k, x, rank, p, group, want);
    TRI_ON(p->device)
    {
        mean = tri_full(TRI_SHAPE(2, 2), 0.5, TRI_DTYPE_F32);
    }
    TRI_AUTOCAST(TRI_DTYPE_BF16)
    {
        y = called(k, tri_matmul(x, mean), rank, p, group, want);
    }
    return y;
}

/* Full of this number. */
static tri_tensor *operand(const place *p, int64_t rows, int number)
{
    size_t n = 2 * (size_t)rows, bytes = n * tri_dtype_size(p->dtype);
    void *data = malloc(bytes + 1);
    tri_tensor *x = NULL;

    for (size_t i = 0; data != NULL && i < n; i++) {
        if (p->dtype == TRI_DTYPE_F32)
            ((float *)data)[i] = (float)number;
        else
            ((double *)data)[i] = number;
    }
    TRI_ON(p->device)
    {
        x = tri_tensor_from(TRI_SHAPE(rows, 2), p->dtype, data);
    }
    free(data);
    tri_requires_grad(x, true);
    return x;
}

static const char *one_call(rank_env *env, const place *p, int k, tri_group *group)
{
    const tri_dtype dtype = p->casts ? TRI_DTYPE_BF16 : p->dtype;
    tri_tensor *x = operand(p, env->size * p->rows, env->rank + 1), *y;
    double got = 0, grads = 0, n = (double)(2 * env->size * p->rows);
    wanted want;

    y = tri_keep(under(p, k, x, env->rank, group, &want));
    tri_backward(sum(y));
    RANK_TRY(env, tri_item_status(sum(y), &got));
    RANK_TRY(env, tri_item_status(sum(tri_grad(x)), &grads));
    if (got != want.sum || grads != n * want.grad || tri_tensor_dtype(y) != dtype ||
        tri_tensor_dtype(tri_grad(x)) != p->dtype || tri_tensor_device(y) != p->device ||
        tri_tensor_device(tri_grad(x)) != p->device)
        return RANK_FAIL(env,
                         "call %d on device %d, rank %d of %d: %g %s, not %g; gradients %g, "
                         "not %g",
                         k, (int)p->device, env->rank, env->size, got,
                         tri_dtype_name(tri_tensor_dtype(y)), want.sum, grads, n * want.grad);
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    return NULL;
}

static const char *all_calls(rank_env *env)
{
    tri_group *group = NULL;
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int k = 0; k < CALLS && wrong == NULL; k++)
        wrong = one_call(env, env->arg, k, group);
    tri_group_unref(group);
    return wrong;
}

static void at(place p)
{
    for (int e = 0; e < 2; e++)
        for (int size = 2; size <= 3; size++)
            run_threads(size, &engines[e], all_calls, &p);
}

/* --- places --------------------------------------------------------------- */

static void everywhere(void)
{
    for (int64_t rows = 0; rows < 3; rows++)
        at((place){TRI_CPU(0), TRI_DTYPE_F32, rows, false});
    at((place){TRI_CPU(1), TRI_DTYPE_F32, 2, false});
    at((place){TRI_CPU(0), TRI_DTYPE_F32, 2, true});
    at((place){TRI_CPU(1), TRI_DTYPE_F32, 1, true});
    at((place){TRI_CPU(0), TRI_DTYPE_F32, 0, true});
    at((place){TRI_CPU(1), TRI_DTYPE_F64, 0, false});
}

static void on_devices_and_under_autocast(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    everywhere();
}

static void operation_by_operation(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    setenv("TRI_EAGER", "1", 1);
    everywhere();
    unsetenv("TRI_EAGER");
}

static void with_values_and_calls_looked_at(void **state)
{
    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    setenv("TRI_CHECK", "nan", 1);
    everywhere();
    setenv("TRI_CHECK", "order", 1);
    everywhere();
    unsetenv("TRI_CHECK");
}

/* 2^22 elements on 2 ranks; for its time two calls over each engine. */
static const char *many_rank(rank_env *env)
{
    static const int calls[2][2] = {{3, 7}, {0, 5}};
    const place p = {TRI_CPU(0), TRI_DTYPE_F32, 1 << 20, false};
    tri_group *group = NULL;
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int i = 0; i < 2 && wrong == NULL; i++)
        wrong = one_call(env, &p, calls[*(const int *)env->arg][i], group);
    tri_group_unref(group);
    return wrong;
}

static void of_many_elements(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], many_rank, &e);
}

/* --- threads -------------------------------------------------------------- */

typedef struct worker {
    rank_env env;
    trii_thread thread;
    tri_group *group;
    const char *wrong;
} worker;

static void work(void *arg)
{
    worker *w = arg;
    const place p = {TRI_CPU(0), TRI_DTYPE_F32, 2, false};

    for (int round = 0; round < 3 && w->wrong == NULL; round++)
        for (int k = 0; k < CALLS && w->wrong == NULL; k++)
            w->wrong = one_call(&w->env, &p, k, w->group);
}

/* Two threads of each rank, each with a context and a group of its own. */
static const char *threads_rank(rank_env *env)
{
    static worker workers[RANKS_MAX][2];
    worker *mine = workers[env->rank];
    const char *wrong = NULL;

    for (int i = 0; i < 2; i++) {
        mine[i] = (worker){.env = *env};
        RANK_TRY(env,
                 tri_group_create(env->store, env->rank, env->size, env->options, &mine[i].group));
    }
    for (int i = 0; i < 2; i++)
        RANK_TRY(env, trii_thread_start(&mine[i].thread, "worker", work, &mine[i]));
    for (int i = 0; i < 2; i++) {
        trii_thread_join(&mine[i].thread);
        if (mine[i].wrong != NULL)
            wrong = RANK_FAIL(env, "thread %d: %s", i, mine[i].wrong);
        tri_group_unref(mine[i].group);
    }
    return wrong;
}

static void in_several_threads(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], threads_rank, NULL);
}

typedef struct passed_on {
    tri_context *context;
    tri_status status;
    char line[512];
} passed_on;

static void run_it(void *arg)
{
    passed_on *p = arg;

    p->status = tri_context_enter(p->context);
    if (p->status == TRI_OK)
        p->status = tri_run();
    snprintf(p->line, sizeof(p->line), "%s", tri_last_error());
    if (p->status == TRI_OK)
        p->status = tri_context_leave();
}

/* Recorded by one thread, and run by another one. */
static const char *moved_rank(rank_env *env)
{
    const place p = {TRI_CPU(0), TRI_DTYPE_F32, 2, false};
    passed_on passed = {.status = TRI_OK};
    tri_group *group = NULL;
    tri_tensor *x = operand(&p, 2 * env->size, env->rank + 1), *y[CALLS];
    double got = 0, want_grads = 0, n = (double)(4 * env->size);
    trii_thread thread;
    wanted want[CALLS];

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_context_create(&passed.context));
    RANK_TRY(env, tri_context_enter(passed.context));
    for (int k = 0; k < CALLS; k++) {
        y[k] = tri_keep(called(k, x, env->rank, &p, group, &want[k]));
        tri_backward(sum(y[k]));
        want_grads += n * want[k].grad;
    }
    RANK_TRY(env, tri_context_leave());
    RANK_TRY(env, trii_thread_start(&thread, "runs", run_it, &passed));
    trii_thread_join(&thread);
    if (passed.status != TRI_OK)
        return RANK_FAIL(env, "rank %d: %s", env->rank, passed.line);
    RANK_TRY(env, tri_context_enter(passed.context));
    for (int k = 0; k < CALLS; k++) {
        RANK_TRY(env, tri_item_status(sum(y[k]), &got));
        if (got != want[k].sum)
            return RANK_FAIL(env, "call %d, rank %d: %g, not %g", k, env->rank, got, want[k].sum);
    }
    RANK_TRY(env, tri_item_status(sum(tri_grad(x)), &got));
    RANK_TRY(env, tri_step_end_status());
    RANK_TRY(env, tri_context_leave());
    tri_context_destroy(passed.context);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return got == want_grads ? NULL
                             : RANK_FAIL(env, "gradients add up to %g, not %g", got, want_grads);
}

static void in_a_context_that_threads_pass_on(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], moved_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(on_devices_and_under_autocast),
    cmocka_unit_test(operation_by_operation),
    cmocka_unit_test(with_values_and_calls_looked_at),
    cmocka_unit_test(of_many_elements),
    cmocka_unit_test(in_several_threads),
    cmocka_unit_test(in_a_context_that_threads_pass_on),
};

TEST_MAIN(tests)
