/*
 * cut_training.h - a small network that is cut over ranks, into stages, layer by layer, and with
 * replicas of both, against one process that has all of it and takes whole batches. Tests only.
 */
#ifndef TEST_CUT_TRAINING_H
#define TEST_CUT_TRAINING_H

#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/train_ranks.h"

enum { IN = 6, WIDTH = 8, HEADS = 4, OUT = 3, BLOCKS = 2, MOST_STEPS = 8, MOST_NUMBERS = 4096 };

/* How the network is cut; the ranks are the product of the first three. */
typedef struct way {
    int data, tensor;                  /* 0: 1 */
    int pipeline;                      /* ranks; 0: no pipeline */
    int stages_per_rank, microbatches; /* 0: 1 */
    tri_pipeline_schedule schedule;
    int zero; /* its stage; 0: tri_ddp */
    bool adamw, clip, recompute, sequence;
} way;

typedef struct training {
    way w;
    int steps;
    int shape[MOST_STEPS][2]; /* rows and tokens of each */
    double want[MOST_STEPS];  /* losses */
} training;

/* The seed is the process's: one thread at a time draws initial values. */
static trii_mutex drawing = TRII_MUTEX_INITIALIZER;

/* --- the network ---------------------------------------------------------- */

/* Of a transformer, but that its first layer norm serves the second half as well. */
typedef struct block {
    tri_module *norm, *attention, *mlp;
} block;

static inline tri_tensor *block_forward(tri_module *self, tri_tensor *x)
{
    const block *b = tri_module_data(self);

    x = tri_add(x, tri_forward(b->attention, tri_forward(b->norm, x)));
    return tri_add(x, tri_forward(b->mlp, tri_forward(b->norm, x)));
}

static inline tri_module *block_create(void)
{
    tri_module *self = tri_module_simple("Block", sizeof(block), block_forward);
    block *b = tri_module_data(self);

    b->norm = tri_module_add_child(self, "norm", tri_nn_layer_norm(TRI_SHAPE(WIDTH), NULL));
    b->attention =
        tri_module_add_child(self, "attention", tri_nn_multihead_attention(WIDTH, HEADS, NULL));
    b->mlp = tri_module_add_child(self, "mlp",
                                  tri_nn_sequential(tri_nn_linear(WIDTH, 7, NULL), tri_nn_tanh(),
                                                    tri_nn_linear(7, WIDTH, NULL)));
    return self;
}

static inline tri_module *net_create(const way *w)
{
    tri_module *parts[BLOCKS + 2], *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(11);
    tri_set_default_dtype(TRI_DTYPE_F64);
    parts[0] = tri_nn_linear(IN, WIDTH, NULL);
    for (int i = 1; i <= BLOCKS; i++) {
        parts[i] = block_create();
        tri_module_set_recompute(parts[i], w->recompute);
    }
    parts[BLOCKS + 1] = tri_nn_linear(WIDTH, OUT, NULL);
    net = tri_nn_sequential_of(BLOCKS + 2, parts);
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

static inline tri_status cut_layers(tri_module *net, tri_group *group, bool sequence)
{
    const tri_parallel_rule whole[] = {{.module = "*.attention", .style = TRI_HEADS},
                                       {.module = "*.mlp.0", .style = TRI_COLWISE},
                                       {.module = "*.mlp.2", .style = TRI_ROWWISE}};
    const tri_parallel_value part = TRI_SHARDED_SEQUENCE;
    const tri_parallel_rule parts[] = {
        {.module = "0", .style = TRI_PREPARE, .output = TRI_WHOLE, .wanted_output = part},
        {.module = "*.norm", .style = TRI_SEQUENCE},
        {.module = "*.attention", .style = TRI_HEADS, .input = part, .output = part},
        {.module = "*.mlp.0", .style = TRI_COLWISE, .input = part},
        {.module = "*.mlp.2", .style = TRI_ROWWISE, .output = part},
        {.module = "3", .style = TRI_PREPARE, .input = part, .wanted_input = TRI_WHOLE}};

    return sequence ? tri_parallelize(net, group, parts, 6) : tri_parallelize(net, group, whole, 3);
}

static inline tri_tensor *mean_square(tri_tensor *output, tri_tensor *target, void *arg)
{
    (void)arg;
    return tri_mse_loss(output, target, NULL);
}

/* [rows, tokens, width] */
static inline tri_tensor *batch_of(const training *t, int step, int first, int rows, int width)
{
    int tokens = t->shape[step][1], n = rows * tokens * width;
    double data[MOST_NUMBERS];

    for (int i = 0; i < n && i < MOST_NUMBERS; i++)
        data[i] = sin(1.3 * (first * tokens * width + i) + 0.7 * step + width);
    return tri_tensor_from(TRI_SHAPE(rows, tokens, width), TRI_DTYPE_F64, data);
}

/* --- one step ------------------------------------------------------------- */

static inline tri_optimizer *optimizer_of(const way *w, tri_module *model)
{
    return w->adamw ? tri_adamw(model, 0.01, NULL) : tri_sgd(model, 0.1, NULL);
}

/* With these rows; the loss of them. */
static inline tri_status train_step(const training *t, tri_module *model, tri_optimizer *opt,
                                    int step, int first, int rows, double *loss_out)
{
    tri_tensor *x = batch_of(t, step, first, rows, IN), *y = batch_of(t, step, first, rows, OUT);
    tri_tensor *loss;
    tri_status status;

    if (t->w.pipeline > 0) {
        loss = tri_pipeline_step(model, x, y, mean_square, NULL);
    } else {
        loss = tri_keep(mean_square(tri_forward(model, x), y, NULL));
        tri_backward(loss);
    }
    if (t->w.clip)
        (void)tri_clip_grad_norm(opt, 0.05);
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_item_status(loss, loss_out);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static inline void train_alone(training *t)
{
    training alone = *t;
    tri_module *net;
    tri_optimizer *opt;

    alone.w = (way){.adamw = t->w.adamw, .clip = t->w.clip};
    net = net_create(&alone.w);
    opt = optimizer_of(&alone.w, net);
    for (int s = 0; s < t->steps; s++)
        CHECK_OK(train_step(&alone, net, opt, s, 0, t->shape[s][0], &t->want[s]));
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

/* --- ranks ---------------------------------------------------------------- */

static inline int at_least_1(int n)
{
    return n > 0 ? n : 1;
}

static inline void way_text(const way *w, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "data %d, tensor %d, pipeline %d x %d, %d micro-batches, schedule %d, ZeRO %d%s%s%s%s",
             w->data, w->tensor, w->pipeline, w->stages_per_rank, w->microbatches, (int)w->schedule,
             w->zero, w->adamw ? ", AdamW" : "", w->clip ? ", clipped" : "",
             w->recompute ? ", recomputed" : "", w->sequence ? ", sequence" : "");
}

static inline tri_module *model_of(const way *w, tri_mesh *mesh)
{
    tri_group *data = tri_mesh_group(mesh, "data");
    tri_module *net = net_create(w);

    if (w->tensor > 0 && cut_layers(net, tri_mesh_group(mesh, "tensor"), w->sequence) != TRI_OK)
        return tri_module_fail(net, TRI_ERR_INTERNAL, "%s", tri_last_error());
    if (w->pipeline > 0)
        net = tri_pipeline_split(net, NULL, w->pipeline * at_least_1(w->stages_per_rank),
                                 &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline"),
                                                         .n_microbatches = w->microbatches,
                                                         .schedule = w->schedule});
    if (w->zero > 0)
        return tri_zero(net, &(tri_zero_options){.group = data, .stage = w->zero});
    return w->data > 0 ? tri_ddp(net, &(tri_ddp_options){.group = data}) : net;
}

static inline const char *train_cut(rank_env *env, const training *t, tri_mesh *mesh,
                                    tri_module *model)
{
    int data = at_least_1(t->w.data), at = tri_mesh_coordinate(mesh, "data");
    tri_optimizer *opt = optimizer_of(&t->w, model);
    char text[256];

    way_text(&t->w, text, sizeof(text));
    for (int s = 0; s < t->steps; s++) {
        int all = t->shape[s][0], first = all * at / data, rows = all * (at + 1) / data - first;
        double loss = 0, sum;

        RANK_TRY(env, train_step(t, model, opt, s, first, rows, &loss));
        sum = loss * rows;
        RANK_TRY(env, tri_all_reduce(tri_mesh_group(mesh, "data"), &sum, &sum, 1, TRI_DTYPE_F64,
                                     TRI_REDOP_SUM, NULL));
        if (!check_is_near(sum / all, t->want[s], 1e-9))
            return RANK_FAIL(env, "%s: rank %d: loss %d is %.12g, not %.12g", text, env->rank, s,
                             sum / all, t->want[s]);
    }
    tri_optimizer_destroy(opt);
    return NULL;
}

static inline const char *cut_rank(rank_env *env)
{
    const training *t = env->arg;
    const int64_t sizes[] = {at_least_1(t->w.pipeline), at_least_1(t->w.data),
                             at_least_1(t->w.tensor)};
    tri_group *group = NULL;
    tri_mesh *mesh;
    tri_module *model;
    const char *failure;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_mesh_create(group, sizes, 3, (const char *[]){"pipeline", "data", "tensor"},
                                  &mesh));
    model = model_of(&t->w, mesh);
    RANK_TRY(env, tri_module_status(model));
    failure = train_cut(env, t, mesh, model);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    tri_group_unref(group);
    return failure;
}

/* Every rank sees the losses of one process, to 1e-9. */
static inline void train(training t)
{
    train_alone(&t);
    run_threads(at_least_1(t.w.data) * at_least_1(t.w.tensor) * at_least_1(t.w.pipeline), NULL,
                cut_rank, &t);
}

#endif
