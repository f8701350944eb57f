/* dist_models_test.c - models whose ranks have parts of one: by columns and by rows as one process,
 * alone and with replicas of each part along another axis of a mesh (tri_ddp), whose weights are
 * those of uneven batches. */
/* ctest: also=TRI_CHECK=order */
#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"

#define IN 4
#define HIDDEN 6
#define OUT 3
#define ROWS 5
#define STEPS 3
#define NUMBERS (HIDDEN * IN + HIDDEN + OUT * HIDDEN + OUT + IN)

static double number(int i)
{
    return 0.6 * sin(1.7 * i + 0.3);
}

/* --- the model ------------------------------------------------------------ */

/* Rank `at` of `size` has so many of the hidden units: rows of w1, columns of w2. */
typedef struct part {
    tri_group *group; /* of the ranks that have the others; NULL: none has */
    tri_group *mixed; /* between whose ranks it also takes a mean; NULL: none */
    int at, size;
    tri_tensor *w1, *b1, *w2, *b2;
    tri_tensor *shift; /* of the input, on all ranks */
} part;

static tri_tensor *forward(tri_module *self, tri_tensor *x)
{
    part *p = tri_module_data(self);
    tri_tensor *h, *y;

    x = tri_add(x, p->shift);
    if (p->group != NULL)
        x = tri_dist_copy_to(x, p->group);
    h = tri_tanh(tri_linear(x, p->w1, p->b1));
    if (p->mixed != NULL)
        h = tri_add(h, tri_mul_scalar(tri_dist_all_reduce(tri_mean(h, (int64_t[]){0}, 1, true),
                                                          TRI_REDOP_AVG, p->mixed),
                                      0.1));
    y = tri_linear(h, p->w2, NULL);
    if (p->group != NULL)
        y = tri_dist_reduce_from(y, p->group);
    return tri_add(y, p->b2);
}

static tri_tensor *rows(int first, int n, int width)
{
    double data[2 * ROWS * IN];

    for (int i = 0; i < n * width; i++)
        data[i] = number(31 * width + first * width + i);
    return tri_tensor_from(TRI_SHAPE(n, width), TRI_DTYPE_F64, data);
}

static tri_tensor *param(tri_module *self, const char *name, const int64_t *shape, int ndim,
                         const double *data)
{
    return tri_module_add_parameter(self, name, tri_tensor_from(shape, ndim, TRI_DTYPE_F64, data));
}

static tri_module *build(tri_group *group, int at, int size)
{
    tri_module *self = tri_module_simple("part", sizeof(part), forward);
    part *p = tri_module_data(self);
    int n = HIDDEN / size, first = at * n;
    double w1[HIDDEN * IN], b1[HIDDEN], w2[OUT * HIDDEN], b2[OUT], shift[IN] = {0.1, -0.2};

    for (int i = 0; i < n * IN; i++)
        w1[i] = number(first * IN + i);
    for (int i = 0; i < n; i++)
        b1[i] = number(100 + first + i);
    for (int o = 0; o < OUT; o++) {
        for (int i = 0; i < n; i++)
            w2[o * n + i] = number(200 + o * HIDDEN + first + i);
        b2[o] = number(300 + o);
    }
    p->group = group;
    p->at = at;
    p->size = size;
    p->w1 = param(self, "w1", TRI_SHAPE(n, IN), w1);
    p->b1 = param(self, "b1", TRI_SHAPE(n), b1);
    p->w2 = param(self, "w2", TRI_SHAPE(OUT, n), w2);
    p->b2 = param(self, "b2", TRI_SHAPE(OUT), b2);
    p->shift = param(self, "shift", TRI_SHAPE(IN), shift);
    return self;
}

/* Writes what this part has of each parameter to its place in the whole. */
static tri_status put(const part *p, double *whole)
{
    int n = HIDDEN / p->size, first = p->at * n;
    double w2[OUT * HIDDEN];
    tri_status status =
        tri_tensor_copy_out(p->w1, whole + first * IN, (size_t)(n * IN) * sizeof(double));

    if (status == TRI_OK)
        status =
            tri_tensor_copy_out(p->b1, whole + HIDDEN * IN + first, (size_t)n * sizeof(double));
    if (status == TRI_OK)
        status = tri_tensor_copy_out(p->w2, w2, (size_t)(OUT * n) * sizeof(double));
    if (status == TRI_OK)
        status = tri_tensor_copy_out(p->b2, whole + NUMBERS - IN - OUT, OUT * sizeof(double));
    if (status == TRI_OK)
        status = tri_tensor_copy_out(p->shift, whole + NUMBERS - IN, IN * sizeof(double));
    for (int o = 0; o < OUT && status == TRI_OK; o++)
        for (int i = 0; i < n; i++)
            whole[HIDDEN * IN + HIDDEN + o * HIDDEN + first + i] = w2[o * n + i];
    return status;
}

/* --- training ------------------------------------------------------------- */

typedef struct job {
    int n_data, n_tensor;
    bool mixes;  /* the model takes means over all ranks as well */
    bool beside; /* the loss reaches a tensor outside of the model */
    double want[NUMBERS], loss;
    double input[ROWS * IN]; /* gradients of the input, of all steps */
} job;

static tri_status train(const job *j, tri_module *model, int first, int n, double *loss_out,
                        double *input)
{
    tri_optimizer *optimizer = tri_sgd(model, 0.2, NULL);
    tri_tensor *x = rows(first, n, IN), *y = rows(first, n, OUT); /* x's gradients add up */
    tri_tensor *scale = tri_tensor_from(NULL, 0, TRI_DTYPE_F64, &(double){1});
    tri_status status = TRI_OK;

    tri_requires_grad(scale, j->beside);
    tri_requires_grad(x, input != NULL);
    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_tensor *loss = tri_mse_loss(tri_mul(tri_forward(model, x), scale), y, NULL);

        loss = tri_keep(loss);
        tri_backward(loss);
        status = tri_optimizer_step(optimizer);
        if (status == TRI_OK)
            status = tri_item_status(loss, loss_out);
        if (status == TRI_OK && input != NULL)
            status = tri_tensor_copy_out(tri_grad(x), input, (size_t)(n * IN) * sizeof(double));
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    if (status != TRI_OK)
        tri_step_end();
    tri_tensor_unref(scale);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(optimizer);
    return status;
}

static const char *far_from(rank_env *env, const char *what, const double *got, const double *want,
                            int n)
{
    for (int i = 0; i < n; i++) {
        if (!(fabs(got[i] - want[i]) <= 1e-9 * (1 + fabs(want[i]))))
            return RANK_FAIL(env, "rank %d of %d: %s %d is %.12g, not %.12g", env->rank, env->size,
                             what, i, got[i], want[i]);
    }
    return NULL;
}

/* What other ranks have is left as it should be. */
static const char *compare(rank_env *env, const part *p, const double *want)
{
    double got[NUMBERS];

    memcpy(got, want, sizeof(got));
    RANK_TRY(env, put(p, got));
    return far_from(env, "weight", got, want, NUMBERS);
}

static const char *parts_rank(rank_env *env)
{
    const job *j = env->arg;
    tri_group *group = NULL;
    tri_module *model;
    double loss = 0, input[ROWS * IN];
    const char *wrong;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    model = build(group, env->rank, env->size);
    RANK_TRY(env, train(j, model, 0, ROWS, &loss, input));
    wrong = compare(env, tri_module_data(model), j->want);
    if (wrong == NULL)
        wrong = far_from(env, "loss", &loss, &j->loss, 1);
    if (wrong == NULL)
        wrong = far_from(env, "gradient of the input", input, j->input, ROWS * IN);
    tri_module_destroy(model);
    tri_group_unref(group);
    return wrong;
}

static void one_process(job *j)
{
    tri_module *model = build(NULL, 0, 1);

    CHECK_OK(train(&(job){0}, model, 0, ROWS, &j->loss, j->input));
    CHECK_OK(put(tri_module_data(model), j->want));
    tri_module_destroy(model);
}

static void columns_and_rows_of_two_layers_are_one_process(void **state)
{
    job j = {0};

    (void)state;
    one_process(&j);
    for (int size = 2; size <= 3; size++)
        run_threads(size, &(tri_group_options){.engine = "shm"}, parts_rank, &j);
}

/* --- with replicas -------------------------------------------------------- */

static const char *mesh_rank(rank_env *env)
{
    const job *j = env->arg;
    tri_group *world = NULL, *tensor;
    tri_mesh *mesh = NULL;
    tri_module *net, *model;
    part *p;
    double loss = 0;
    const char *wrong = NULL;
    int data;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &world));
    RANK_TRY(env, tri_mesh_create(world, TRI_SHAPE(j->n_data, j->n_tensor),
                                  (const char *[]){"data", "tensor"}, &mesh));
    tensor = tri_mesh_group(mesh, "tensor");
    data = tri_mesh_coordinate(mesh, "data");
    net = build(tensor, tri_group_rank(tensor), j->n_tensor);
    p = tri_module_data(net);
    p->mixed = j->mixes ? world : NULL;
    model = tri_ddp(net, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
    /* 4 rows and 1 */
    if (j->mixes && j->beside) {
        /* where one is refused, others may only see that it has given up */
        if (train(j, model, data == 0 ? 0 : 4, data == 0 ? 4 : 1, &loss, NULL) == TRI_OK)
            wrong = RANK_FAIL(env, "uneven batches were not refused");
        RANK_TRY(env, ranks_meet(env, "refused", -1));
    } else {
        RANK_TRY(env, train(j, model, data == 0 ? 0 : 4, data == 0 ? 4 : 1, &loss, NULL));
        if (!j->mixes)
            wrong = compare(env, p, j->want);
    }
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    tri_group_unref(world);
    return wrong;
}

static void replicas_of_parts_are_weighted_as_those_of_a_whole(void **state)
{
    job j = {.n_data = 2, .n_tensor = 2};

    (void)state;
    one_process(&j);
    for (int beside = 0; beside < 2; beside++) {
        j.beside = beside == 1;
        run_threads(4, &(tri_group_options){.engine = "shm"}, mesh_rank, &j);
    }
}

static void sums_over_the_replicas_themselves_are_weighted_before(void **state)
{
    job j = {.n_data = 2, .n_tensor = 2, .mixes = true};

    (void)state;
    for (int beside = 0; beside < 2; beside++) {
        j.beside = beside == 1;
        run_threads(4, &(tri_group_options){.engine = "shm"}, mesh_rank, &j);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(columns_and_rows_of_two_layers_are_one_process),
    cmocka_unit_test(replicas_of_parts_are_weighted_as_those_of_a_whole),
    cmocka_unit_test(sums_over_the_replicas_themselves_are_weighted_before),
};

TEST_MAIN(tests)
