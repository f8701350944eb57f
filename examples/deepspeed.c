/*
 * deepspeed.c - DeepSpeed's CIFAR example (cifar10_deepspeed.py) on Fashion-MNIST: a configuration
 * file says batch sizes, optimizer, schedule, precision and ZeRO stage, and the loop is three
 * calls.
 *
 *     deepspeed --num_gpus 2 cifar10_deepspeed.py --deepspeed_config ds_config.json
 *     build/bin/trirun --nproc-per-node 2 build/bin/deepspeed \
 *         --deepspeed_config examples/deepspeed_zero2.json
 */
#include <trireme/trireme.h>

#include "command_line.h"
#include "fashion_mnist.h"

static int64_t epochs = 2, limit;
static const char *folder;

/* The example's network: two convolutions, three linear layers. */
static tri_module *make_network(void)
{
    return tri_nn_sequential(
        tri_nn_conv2d(1, 6, 5, NULL), tri_nn_relu(), tri_nn_max_pool2d(2, NULL),
        tri_nn_conv2d(6, 16, 5, NULL), tri_nn_relu(), tri_nn_max_pool2d(2, NULL), tri_nn_flatten(1),
        tri_nn_linear(256, 120, NULL), tri_nn_relu(), tri_nn_linear(120, 84, NULL), tri_nn_relu(),
        tri_nn_linear(84, 10, NULL));
}

static tri_dataset *open_data(bool train)
{
    static const double mean = 0.5, std = 0.5;
    const tri_transform look[] = {tri_transform_to_float(),
                                  tri_transform_normalize(&mean, &std, 1)};
    tri_dataset *dataset;

    TRI_TRY(fashion_mnist(folder, train, &dataset));
    if (limit > 0 && limit < tri_dataset_length(dataset))
        TRI_TRY(tri_dataset_subset(dataset, 0, limit, &dataset));
    TRI_TRY(tri_dataset_transform(dataset, look, 2, &dataset));
    return dataset;
}

static void train_epoch(tri_engine *engine, int64_t epoch)
{
    tri_loader *loader = tri_engine_training_dataloader(engine);
    double running = 0;
    tri_batch batch;

    TRI_TRY(tri_loader_begin(loader, epoch, 0));
    while (tri_loader_next(loader, &batch) == TRI_OK) {
        tri_tensor *outputs = tri_engine_forward(engine, batch.fields[0]);
        tri_tensor *loss = tri_cross_entropy(outputs, batch.fields[1], NULL);

        tri_engine_backward(engine, loss);
        TRI_TRY(tri_engine_step(engine));
        running += tri_item(loss);
        tri_step_end();
    }
    if (tri_rank() == 0)
        printf("epoch %lld: loss %.3f\n", (long long)epoch + 1,
               running / (double)tri_loader_length(loader));
}

/* Each worker sees the whole set, as in the example. */
static double test(tri_engine *engine, tri_dataset *dataset)
{
    tri_loader *loader;
    double correct = 0;
    tri_batch batch;

    TRI_TRY(tri_loader_create(dataset, NULL, 500, NULL, &loader));
    TRI_TRY(tri_loader_begin(loader, 0, 0));
    tri_engine_train(engine, false);
    while (tri_loader_next(loader, &batch) == TRI_OK) {
        tri_tensor *outputs = tri_engine_forward(engine, batch.fields[0]);

        correct += tri_item(tri_count_correct(outputs, batch.fields[1]));
        tri_step_end();
    }
    tri_engine_train(engine, true);
    tri_loader_destroy(loader);
    return correct / (double)tri_dataset_length(dataset);
}

static tri_deepspeed_args parse_options(int argc, char **argv)
{
    const option options[] = {
        {"--epochs", "-e", "(2)", .integer = &epochs, .min = 1},
        {"--limit", NULL, "use the first N images (all)", .integer = &limit},
        {"--data", NULL, "the four files (" FASHION_MNIST_DIR ")", .text = &folder},
    };
    tri_deepspeed_args args;

    TRI_TRY(tri_deepspeed_args_take(&argc, argv, &args));
    options_parse(argc, argv, "usage: deepspeed --deepspeed_config FILE [--epochs 2] ..", options);
    return args;
}

int main(int argc, char **argv)
{
    tri_deepspeed_args args;
    tri_dataset *train, *held_out;
    tri_engine *engine;
    double accuracy;

    args = parse_options(argc, argv);
    TRI_TRY(tri_init_distributed(NULL));
    train = open_data(true);
    held_out = open_data(false);
    tri_manual_seed(0);
    TRI_TRY(tri_initialize(&args, make_network(), &(tri_initialize_options){.training_data = train},
                           &engine));
    for (int64_t epoch = 0; epoch < epochs; epoch++)
        train_epoch(engine, epoch);
    accuracy = test(engine, held_out);
    if (tri_rank() == 0)
        printf("accuracy on the test images: %.4f\n", accuracy);
    tri_engine_destroy(engine);
    tri_dataset_destroy(held_out);
    tri_dataset_destroy(train);
    tri_finalize();
    return 0;
}
