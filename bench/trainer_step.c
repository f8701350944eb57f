/*
 * trainer_step.c - what tri_fit adds to the loop that a program would write: the toy model of
 * toy_step.c, or a small convolutional network. Epochs of the two alternate within one process.
 * Prints the medians of tri_fit and of the plain loop, in microseconds a step. Run by
 * bench/trainer_step.sh.
 *
 *     bench_trainer_step toy|images FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/trireme.h>

#include "timing.h"

#define MAX_EPOCHS 64

typedef struct work {
    bool images;
    int64_t samples, batch;
    int epochs;
    tri_dataset *dataset;
    /* of the plain loop */
    tri_module *model;
    tri_optimizer *optimizer;
    tri_sampler *sampler;
    tri_loader *loader;
    double fit_us[MAX_EPOCHS], plain_us[MAX_EPOCHS];
    int n;
    double start_us;
} work;

static tri_module *block(int64_t in, int64_t out)
{
    return tri_nn_sequential(
        tri_nn_conv2d(in, out, 3, &(tri_nn_conv2d_options){.padding = 1, .no_bias = true}),
        tri_nn_batch_norm2d(out, NULL), tri_nn_relu());
}

static tri_module *make_model(void *arg)
{
    const work *w = arg;

    if (w->images)
        return tri_nn_sequential(block(1, 16), tri_nn_max_pool2d(2, NULL), block(16, 32),
                                 tri_nn_max_pool2d(2, NULL), block(32, 64),
                                 tri_nn_adaptive_max_pool2d(1, 1), tri_nn_flatten(1),
                                 tri_nn_linear(64, 10, NULL));
    return tri_nn_sequential(tri_nn_linear(10, 10, NULL), tri_nn_relu(),
                             tri_nn_linear(10, 5, NULL));
}

static tri_optimizer *make_optimizer(tri_module *model, void *arg)
{
    (void)arg;
    return tri_sgd(model, 0.001, NULL);
}

static tri_tensor *loss_of(const work *w, tri_module *model, const tri_batch *batch)
{
    tri_tensor *out = tri_forward(model, batch->fields[0]);

    return w->images ? tri_cross_entropy(out, batch->fields[1], NULL)
                     : tri_mse_loss(out, batch->fields[1], NULL);
}

static tri_tensor *training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    return loss_of(arg, tri_trainer_model(t), batch);
}

static void plain_epoch(work *w, int64_t epoch)
{
    tri_status status;
    tri_batch batch;

    TRI_TRY(tri_loader_begin(w->loader, epoch, 0));
    while ((status = tri_loader_next(w->loader, &batch)) == TRI_OK) {
        tri_backward(loss_of(w, w->model, &batch));
        TRI_TRY(tri_optimizer_step(w->optimizer));
        tri_step_end();
    }
    TRI_TRY(status);
}

/* --- the two in turn ------------------------------------------------------ */

typedef struct clock_callback {
    tri_callback base;
    work *w;
} clock_callback;

static tri_status epoch_begin(tri_callback *self, tri_trainer *t)
{
    (void)t;
    ((clock_callback *)self)->w->start_us = now_us();
    return TRI_OK;
}

static tri_status epoch_end(tri_callback *self, tri_trainer *t)
{
    work *w = ((clock_callback *)self)->w;
    double steps = (double)tri_loader_length(w->loader);

    w->fit_us[w->n] = (now_us() - w->start_us) / steps;
    w->start_us = now_us();
    plain_epoch(w, tri_trainer_epoch(t));
    w->plain_us[w->n] = (now_us() - w->start_us) / steps;
    w->n++;
    return TRI_OK;
}

static void make_data(work *w)
{
    static const tri_field fields[2][2] = {
        {{TRI_DTYPE_F32, 1, {10}}, {TRI_DTYPE_F32, 1, {5}}},
        {{TRI_DTYPE_F32, 3, {1, 28, 28}}, {TRI_DTYPE_I64, 0, {0}}}};
    size_t x = w->images ? 28 * 28 : 10, y = w->images ? 2 : 5; /* an i64 is two floats long */
    float *values = calloc((size_t)w->samples, (x + y) * sizeof(float));
    const void *data[2];
    unsigned seed = 1;

    if (values == NULL)
        exit(1);
    for (size_t i = 0; i < (size_t)w->samples * (w->images ? x : x + y); i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
    data[0] = values;
    data[1] = values + (size_t)w->samples * x; /* all labels are 0; the memory stays to the end */
    TRI_TRY(tri_dataset_arrays(w->samples, fields[w->images], data, 2, &w->dataset));
}

int main(int argc, char **argv)
{
    static const tri_callback_class clock_class = {
        .name = "clock", .epoch_begin = epoch_begin, .epoch_end = epoch_end};
    static const tri_task task = {.name = "bench",
                                  .model = make_model,
                                  .optimizer = make_optimizer,
                                  .training_step = training_step};
    work w = {.images = argc > 1 && strcmp(argv[1], "images") == 0};
    clock_callback clock = {.base = {.cls = &clock_class}, .w = &w};
    tri_callback *callbacks[] = {&clock.base};

    w.batch = w.images ? 128 : 20;
    w.samples = w.images ? 128 * 16 : 20 * 2000;
    w.epochs = w.images ? 12 : 42;
    make_data(&w);
    w.model = make_model(&w);
    w.optimizer = make_optimizer(w.model, &w);
    TRI_TRY(tri_sampler_distributed(w.samples, &(tri_sampler_distributed_options){.n_replicas = 1},
                                    &w.sampler));
    TRI_TRY(tri_loader_create(w.dataset, w.sampler, w.batch, NULL, &w.loader));
    TRI_TRY(tri_fit(&task, &(tri_fit_data){.train = w.dataset, .batch_size = w.batch},
                    &(tri_fit_options){.max_epochs = w.epochs,
                                       .default_root_dir = argc > 2 ? argv[2] : "runs",
                                       .no_checkpoint = true,
                                       .no_summary = true,
                                       .callbacks = callbacks,
                                       .n_callbacks = 1},
                    &w, NULL));
    /* without the first two, which compile */
    printf("%.3f %.3f\n", median(w.fit_us + 2, w.n - 2), median(w.plain_us + 2, w.n - 2));
    tri_loader_destroy(w.loader);
    tri_sampler_destroy(w.sampler);
    tri_optimizer_destroy(w.optimizer);
    tri_module_destroy(w.model);
    tri_dataset_destroy(w.dataset);
    return 0;
}
