/* dist_test.c - collectives of tensors: values and gradients as torch's (tests/golden/dist.txt,
 * made by make_dist.py), dtypes, sizes, one rank, and what is refused. */
/* ctest: also=TRI_CHECK=order */
#include <math.h>

#include <trireme/trireme.h>

#include "base/dtype.h"
#include "testing/check.h"
#include "testing/ranks.h"

static const tri_group_options engines[] = {{.engine = "shm"}, {.engine = "tcp"}};

static tri_status join(rank_env *env, tri_group **group_out)
{
    return tri_group_create(env->store, env->rank, env->size, env->options, group_out);
}

/* --- as torch ------------------------------------------------------------- */

#define MOST 512

typedef struct golden {
    char call[24];
    int number, ranks, rank, ndim;
    int64_t shape[3];
    int n, m;
    double y[MOST], grad[MOST];
} golden;

static bool read_numbers(FILE *file, int *n_out, double *to)
{
    if (fscanf(file, "%d", n_out) != 1 || *n_out > MOST)
        return false;
    for (int i = 0; i < *n_out; i++) {
        if (fscanf(file, "%lf", &to[i]) != 1)
            return false;
    }
    return true;
}

static bool next(FILE *file, golden *g)
{
    if (fscanf(file, "%23s %d %d %d %d %ld %ld %ld", g->call, &g->number, &g->ranks, &g->rank,
               &g->ndim, &g->shape[0], &g->shape[1], &g->shape[2]) != 8)
        return false;
    return read_numbers(file, &g->n, g->y) && read_numbers(file, &g->m, g->grad);
}

static tri_tensor *numbers(const int64_t *shape, int ndim, int rank)
{
    double data[MOST];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    for (int i = 0; i < (int)n; i++)
        data[i] = (7 * i + 5 * rank) % 11 / 4.0 - 1;
    return tri_tensor_from(shape, ndim, TRI_DTYPE_F64, data);
}

/* make_dist.py: of 2 size rows, how many the rank sends to each. */
static void rows_to(int number, int rank, int size, int64_t *rows)
{
    rows[size - 1] = 2 * size;
    for (int r = 0; r < size - 1; r++) {
        rows[r] = (rank + 2 * r + number) % 3;
        rows[size - 1] -= rows[r];
    }
}

static tri_tensor *exchanged(int number, tri_tensor *x, tri_group *group)
{
    int64_t to[RANKS_MAX], from[RANKS_MAX], other[RANKS_MAX];
    int rank = tri_group_rank(group), size = tri_group_size(group);

    rows_to(number, rank, size, to);
    for (int r = 0; r < size; r++) {
        rows_to(number, r, size, other);
        from[r] = other[rank];
    }
    return tri_dist_all_to_all_v(x, to, from, group);
}

static tri_tensor *called(const golden *g, tri_tensor *x, tri_group *group)
{
    if (strcmp(g->call, "all_reduce") == 0)
        return tri_dist_all_reduce(x, TRI_REDOP_SUM, group);
    if (strcmp(g->call, "all_gather") == 0)
        return tri_dist_all_gather(x, g->number, group);
    if (strcmp(g->call, "reduce_scatter") == 0)
        return tri_dist_reduce_scatter(x, TRI_REDOP_SUM, g->number - 3, group);
    if (strcmp(g->call, "all_to_all") == 0)
        return tri_dist_all_to_all(x, group);
    if (strcmp(g->call, "all_to_all_v") == 0)
        return exchanged(g->number, x, group);
    return tri_dist_broadcast(x, g->number, group);
}

/* The loss of make_dist.py. */
static tri_tensor *loss_of(tri_tensor *y, int rank)
{
    tri_tensor *sum = tri_square(y), *w;
    int n = (int)tri_tensor_numel(y);
    double data[MOST];

    for (int i = 0; i < n; i++)
        data[i] = (rank + 1) * (1 + i % 3);
    w = tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_F64, data);
    sum = tri_sum(tri_mul(tri_reshape(sum, TRI_SHAPE(n)), w), NULL, 0, false);
    tri_tensor_unref(w);
    return sum;
}

static const char *differ(rank_env *env, const char *what, tri_tensor *t, const double *want, int n)
{
    double got[MOST];

    RANK_TRY(env, tri_tensor_copy_out(t, got, (size_t)n * sizeof(double)));
    for (int i = 0; i < n; i++) {
        if (got[i] != want[i])
            return RANK_FAIL(env, "rank %d: %s: element %d is %.17g, not %.17g", env->rank, what, i,
                             got[i], want[i]);
    }
    return NULL;
}

static const char *golden_rank(rank_env *env)
{
    FILE *file = NULL;
    tri_group *group = NULL;
    golden *g = malloc(sizeof(*g));
    const char *wrong = NULL;
    char path[600];
    int seen = 0;

    RANK_TRY(env, join(env, &group));
    snprintf(path, sizeof(path), "%s/tests/golden/dist.txt", getenv("TRI_TEST_SOURCE"));
    file = fopen(path, "r");
    while (file != NULL && g != NULL && wrong == NULL && next(file, g)) {
        tri_tensor *x = numbers(TRI_SHAPE(2 * env->size, env->size, 3), env->rank), *y;

        if (g->ranks != env->size || g->rank != env->rank) {
            tri_tensor_unref(x);
            continue;
        }
        seen++;
        tri_requires_grad(x, true);
        y = tri_keep(called(g, x, group));
        for (int d = 0; d < 3 && wrong == NULL; d++) {
            if (tri_tensor_size(y, d) != g->shape[d])
                wrong = RANK_FAIL(env, "%s %d: size %d is %ld", g->call, g->number, d,
                                  (long)tri_tensor_size(y, d));
        }
        tri_backward(loss_of(y, env->rank));
        if (wrong == NULL)
            wrong = differ(env, g->call, y, g->y, g->n);
        if (wrong == NULL)
            wrong = differ(env, g->call, tri_grad(x), g->grad, g->m);
        RANK_TRY(env, tri_step_end_status());
        tri_tensor_unref(x);
    }
    if (wrong == NULL && seen != 11)
        wrong = RANK_FAIL(env, "%d lines of %s are for rank %d", seen, path, env->rank);
    if (file != NULL)
        fclose(file);
    free(g);
    tri_group_unref(group);
    return wrong;
}

static void values_and_gradients_are_those_of_torch(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        for (int size = 2; size <= 3; size++)
            run_threads(size, &engines[e], golden_rank, NULL);
}

/* --- types, sizes, one rank ----------------------------------------------- */

/* All rows go to the next rank. */
static tri_tensor *handed_on(tri_tensor *x, int next, int last, tri_group *group)
{
    int64_t to[RANKS_MAX] = {0}, from[RANKS_MAX] = {0};

    to[next] = from[last] = tri_tensor_size(x, 0);
    return tri_dist_all_to_all_v(x, to, from, group);
}

/* Every call once, on tensors of this type with n rows for each rank. */
static const char *all_calls(rank_env *env, tri_group *group, tri_dtype dtype, int64_t n)
{
    const tri_redop op = TRI_REDOP_SUM;
    int p = env->size, next = (env->rank + 1) % p, last = (env->rank + p - 1) % p;
    tri_tensor *x = tri_cast(tri_full(TRI_SHAPE(p * n, 2), env->rank + 1, TRI_DTYPE_F32), dtype);
    const double total = p * (p + 1) / 2.0;
    tri_tensor *y[] = {
        tri_dist_all_reduce(x, op, group),
        tri_dist_all_gather(x, 1, group),
        tri_dist_reduce_scatter(x, op, 0, group),
        tri_dist_all_to_all(x, group),
        tri_dist_broadcast(x, p - 1, group),
        tri_dist_send(x, next, 5, group),
        tri_dist_recv(TRI_SHAPE(p * n, 2), dtype, false, last, 5, group),
        tri_dist_copy_to(x, group),
        tri_dist_reduce_from(x, group),
        tri_dist_scatter_to(x, 0, group),
        tri_dist_gather_from(x, 0, group),
        handed_on(x, next, last, group),
    };
    const double whole = (double)(2 * p * n), part = (double)(2 * n);
    const double want[] = {whole * total,      whole * total,
                           part * total,       part * total,
                           whole * p,          0,
                           whole * (last + 1), whole * (env->rank + 1),
                           whole * total,      part * (env->rank + 1),
                           whole * total,      whole * (last + 1)};

    for (int i = 0; i < 12; i++)
        y[i] = tri_keep(y[i]);
    for (int i = 0; i < 12; i++) {
        double sum = -1;

        RANK_TRY(env,
                 tri_item_status(tri_sum(tri_cast(y[i], TRI_DTYPE_F64), NULL, 0, false), &sum));
        if (sum != want[i] || tri_tensor_dtype(y[i]) != (i == 5 ? TRI_DTYPE_F32 : dtype))
            return RANK_FAIL(env, "call %d of %s, %ld rows, rank %d of %d: %g, not %g", i,
                             tri_dtype_name(dtype), (long)n, env->rank, p, sum, want[i]);
    }
    RANK_TRY(env, tri_step_end_status());
    return NULL;
}

static const char *types_rank(rank_env *env)
{
    static const tri_dtype dtypes[] = {TRI_DTYPE_F32, TRI_DTYPE_F64, TRI_DTYPE_BF16, TRI_DTYPE_F16,
                                       TRI_DTYPE_I64, TRI_DTYPE_I32, TRI_DTYPE_U8};
    tri_group *group = NULL;
    const char *wrong = NULL;

    RANK_TRY(env, join(env, &group));
    for (int i = 0; i < 7 && wrong == NULL; i++)
        for (int64_t n = 0; n < 3 && wrong == NULL; n++)
            wrong = all_calls(env, group, dtypes[i], n);
    tri_group_unref(group);
    return wrong;
}

static void any_type_and_size_is_sent(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        for (int size = 1; size <= 3; size++)
            run_threads(size, size > 1 ? &engines[e] : NULL, types_rank, NULL);
}

/* Of one rank: the identity, and its gradient. */
static const char *alone_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x, *y;
    double got[6] = {0};

    RANK_TRY(env, join(env, &group));
    x = numbers(TRI_SHAPE(2, 3), 0);
    tri_requires_grad(x, true);
    y = tri_dist_copy_to(tri_dist_all_to_all(tri_dist_all_reduce(x, TRI_REDOP_AVG, group), group),
                         group);
    y = tri_dist_gather_from(tri_dist_scatter_to(tri_dist_reduce_from(y, group), 1, group), 0,
                             group);
    y = tri_dist_broadcast(
        tri_dist_reduce_scatter(tri_dist_all_gather(y, 0, group), TRI_REDOP_SUM, 1, group), 0,
        group);
    tri_backward(tri_sum(tri_square(y), NULL, 0, false));
    RANK_TRY(env, tri_tensor_copy_out(tri_grad(x), got, sizeof(got)));
    for (int i = 0; i < 6; i++)
        if (got[i] != 2 * (7 * i % 11 / 4.0 - 1))
            return RANK_FAIL(env, "gradient %d is %g", i, got[i]);
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void alone_they_are_the_identity(void **state)
{
    (void)state;
    run_threads(1, NULL, alone_rank, NULL);
}

/* --- reductions ----------------------------------------------------------- */

static const char *reductions_rank(rank_env *env)
{
    static const double want[] = {3, 1.5, 2, 1, 2};
    tri_group *group = NULL;
    tri_tensor *x, *y;
    double got = 0;

    RANK_TRY(env, join(env, &group));
    x = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F64, &(double){env->rank + 1});
    tri_requires_grad(x, true);
    for (tri_redop op = TRI_REDOP_SUM; op <= TRI_REDOP_MAX; op++) {
        y = tri_keep(tri_dist_all_reduce(x, op, group));
        if (op == TRI_REDOP_SUM || op == TRI_REDOP_AVG) {
            tri_backward(tri_mul_scalar(y, env->rank + 1));
            RANK_TRY(env, tri_item_status(y, &got));
        } else {
            RANK_TRY(env, tri_item_status(y, &got));
            tri_backward(y);
            RANK_FAILS(env, tri_run(), TRI_ERR_UNSUPPORTED,
                       "only sums and averages over ranks have gradients: record what needs none "
                       "under TRI_NO_GRAD");
            RANK_TRY(env, ranks_meet(env, tri_redop_name(op), -1));
        }
        if (got != want[op])
            return RANK_FAIL(env, "%s: %g", tri_redop_name(op), got);
        tri_step_end();
    }
    RANK_TRY(env, tri_item_status(tri_grad(x), &got));
    if (got != 3 + 1.5)
        return RANK_FAIL(env, "the gradient of a sum and an average is %g", got);
    tri_step_end();
    /* without one it needs none */
    tri_no_grad_begin();
    y = tri_dist_all_reduce(x, TRI_REDOP_MAX, group);
    tri_no_grad_end();
    tri_backward(tri_sum(tri_mul(x, y), NULL, 0, false));
    RANK_TRY(env, tri_step_end_status());
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void other_reductions_have_values_and_no_gradient(void **state)
{
    (void)state;
    run_threads(2, &engines[0], reductions_rank, NULL);
}

/* --- refusals ------------------------------------------------------------- */

#define ROWS(...) ((const int64_t[]){__VA_ARGS__})
#define REFUSED(env, call, part)                                                                   \
    do {                                                                                           \
        RANK_FAILS(env, tri_tensor_status(call), TRI_ERR_INVALID_ARG, part);                       \
        tri_step_end();                                                                            \
    } while (0)

static const char *refusals_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x, *i64, *one;

    RANK_TRY(env, join(env, &group));
    x = numbers(TRI_SHAPE(3, 4), 0);
    i64 = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &(int64_t){1});
    one = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &(float){1});
    REFUSED(env, tri_dist_all_reduce(NULL, TRI_REDOP_SUM, group), "tri_dist_all_reduce() at ");
    REFUSED(env, tri_dist_all_reduce(x, TRI_REDOP_BXOR, group), "tri_dist_all_reduce(f64 [3, 4])");
    REFUSED(env, tri_dist_all_reduce(x, (tri_redop)99, group), "reduction 99");
    REFUSED(env, tri_dist_all_reduce(i64, TRI_REDOP_AVG, group), "avg of i64");
    REFUSED(env, tri_dist_all_gather(x, 2, group), "tri_dist_all_gather(f64 [3, 4])");
    REFUSED(env, tri_dist_all_gather(one, 0, group), "no dimensions");
    REFUSED(env, tri_dist_reduce_scatter(x, TRI_REDOP_SUM, 0, group),
            "dimension 0 of f64 [3, 4] does not divide into 2 equal parts");
    REFUSED(env, tri_dist_scatter_to(x, -2, group), "does not divide into 2 equal parts");
    REFUSED(env, tri_dist_all_to_all(x, group), "does not divide into 2 equal parts");
    REFUSED(env, tri_dist_all_to_all_v(x, ROWS(1, 1), ROWS(1, 1), group),
            "to adds up to 2 rows; x is f64 [3, 4]");
    REFUSED(env, tri_dist_all_to_all_v(x, ROWS(4, -1), ROWS(1, 1), group), "to[1] is -1 rows");
    REFUSED(env, tri_dist_all_to_all_v(x, ROWS(3, 0), ROWS(INT64_MAX, 1), group),
            "from[1] is 1 rows");
    REFUSED(env, tri_dist_all_to_all_v(x, ROWS(3, 0), ROWS(INT64_MAX - 1, 1), group), "elements");
    REFUSED(env, tri_dist_all_to_all_v(x, NULL, ROWS(1, 1), group), "to is NULL");
    REFUSED(env, tri_dist_all_to_all_v(x, ROWS(3, 0), NULL, group), "from is NULL");
    REFUSED(env, tri_dist_all_to_all_v(one, ROWS(0, 0), ROWS(0, 0), group), "no dimensions");
    REFUSED(env, tri_dist_broadcast(x, 2, group), "root 2 is out of range (group of 2)");
    REFUSED(env, tri_dist_broadcast(x, -1, group), "root -1 is out of range");
    REFUSED(env, tri_dist_send(x, 2, 0, group), "peer 2 is out of range (group of 2)");
    REFUSED(env, tri_dist_send(x, 1, 1 << 29, group), "tag 536870912 is outside 0 to 536870911");
    REFUSED(env, tri_dist_recv(TRI_SHAPE(2), TRI_DTYPE_F32, false, 1, -1, group), "tag -1");
    REFUSED(env, tri_dist_recv(TRI_SHAPE(-2), TRI_DTYPE_F32, false, 1, 0, group),
            "size -2 in dimension 0");
    REFUSED(env, tri_dist_recv(TRI_SHAPE(2), (tri_dtype)77, false, 1, 0, group), "dtype 77");
    REFUSED(env, tri_dist_recv(NULL, 1, TRI_DTYPE_F32, false, 1, 0, group), "shape is NULL");
    RANK_FAILS(env, tri_tensor_status(tri_dist_all_reduce(x, TRI_REDOP_SUM, NULL)), TRI_ERR_STATE,
               "world");
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    tri_tensor_unref(x);
    tri_tensor_unref(i64);
    tri_tensor_unref(one);
    tri_group_unref(group);
    return NULL;
}

static void bad_arguments_are_refused_where_they_are_given(void **state)
{
    (void)state;
    run_threads(2, &engines[0], refusals_rank, NULL);
}

/* Ranks that do not record the same. */
static const char *mismatch_rank(rank_env *env)
{
    tri_group *group = NULL;
    double got;

    RANK_TRY(env, join(env, &group));
    RANK_FAILS(env,
               tri_item_status(
                   tri_sum(tri_dist_all_reduce(tri_ones(TRI_SHAPE(4 + env->rank), TRI_DTYPE_F32),
                                               TRI_REDOP_SUM, group),
                           NULL, 0, false),
                   &got),
               TRI_ERR_MISMATCH, "all_reduce");
    RANK_TRY(env, ranks_meet(env, "differ", -1));
    tri_step_end();
    tri_group_unref(group);
    return NULL;
}

/* Each rank expects more rows than the other sends it. */
static const char *mismatch_rows_rank(rank_env *env)
{
    int64_t to[2] = {1, 2}, from[2] = {1 + 2 * env->rank, 2};
    tri_group *group = NULL;
    tri_tensor *x = numbers(TRI_SHAPE(3, 2), 0);
    double got;

    RANK_TRY(env, join(env, &group));
    RANK_FAILS(
        env,
        tri_item_status(tri_sum(tri_dist_all_to_all_v(x, to, from, group), NULL, 0, false), &got),
        TRI_ERR_MISMATCH, "all_to_all_v");
    RANK_TRY(env, ranks_meet(env, "differ", -1));
    tri_step_end();
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void what_ranks_record_differently_is_named(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], mismatch_rank, NULL);
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], mismatch_rows_rank, NULL);
}

/* Rank 1 fails before its part of the step runs. */
static const char *failing_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_tensor *x = numbers(TRI_SHAPE(4), env->rank), *y;

    RANK_TRY(env, join(env, &group));
    tri_requires_grad(x, true);
    y = tri_dist_reduce_from(tri_tanh(tri_dist_copy_to(x, group)), group);
    if (env->rank == 1)
        y = tri_matmul(y, tri_ones(TRI_SHAPE(3), TRI_DTYPE_F64));
    tri_backward(tri_sum(y, NULL, 0, false));
    RANK_FAILS(env, tri_run(), env->rank == 1 ? TRI_ERR_INVALID_ARG : TRI_ERR_ABORTED,
               "tri_matmul(f64 [4], f64 [3])");
    RANK_TRY(env, ranks_meet(env, "failed", -1));
    tri_step_end();
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void a_rank_that_fails_is_told_to_the_others(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++)
        run_threads(2, &engines[e], failing_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_and_gradients_are_those_of_torch),
    cmocka_unit_test(any_type_and_size_is_sent),
    cmocka_unit_test(alone_they_are_the_identity),
    cmocka_unit_test(other_reductions_have_values_and_no_gradient),
    cmocka_unit_test(bad_arguments_are_refused_where_they_are_given),
    cmocka_unit_test(what_ranks_record_differently_is_named),
    cmocka_unit_test(a_rank_that_fails_is_told_to_the_others),
};

TEST_MAIN(tests)
