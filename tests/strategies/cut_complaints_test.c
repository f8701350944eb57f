/*
 * cut_complaints_test.c - what users of other systems have had to complain of when the network
 * itself was cut over ranks, into stages or layer by layer, and what they get here. Each case names
 * the issues; owner/name#n is https://github.com/owner/name/issues/n.
 *
 * Clipping over stages and parts, norms under sequence parallelism, skip connections, and parts in
 * checkpoints have tests of their own beside their code.
 */
/* ctest: start=first */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "testing/ranks.h"

enum { WIDTH = 6, OUT = 3, MOST_STEPS = 8, MOST_NUMBERS = 4096 };

static trii_mutex drawing = TRII_MUTEX_INITIALIZER; /* the seed is the process's */

/* --- a network, and who has what of it ------------------------------------ */

/* One layer's weights serve twice. */
typedef struct twice {
    tri_module *layer;
} twice;

static tri_tensor *twice_forward(tri_module *self, tri_tensor *x)
{
    const twice *t = tri_module_data(self);

    return tri_tanh(tri_forward(t->layer, tri_tanh(tri_forward(t->layer, x))));
}

static tri_module *twice_create(void)
{
    tri_module *self = tri_module_simple("Twice", sizeof(twice), twice_forward);
    twice *t = tri_module_data(self);

    t->layer = tri_module_add_child(self, "layer", tri_nn_linear(WIDTH, WIDTH, NULL));
    return self;
}

typedef struct way {
    int ranks;
    int tensor; /* so many of them cut layers; 0: none */
    int stages; /* of a pipeline over the others; 0: none. Without both: data parallelism */
    int microbatches;
    tri_pipeline_schedule schedule;
    bool ties, recompute;
} way;

typedef struct training {
    way w;
    int steps;
    int shape[MOST_STEPS][2]; /* rows and tokens of each */
    double losses[MOST_STEPS], want[MOST_STEPS];
} training;

/* [rows, tokens, width] */
static tri_tensor *batch_of(const training *t, int step, int first, int rows, int width)
{
    int tokens = t->shape[step][1], n = rows * tokens * width;
    double data[MOST_NUMBERS];

    for (int i = 0; i < n && i < MOST_NUMBERS; i++)
        data[i] = sin(1.3 * (first * tokens * width + i) + 0.7 * step + width);
    return tri_tensor_from(TRI_SHAPE(rows, tokens, width), TRI_DTYPE_F64, data);
}

static tri_module *build(const way *w)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(11);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_linear(WIDTH, 8, NULL), tri_nn_tanh(),
                            tri_nn_linear(8, WIDTH, NULL), w->ties ? twice_create() : tri_nn_tanh(),
                            tri_nn_linear(WIDTH, 7, NULL), tri_nn_tanh(),
                            tri_nn_linear(7, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    for (int i = 0; w->recompute && i < 7; i++) {
        char name[8];

        snprintf(name, sizeof(name), "%d", i);
        tri_module_set_recompute(tri_module_submodule(net, name), true);
    }
    return net;
}

static tri_tensor *mean_square(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_mse_loss(output, target, NULL);
}

/* One step with these rows; the loss of them. No parameter of the network knows ranks or pieces. */
static tri_status train_step(const training *t, tri_module *model, tri_optimizer *opt, int step,
                             int first, int rows, double *loss_out)
{
    tri_tensor *x = batch_of(t, step, first, rows, WIDTH), *y = batch_of(t, step, first, rows, OUT);
    tri_tensor *loss;
    tri_status status;

    if (t->w.stages > 0) {
        loss = tri_pipeline_step(model, x, y, mean_square, NULL);
    } else {
        loss = tri_keep(mean_square(tri_forward(model, x), y, NULL));
        tri_backward(loss);
    }
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_item_status(loss, loss_out);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static void train_alone(const training *t, double *losses)
{
    const way plain = {.ties = t->w.ties};
    const training alone = {.w = plain, .steps = t->steps};
    training copy = alone;
    tri_module *net = build(&plain);
    tri_optimizer *opt = tri_sgd(net, 0.5, NULL);

    memcpy(copy.shape, t->shape, sizeof(copy.shape));
    for (int s = 0; s < t->steps; s++)
        CHECK_OK(train_step(&copy, net, opt, s, 0, t->shape[s][0], &losses[s]));
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

/* --- ranks ---------------------------------------------------------------- */

/* The network as the way has it; the loss of a rank is of the rows that it has. */
static const char *cut(rank_env *env, const way *w, tri_mesh *mesh, tri_module **model_out)
{
    static const tri_parallel_rule pairs[] = {{.module = "0", .style = TRI_COLWISE},
                                              {.module = "2", .style = TRI_ROWWISE},
                                              {.module = "4", .style = TRI_COLWISE},
                                              {.module = "6", .style = TRI_ROWWISE}};
    tri_module *net = build(w);

    if (w->tensor > 0)
        RANK_TRY(env, tri_parallelize(net, tri_mesh_group(mesh, "tensor"), pairs, 4));
    if (w->stages > 0)
        net = tri_pipeline_split(net, NULL, w->stages,
                                 &(tri_pipeline_options){.group = tri_mesh_group(mesh, "other"),
                                                         .n_microbatches = w->microbatches,
                                                         .schedule = w->schedule});
    else if (tri_mesh_size(mesh, "other") > 1)
        net = tri_ddp(net, &(tri_ddp_options){.group = tri_mesh_group(mesh, "other")});
    *model_out = net;
    RANK_TRY(env, tri_module_status(net));
    return NULL;
}

static const char *train_rank(rank_env *env)
{
    training *t = env->arg;
    const way *w = &t->w;
    int tensor = w->tensor > 0 ? w->tensor : 1, others = w->ranks / tensor;
    tri_group *group = NULL;
    tri_mesh *mesh;
    tri_module *model;
    tri_optimizer *opt;
    const char *failure;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_mesh_create(group, TRI_SHAPE(others, tensor),
                                  (const char *[]){"other", "tensor"}, &mesh));
    failure = cut(env, w, mesh, &model);
    if (failure != NULL)
        return failure;
    opt = tri_sgd(model, 0.5, NULL);
    for (int s = 0; s < t->steps; s++) {
        int all = t->shape[s][0], parts = w->stages > 0 ? 1 : others;
        int at = parts == 1 ? 0 : tri_mesh_coordinate(mesh, "other");
        int first = all * at / parts, rows = all * (at + 1) / parts - first;
        double loss = 0, sum;

        RANK_TRY(env, train_step(t, model, opt, s, first, rows, &loss));
        sum = loss * rows;
        if (parts > 1)
            RANK_TRY(env, tri_all_reduce(tri_mesh_group(mesh, "other"), &sum, &sum, 1,
                                         TRI_DTYPE_F64, TRI_REDOP_SUM, NULL));
        if (!(fabs(sum / all - t->want[s]) <= 1e-9))
            return RANK_FAIL(env, "rank %d of %d: loss %d is %.12g, not %.12g", env->rank,
                             env->size, s, sum / all, t->want[s]);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    tri_group_unref(group);
    return NULL;
}

/* Every rank sees the losses of one process that has the whole network and takes whole batches. */
static void train(training t)
{
    train_alone(&t, t.want);
    run_threads(t.w.ranks, NULL, train_rank, &t);
}

static const struct {
    tri_pipeline_schedule schedule;
    int stages_per_rank;
} schedules[] = {{TRI_PIPELINE_1F1B, 1},        {TRI_PIPELINE_GPIPE, 1},
                 {TRI_PIPELINE_INTERLEAVED, 2}, {TRI_PIPELINE_LOOPED_BFS, 2},
                 {TRI_PIPELINE_ZERO_BUBBLE, 1}, {TRI_PIPELINE_ZBV, 2}};

/* --- batches -------------------------------------------------------------- */

/* pytorch/pytorch#126600, deepspeedai/DeepSpeed#3195, pytorch/torchtitan#775: batches that do not
 * divide, sequences of another length, or fewer samples than micro-batches hang, or are cut to the
 * first one's size. */
static void batches_may_have_any_size_in_each_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(schedules); i++) {
        train((training){.w = {.ranks = 2,
                               .stages = 2 * schedules[i].stages_per_rank,
                               .microbatches = 4,
                               .schedule = schedules[i].schedule},
                         .steps = 6,
                         .shape = {{8, 2}, {3, 5}, {1, 1}, {11, 3}, {2, 7}, {8, 2}}});
    }
    train((training){.w = {.ranks = 4, .stages = 4, .microbatches = 3},
                     .steps = 4,
                     .shape = {{7, 1}, {1, 2}, {2, 1}, {300, 2}}});
    train((training){
        .w = {.ranks = 3, .tensor = 3}, .steps = 4, .shape = {{7, 1}, {1, 2}, {2, 1}, {300, 2}}});
}

static const char *give_another_width(rank_env *env)
{
    static const training t = {.steps = 1, .shape = {{4, 2}}};
    tri_module *stages[2];
    tri_tensor *x = batch_of(&t, 0, 0, 4, WIDTH), *y = batch_of(&t, 0, 0, 4, OUT);
    tri_group *group = NULL;
    tri_module *pipe;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    trii_mutex_lock(&drawing);
    tri_set_default_dtype(TRI_DTYPE_F64);
    stages[0] = tri_nn_linear(WIDTH, 8, NULL);
    stages[1] = tri_nn_linear(7, OUT, NULL);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    pipe = tri_pipeline(stages, 2, &(tri_pipeline_options){.group = group, .n_microbatches = 2});
    (void)tri_pipeline_step(pipe, x, y, mean_square, NULL);
    if (tri_run() == TRI_OK || strstr(tri_last_error(), "[2, 2, 8]") == NULL ||
        strstr(tri_last_error(), "[3, 7]") == NULL)
        return RANK_FAIL(env, "rank %d: %s", env->rank, tri_last_error());
    tri_step_end();
    tri_module_destroy(pipe);
    tri_group_unref(group);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

/* The same issues: and the others hang. */
static void a_stage_that_takes_another_shape_ends_all_with_both_shapes(void **state)
{
    (void)state;
    run_threads(2, NULL, give_another_width, NULL);
}

/* --- who divides ---------------------------------------------------------- */

/* pytorch/pytorch#155903, ByteDance-Seed/VeOmni#1079, verl-project/verl-SpeCo#29: rates are off by
 * the number of ranks, of micro-batches or of tensor-parallel ranks, of which each has to be
 * divided by somewhere. A plain update with a large rate shows any factor. */
static void nobody_divides_by_ranks_or_micro_batches(void **state)
{
    static const int shape[][2] = {{6, 2}, {6, 2}, {6, 2}};
    training t = {.steps = 3};

    (void)state;
    memcpy(t.shape, shape, sizeof(shape));
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        for (int m = 1; m <= 6; m += m < 3 ? 1 : 3) {
            t.w = (way){.ranks = ranks, .stages = ranks, .microbatches = m};
            train(t);
        }
        if (ranks <= 3) {
            t.w = (way){.ranks = ranks, .tensor = ranks};
            train(t);
        }
    }
    t.w = (way){.ranks = 4, .tensor = 2}; /* and two replicas */
    train(t);
    t.w = (way){.ranks = 4, .tensor = 2, .stages = 2, .microbatches = 3};
    train(t);
}

/* --- zero bubble ---------------------------------------------------------- */

/* pytorch/pytorch#180952, #136766: weights that serve twice are counted twice where the backward is
 * in two parts, and recomputation does not go with it. */
static void weights_that_serve_twice_train_once_in_every_schedule(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(schedules); i++) {
        for (int recompute = 0; recompute < 2; recompute++)
            train((training){.w = {.ranks = 2,
                                   .stages = 2 * schedules[i].stages_per_rank,
                                   .microbatches = 4,
                                   .schedule = schedules[i].schedule,
                                   .ties = true,
                                   .recompute = recompute == 1},
                             .steps = 3,
                             .shape = {{8, 2}, {8, 2}, {5, 1}}});
    }
}

/* --- messages ------------------------------------------------------------- */

/* Rank 0 receives first what rank 1 can only send once it has got something later from it. */
static const char *receive_early(rank_env *env)
{
    enum { MESSAGES = 4 };
    tri_group *group = NULL;
    tri_tensor *early, *sum;
    double got = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    if (env->rank == 0) {
        early = tri_dist_recv(TRI_SHAPE(3), TRI_DTYPE_F64, false, 1, 9, group);
        for (int i = 0; i < MESSAGES; i++)
            (void)tri_keep(
                tri_dist_send(tri_full(TRI_SHAPE(3), i + 1, TRI_DTYPE_F64), 1, i, group));
        sum = tri_sum(early, NULL, 0, false);
    } else {
        sum = tri_zeros(TRI_SHAPE(3), TRI_DTYPE_F64);
        for (int i = 0; i < MESSAGES; i++)
            sum = tri_add(sum, tri_dist_recv(TRI_SHAPE(3), TRI_DTYPE_F64, false, 0, i, group));
        (void)tri_keep(tri_dist_send(sum, 0, 9, group));
        sum = tri_sum(sum, NULL, 0, false);
    }
    sum = tri_keep(sum);
    RANK_TRY(env, tri_run());
    RANK_TRY(env, tri_item_status(sum, &got));
    tri_step_end();
    tri_group_unref(group);
    return got == 30 ? NULL : RANK_FAIL(env, "rank %d: %g", env->rank, got);
}

/* pytorch/pytorch#188833: a receive that comes early in the order holds back others. */
static void a_receive_that_comes_early_holds_back_nothing(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm", .timeout_ms = 20000}, receive_early, NULL);
    run_threads(2, &(tri_group_options){.engine = "tcp", .timeout_ms = 20000}, receive_early, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(batches_may_have_any_size_in_each_step),
    cmocka_unit_test(a_stage_that_takes_another_shape_ends_all_with_both_shapes),
    cmocka_unit_test(nobody_divides_by_ranks_or_micro_batches),
    cmocka_unit_test(weights_that_serve_twice_train_once_in_every_schedule),
    cmocka_unit_test(a_receive_that_comes_early_holds_back_nothing),
};

TEST_MAIN(tests)
