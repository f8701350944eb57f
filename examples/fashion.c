/*
 * fashion.c - train a small residual network on Fashion-MNIST with any number of workers:
 *
 *     build/bin/trirun --standalone --nproc-per-node 2 build/bin/fashion
 *
 * 60,000 images of 28x28 grey pixels to learn from, 10,000 to test, ten kinds of clothes. Every
 * worker runs this program; tri_fit gives each its share of every batch, and averages gradients.
 */
#include <trireme/trireme.h>

#include "fashion_mnist.h"
#include "fit_options.h"

static fit_settings fit = {.epochs = 5, .batch = 128, .precision = "auto"};
static int64_t first_width = 16, limit;
static double highest_lr = 0.1, weight_decay = 5e-4;
static const char *folder;

/* 3x3 convolution, batch norm, ReLU: [N, in, H, W] -> [N, out, H, W]. */
static tri_module *conv_block(int64_t in, int64_t out)
{
    return tri_nn_sequential(
        tri_nn_conv2d(in, out, 3, &(tri_nn_conv2d_options){.padding = 1, .no_bias = true}),
        tri_nn_batch_norm2d(out, NULL), tri_nn_relu());
}

/* x + body(x): a module of your own. */
static tri_tensor *residual_forward(tri_module *self, tri_tensor *x)
{
    return tri_add(x, tri_forward(*(tri_module **)tri_module_data(self), x));
}

static tri_module *residual(int64_t width)
{
    tri_module *self = tri_module_simple("residual", sizeof(tri_module *), residual_forward);

    *(tri_module **)tri_module_data(self) = tri_module_add_child(
        self, "body", tri_nn_sequential(conv_block(width, width), conv_block(width, width)));
    return self;
}

/* [N, 1, 28, 28] -> [N, 10]; the picture shrinks 28, 14, 7, 1 while the channels grow. */
static tri_module *make_network(void *arg)
{
    int64_t width = first_width;

    (void)arg;
    return tri_nn_sequential(
        conv_block(1, width), tri_nn_max_pool2d(2, NULL), /* 28 -> 14 */
        conv_block(width, 2 * width), residual(2 * width), tri_nn_max_pool2d(2, NULL), /* -> 7 */
        conv_block(2 * width, 4 * width), residual(4 * width), tri_nn_adaptive_max_pool2d(1, 1),
        tri_nn_flatten(1), tri_nn_linear(4 * width, 10, NULL));
}

static tri_optimizer *make_sgd(tri_module *model, void *arg)
{
    (void)arg;
    return tri_sgd(
        model, highest_lr,
        &(tri_sgd_options){.momentum = 0.9, .nesterov = true, .weight_decay = weight_decay});
}

static double one_cycle(double lr, int64_t step, int64_t total_steps, void *arg)
{
    const tri_schedule_one_cycle_options rise = {.pct_start = TRI_SET(0.2), .linear = true};

    (void)arg;
    return tri_schedule_one_cycle(lr, total_steps, step, &rise).lr;
}

static tri_tensor *training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_tensor *y = batch->fields[1], *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);

    (void)arg;
    tri_trainer_log(t, "accuracy", tri_count_correct(logits, y),
                    &(tri_trainer_log_options){.count = true, .progress_bar = true});
    return tri_cross_entropy(logits, y, &(tri_cross_entropy_options){.label_smoothing = 0.1});
}

/* An image and its mirror image vote together. */
static void validation_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_tensor *x = batch->fields[0], *y = batch->fields[1], *logits;
    tri_module *net = tri_trainer_model(t);

    (void)arg;
    logits = tri_add(tri_forward(net, x), tri_forward(net, tri_flip(x, 3)));
    tri_trainer_log(t, "test_accuracy", tri_count_correct(logits, y),
                    &(tri_trainer_log_options){.count = true});
}

/* Mirrored at random for training. */
static tri_dataset *open_data(bool train)
{
    static const double mean = 0.2860, std = 0.3530;
    const tri_transform look[] = {tri_transform_random_horizontal_flip(train ? 0.5 : 0),
                                  tri_transform_to_float(),
                                  tri_transform_normalize(&mean, &std, 1)};
    tri_dataset *dataset;

    TRI_TRY(fashion_mnist(folder, train, &dataset));
    if (train && limit > 0 && limit < tri_dataset_length(dataset))
        TRI_TRY(tri_dataset_subset(dataset, 0, limit, &dataset));
    TRI_TRY(tri_dataset_transform(dataset, look, 3, &dataset));
    return dataset;
}

static void parse_options(int argc, char **argv)
{
    const option options[] = {
        FIT_OPTIONS(&fit),
        {"--lr", NULL, "the highest rate (0.1)", .number = &highest_lr},
        {"--weight-decay", NULL, "(0.0005)", .number = &weight_decay},
        {"--width", NULL, "channels of the first layer (16)", .integer = &first_width, .min = 1},
        {"--limit", NULL, "train on the first N images (all)", .integer = &limit},
        {"--data", NULL, "the four files (" FASHION_MNIST_DIR ")", .text = &folder},
    };

    options_parse(argc, argv, "usage: fashion [--epochs 5] [--batch-size 128] ..", options);
}

int main(int argc, char **argv)
{
    static const tri_task task = {.name = "fashion",
                                  .model = make_network,
                                  .optimizer = make_sgd,
                                  .lr = one_cycle,
                                  .training_step = training_step,
                                  .validation_step = validation_step};
    tri_fit_data data = {.val_batch_size = 500, .loader = {.drop_last = true}};
    tri_fit_options trainer = {.log_every_n_steps = 20, .num_sanity_val_steps = TRI_SET(0)};
    tri_fit_result result;

    parse_options(argc, argv);
    fit_settings_apply(&fit, &data, &trainer);
    data.train = open_data(true);
    data.val = open_data(false);
    TRI_TRY(tri_fit(&task, &data, &trainer, NULL, &result));
    if (tri_rank() == 0)
        printf("training time %.1f s, test accuracy %.4f\nin %s: checkpoints, metrics.jsonl\n"
               "to see the curves:\n%strireme plot %s/metrics.jsonl -o %s/curves.png\n",
               result.seconds, tri_fit_result_value(&result, "test_accuracy"), result.run_dir,
               program_folder, result.run_dir, result.run_dir);
    tri_dataset_destroy(data.val);
    tri_dataset_destroy(data.train);
    tri_finalize();
    return 0;
}
