/* dist_gradients_test.c - gradients of first and second order of every collective of dist.h on 2
 * and 3 ranks, against differences: of the sum of the ranks' losses, or of the loss that all have.
 */
/* ctest: timeout=120 */
#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"

/* x [2 p, p] of p ranks, and a weight of the result's size. */
#define MOST 36
#define PART 3 /* elements of each tensor that are moved */
#define EPS 1e-5

typedef enum kind {
    ALL_REDUCE,
    AVERAGE,
    ALL_GATHER,
    ALL_GATHER_1,
    REDUCE_SCATTER,
    REDUCE_SCATTER_1,
    ALL_TO_ALL,
    ALL_TO_ALL_V,
    BROADCAST,
    SEND,
    /* of one loss */
    COPY_REDUCE,
    SCATTER_GATHER,
    SCATTER_GATHER_1,
    SEQUENCE
} kind;

typedef struct problem {
    kind kind;
    bool second; /* the loss is the sum of its own gradients, weighted */
    int size;
    tri_group *group;
    tri_tensor *x, *w; /* same on all ranks where the loss is one; another w on each */
} problem;

static bool is_shared(const problem *p)
{
    return p->kind >= COPY_REDUCE;
}

static tri_tensor *sum(tri_tensor *t)
{
    return tri_sum(t, NULL, 0, false);
}

/* By the ranks' own weights, so that ranks' gradients differ. */
static tri_tensor *weighted(const problem *p, tri_tensor *t)
{
    tri_tensor *w = tri_narrow(p->w, 0, 0, tri_tensor_size(t, 0) * tri_tensor_size(t, 1));

    return tri_tanh(
        tri_mul(t, tri_reshape(w, TRI_SHAPE(tri_tensor_size(t, 0), tri_tensor_size(t, 1)))));
}

/* Passed on to the next rank, and back. */
static tri_tensor *sent(const problem *p)
{
    int rank = tri_group_rank(p->group), next = (rank + 1) % p->size,
        last = (rank + p->size - 1) % p->size;
    tri_tensor *token = tri_dist_send(p->x, next, 1, p->group);
    tri_tensor *y =
        tri_dist_recv(TRI_SHAPE(2 * p->size, p->size), TRI_DTYPE_F64, true, last, 1, p->group);

    return tri_add(sum(weighted(p, y)), sum(tri_cast(token, TRI_DTYPE_F64)));
}

/* Rank r sends one row to rank 0, two to rank 1, and the rest of its 2 size rows to the last. */
static tri_tensor *exchanged(const problem *p)
{
    int64_t to[3] = {1, 2 * p->size - 1, 0}, from[3];
    int rank = tri_group_rank(p->group);

    if (p->size == 3) {
        to[1] = 2;
        to[2] = 3;
    }
    for (int r = 0; r < p->size; r++)
        from[r] = to[rank];
    return tri_dist_all_to_all_v(tri_square(p->x), to, from, p->group);
}

/* This rank's loss, of first order. */
static tri_tensor *loss_of(const problem *p)
{
    tri_tensor *x = p->x, *y = NULL;
    tri_group *g = p->group;
    const tri_redop op = TRI_REDOP_SUM;

    switch (p->kind) {
    case ALL_REDUCE:
        y = tri_dist_all_reduce(tri_square(x), op, g);
        break;
    case AVERAGE:
        y = tri_dist_all_reduce(tri_square(x), TRI_REDOP_AVG, g);
        break;
    case ALL_GATHER:
    case ALL_GATHER_1:
        y = tri_dist_all_gather(tri_square(x), p->kind == ALL_GATHER_1, g);
        break;
    case REDUCE_SCATTER:
        y = tri_dist_reduce_scatter(tri_square(x), op, 0, g);
        break;
    case REDUCE_SCATTER_1:
        y = tri_dist_reduce_scatter(tri_square(x), TRI_REDOP_AVG, -1, g);
        break;
    case ALL_TO_ALL:
        y = tri_dist_all_to_all(tri_square(x), g);
        break;
    case ALL_TO_ALL_V:
        y = exchanged(p);
        break;
    case BROADCAST:
        y = tri_dist_broadcast(tri_square(x), 1, g);
        break;
    case SEND:
        return sent(p);
    case COPY_REDUCE:
        y = tri_dist_reduce_from(weighted(p, tri_dist_copy_to(tri_square(x), g)), g);
        return sum(tri_square(y));
    case SCATTER_GATHER:
    case SCATTER_GATHER_1:
        y = tri_dist_scatter_to(tri_square(x), p->kind == SCATTER_GATHER_1, g);
        y = tri_dist_gather_from(weighted(p, y), p->kind == SCATTER_GATHER_1, g);
        return sum(tri_square(y));
    default: /* parts of a sequence are gathered, and sums are cut into them */
        y = tri_dist_all_gather(tri_dist_scatter_to(tri_square(x), 0, g), 0, g);
        y = tri_dist_reduce_scatter(weighted(p, y), op, 0, g);
        return sum(tri_square(tri_dist_gather_from(y, 0, g)));
    }
    return sum(weighted(p, y));
}

/* Numbers that differ from element to element. */
static tri_tensor *slant(tri_tensor *t)
{
    int n = (int)tri_tensor_numel(t);
    tri_tensor *by = tri_add_scalar(tri_arange(0, n, 1, TRI_DTYPE_F64), 1);

    return sum(tri_mul(tri_reshape(t, TRI_SHAPE(n)), by));
}

/* The loss that is differentiated: the ranks' add up, or all have this one. */
static tri_status record(const problem *p, tri_tensor **out)
{
    tri_tensor *loss = loss_of(p), *grads[2] = {NULL, NULL}, *of_x, *of_w;
    tri_status status;

    *out = loss;
    if (!p->second)
        return TRI_OK;
    status = tri_gradients(&loss, 1, (tri_tensor *[]){p->x, p->w}, 2,
                           &(tri_gradients_options){.create_graph = true}, grads);
    if (status != TRI_OK)
        return status;
    of_x = slant(grads[0]);
    of_w = slant(grads[1]);
    if (is_shared(p)) /* all ranks have the gradient of x, and each that of its w */
        of_w = tri_dist_reduce_from(of_w, p->group);
    *out = tri_add(of_x, of_w);
    return TRI_OK;
}

static tri_status value_of(const problem *p, double *out)
{
    tri_tensor *loss = NULL;
    tri_status status = record(p, &loss);

    if (status == TRI_OK)
        status = tri_item_status(loss, out);
    if (status == TRI_OK)
        status = tri_step_end_status();
    if (status == TRI_OK && !is_shared(p))
        status = (tri_all_reduce)(p->group, out, out, 1, TRI_DTYPE_F64, TRI_REDOP_SUM, NULL);
    return status;
}

static tri_status move(tri_tensor *t, int at, double by)
{
    double data[MOST];
    size_t bytes = (size_t)tri_tensor_numel(t) * sizeof(double);
    tri_status status = tri_tensor_copy_out(t, data, bytes);

    data[at] += by;
    return status == TRI_OK ? tri_tensor_copy_in(t, data, bytes) : status;
}

/* d loss / d element `at` of the tensor of rank `of`, -1: of all ranks at once. */
static tri_status slope(const problem *p, tri_tensor *t, int of, int at, double *out)
{
    bool mine = of < 0 || of == tri_group_rank(p->group);
    double up = 0, down = 0;
    tri_status status = mine ? move(t, at, EPS) : TRI_OK;

    if (status == TRI_OK)
        status = value_of(p, &up);
    if (status == TRI_OK && mine)
        status = move(t, at, -2 * EPS);
    if (status == TRI_OK)
        status = value_of(p, &down);
    if (status == TRI_OK && mine)
        status = move(t, at, EPS);
    *out = (up - down) / (2 * EPS);
    return status;
}

static const char *compare(rank_env *env, const problem *p, tri_tensor *t, bool alike,
                           const char *name)
{
    double got[MOST], want = 0;
    int n = (int)tri_tensor_numel(t);

    RANK_TRY(env, tri_tensor_copy_out(tri_grad(t), got, (size_t)n * sizeof(double)));
    tri_step_end();
    for (int of = alike ? -1 : 0; of < (alike ? 0 : env->size); of++) {
        for (int k = 0; k < PART; k++) {
            int at = k * (n - 1) / (PART - 1);

            RANK_TRY(env, slope(p, t, of, at, &want));
            if ((of < 0 || of == env->rank) && !(fabs(got[at] - want) <= 1e-6 * (1 + fabs(want))))
                return RANK_FAIL(
                    env, "kind %d, order %d, %d ranks, rank %d: d/d%s[%d] is %g, not %g", p->kind,
                    1 + p->second, env->size, env->rank, name, at, got[at], want);
        }
    }
    return NULL;
}

static const char *check(rank_env *env, problem *p)
{
    double x[MOST], w[MOST * 3];
    int n = 2 * env->size * env->size;
    tri_tensor *loss = NULL;
    const char *wrong;

    for (int i = 0; i < n; i++)
        x[i] = 0.5 + 0.3 * sin(i + 1.0 + (is_shared(p) ? 0 : 2.0 * env->rank));
    for (int i = 0; i < n * env->size; i++)
        w[i] = 0.7 * cos(2.0 * i + 3 * env->rank);
    p->x = tri_tensor_from(TRI_SHAPE(2 * env->size, env->size), TRI_DTYPE_F64, x);
    p->w = tri_tensor_from(TRI_SHAPE(n * env->size), TRI_DTYPE_F64, w);
    tri_requires_grad(p->x, true);
    tri_requires_grad(p->w, true);
    RANK_TRY(env, record(p, &loss));
    tri_backward(loss);
    RANK_TRY(env, tri_run());
    wrong = compare(env, p, p->x, is_shared(p), "x");
    tri_tensor_unref(p->x);
    tri_tensor_unref(p->w);
    return wrong;
}

static const char *kinds_rank(rank_env *env)
{
    problem p = {.size = env->size};
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &p.group));
    for (p.kind = ALL_REDUCE; p.kind <= SEQUENCE && wrong == NULL; p.kind++) {
        for (int second = 0; second < 2 && wrong == NULL; second++) {
            p.second = second != 0;
            if (!p.second || p.kind != SEND) /* a message has a gradient only where it began */
                wrong = check(env, &p);
        }
    }
    tri_group_unref(p.group);
    return wrong;
}

static void gradients_match_differences(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, kinds_rank, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_match_differences),
};

TEST_MAIN(tests)
