/*
 * fit_problem.h - a small problem for tests of tri_fit: data, a network, and the loop that a
 * program would write without the trainer. Tests only.
 */
#ifndef TEST_FIT_PROBLEM_H
#define TEST_FIT_PROBLEM_H

#include <math.h>

#include <trireme/trireme.h>

#include "testing/ddp_ranks.h"
#include "testing/scratch.h"

#define FIT_IN 4
#define FIT_OUT 3
#define FIT_MAX 64

typedef struct fit_samples {
    float x[FIT_MAX][FIT_IN];
    int64_t y[FIT_MAX];
    tri_dataset *dataset;
} fit_samples;

static inline void fit_samples_make(fit_samples *s, int64_t n, uint64_t seed)
{
    static const tri_field fields[] = {{TRI_DTYPE_F32, 1, {FIT_IN}}, {TRI_DTYPE_I64, 0, {0}}};
    const void *data[] = {s->x, s->y};

    for (int64_t i = 0; i < FIT_MAX; i++) {
        float sum = 0;

        for (int d = 0; d < FIT_IN; d++) {
            s->x[i][d] = (float)(scratch_random(&seed) % 2001) / 1000 - 1;
            sum += s->x[i][d] * (float)(d + 1);
        }
        s->y[i] = sum < -1 ? 0 : sum < 1 ? 1 : 2;
    }
    CHECK_OK(tri_dataset_arrays(n, fields, data, 2, &s->dataset));
}

/* --- the task ------------------------------------------------------------- */

typedef struct fit_arg {
    double lr;
    bool wide;       /* f64 data, for those that cast themselves */
    bool buffers;    /* a batch norm in the network */
    int64_t seen;    /* batches that the training step has had */
    int64_t fail_at; /* the training step fails at this batch; 0 = never */
    bool with_sgd_momentum;
} fit_arg;

/* Initial values of its own: ranks that are threads share the generator which tri_manual_seed
 * seeds, and would disturb each other. */
static inline tri_module *fit_model(void *arg)
{
    const fit_arg *a = arg;
    tri_module *norm = a->buffers ? tri_nn_batch_norm1d(8, NULL) : tri_nn_identity();
    tri_module *net = tri_nn_sequential(tri_nn_linear(FIT_IN, 8, NULL), norm, tri_nn_tanh(),
                                        tri_nn_linear(8, FIT_OUT, NULL));
    uint64_t seed = 3;

    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        tri_state_entry entry = tri_module_state(net, i);
        int64_t n = tri_tensor_numel(entry.tensor);
        double wide[64];
        float values[64];

        for (int64_t k = 0; k < n && k < 64; k++)
            values[k] = (float)(wide[k] = (double)(scratch_random(&seed) % 1001) / 1000 - 0.5);
        if (entry.parameter && tri_tensor_dtype(entry.tensor) == TRI_DTYPE_F64)
            CHECK_OK(tri_tensor_copy_in(entry.tensor, wide, (size_t)n * sizeof(double)));
        else if (entry.parameter)
            CHECK_OK(tri_tensor_copy_in(entry.tensor, values, (size_t)n * sizeof(float)));
    }
    return net;
}

static inline tri_optimizer *fit_optimizer(tri_module *model, void *arg)
{
    const fit_arg *a = arg;

    return tri_sgd(model, a->lr, &(tri_sgd_options){.momentum = 0.9});
}

static inline tri_tensor *fit_training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    fit_arg *a = arg;
    tri_tensor *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);

    a->seen++;
    if (a->fail_at != 0 && a->seen == a->fail_at)
        return tri_matmul(logits, logits); /* whose shapes do not fit */
    tri_trainer_log(t, "accuracy", tri_count_correct(logits, batch->fields[1]),
                    &(tri_trainer_log_options){.count = true});
    return tri_cross_entropy(logits, batch->fields[1], NULL);
}

static inline double fit_lr(double lr, int64_t step, int64_t total_steps, void *arg)
{
    (void)arg;
    return tri_schedule_cosine(lr, 0, total_steps, step);
}

static const tri_task fit_task = {.name = "try",
                                  .model = fit_model,
                                  .optimizer = fit_optimizer,
                                  .training_step = fit_training_step,
                                  .lr = fit_lr};

/* --- a callback that keeps the hash of the weights ------------------------ */

typedef struct fit_watch {
    tri_callback base;
    uint64_t hash;
    int64_t steps;
} fit_watch;

static inline tri_status fit_watch_end(tri_callback *self, tri_trainer *t)
{
    fit_watch *w = (fit_watch *)self;

    w->steps = tri_trainer_step(t);
    return tri_module_hash(tri_trainer_model(t), &w->hash);
}

static const tri_callback_class fit_watch_class = {.name = "watch", .fit_end = fit_watch_end};

#define FIT_WATCH                                                                                  \
    {                                                                                              \
        .base = {.cls = &fit_watch_class }                                                         \
    }

/* Options that write nothing but into the folder, and print nothing. */
static inline tri_fit_options fit_quiet(const char *folder)
{
    return (tri_fit_options){.default_root_dir = folder,
                             .no_progress = true,
                             .no_summary = true,
                             .num_sanity_val_steps = TRI_SET(0)};
}

/* --- the loop of a program ------------------------------------------------ */

typedef struct plain_fit {
    tri_dataset *train;
    int64_t batch_size, epochs;
    tri_group *group; /* NULL = one process */
    bool drop_last;
    fit_arg arg;
    double clip; /* 0 = none */
    bool clip_value;
    tri_dtype autocast; /* NONE = f32; F16 with a scaler */
    uint64_t hash;
} plain_fit;

static inline tri_status plain_fit_step(const plain_fit *p, tri_module *model,
                                        tri_optimizer *optimizer, tri_grad_scaler *scaler,
                                        const tri_batch *batch, double lr)
{
    tri_tensor *loss;

    if (p->autocast != TRI_DTYPE_NONE)
        tri_autocast_begin(p->autocast);
    loss = tri_cross_entropy(tri_forward(model, batch->fields[0]), batch->fields[1], NULL);
    if (p->autocast != TRI_DTYPE_NONE)
        tri_autocast_end();
    tri_backward(tri_grad_scaler_scale(scaler, loss));
    if (p->clip > 0) {
        tri_grad_scaler_unscale(scaler, optimizer);
        if (p->clip_value)
            tri_clip_grad_value(optimizer, p->clip);
        else
            (void)tri_clip_grad_norm(optimizer, p->clip);
    }
    tri_optimizer_set_lr(optimizer, lr);
    TRY(tri_grad_scaler_step(scaler, optimizer));
    TRY(tri_grad_scaler_update(scaler));
    return tri_step_end_status();
}

static inline tri_status plain_fit_run(plain_fit *p)
{
    int index = p->group != NULL ? tri_group_rank(p->group) : 0;
    int size = p->group != NULL ? tri_group_size(p->group) : 1;
    tri_module *model;
    tri_optimizer *optimizer;
    tri_sampler *sampler;
    tri_loader *loader;
    tri_grad_scaler *scaler;
    int64_t step = 0;

    tri_manual_seed(5);
    model = fit_model(&p->arg);
    if (size > 1)
        model = tri_ddp(model, &(tri_ddp_options){.group = p->group});
    optimizer = fit_optimizer(model, &p->arg);
    TRY(tri_grad_scaler_create(&(tri_grad_scaler_options){.disabled = p->autocast != TRI_DTYPE_F16},
                               &scaler));
    TRY(tri_sampler_distributed(
        tri_dataset_length(p->train),
        &(tri_sampler_distributed_options){
            .n_replicas = size, .rank = index, .seed = 5, .drop_last = p->drop_last},
        &sampler));
    TRY(tri_loader_create(p->train, sampler, p->batch_size,
                          &(tri_loader_options){.seed = 5, .drop_last = p->drop_last}, &loader));
    for (int64_t epoch = 0; epoch < p->epochs; epoch++) {
        tri_batch batch;

        TRY(tri_loader_begin(loader, epoch, 0));
        while (tri_loader_next(loader, &batch) == TRI_OK) {
            TRY(plain_fit_step(
                p, model, optimizer, scaler, &batch,
                fit_lr(p->arg.lr, step++, p->epochs * tri_loader_length(loader), NULL)));
        }
    }
    TRY(tri_module_hash(model, &p->hash));
    tri_grad_scaler_destroy(scaler);
    tri_loader_destroy(loader);
    tri_sampler_destroy(sampler);
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(model);
    return TRI_OK;
}

#endif
