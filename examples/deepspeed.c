/*
 * deepspeed.c - DeepSpeed's cifar10_deepspeed.py on Fashion-MNIST, as a configuration file says.
 *
 *     trirun --nproc-per-node 2 deepspeed --deepspeed_config examples/deepspeed_zero2.json
 * With --save DIR it goes on from the checkpoint there, with any number of workers.
 */
#include <trireme/trireme.h>

#include "command_line.h"
#include "fashion_mnist.h"

static int64_t epochs = 2, limit;
static const char *folder, *save;

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
    const tri_transform look = tri_transform_to_float();
    tri_dataset *dataset;

    TRI_TRY(fashion_mnist(folder, train, &dataset));
    if (limit > 0 && limit < tri_dataset_length(dataset))
        TRI_TRY(tri_dataset_subset(dataset, 0, limit, &dataset));
    TRI_TRY(tri_dataset_transform(dataset, &look, 1, &dataset));
    return dataset;
}

static void train_epoch(tri_engine *engine, int64_t epoch)
{
    tri_loader *loader = tri_engine_training_dataloader(engine);
    double running = 0;
    tri_batch batch;

    TRI_TRY(tri_loader_begin(loader, epoch, 0));
    while (tri_loader_next(loader, &batch) == TRI_OK) {
        tri_tensor *loss =
            tri_cross_entropy(tri_engine_forward(engine, batch.fields[0]), batch.fields[1], NULL);

        tri_engine_backward(engine, loss);
        TRI_TRY(tri_engine_step(engine));
        running += tri_item(loss);
        tri_step_end();
    }
    TRI_TRY(tri_engine_flush(engine)); /* micro-batches that fill no group */
    if (tri_rank() == 0)
        printf("epoch %d: loss %.3f\n", (int)epoch + 1,
               running / (double)tri_loader_length(loader));
}

static void test(tri_engine *engine)
{
    tri_dataset *dataset = open_data(false);
    tri_loader *loader;
    double correct = 0;
    tri_batch batch;

    TRI_TRY(tri_loader_create(dataset, NULL, 500, NULL, &loader));
    TRI_TRY(tri_loader_begin(loader, 0, 0));
    tri_engine_train(engine, false);
    while (tri_loader_next(loader, &batch) == TRI_OK) {
        correct += tri_item(
            tri_count_correct(tri_engine_forward(engine, batch.fields[0]), batch.fields[1]));
        tri_step_end();
    }
    tri_loader_destroy(loader);
    if (tri_rank() == 0)
        printf("test accuracy %.4f\n", correct / (double)tri_dataset_length(dataset));
    tri_dataset_destroy(dataset);
}

static void parse_options(int argc, char **argv, tri_deepspeed_args *args)
{
    const option options[] = {
        {"--epochs", "-e", "(2)", .integer = &epochs, .min = 1},
        {"--limit", NULL, "use the first N images (all)", .integer = &limit},
        {"--save", NULL, "folder of checkpoints", .text = &save},
        {"--data", NULL, "the four files (" FASHION_MNIST_DIR ")", .text = &folder},
    };

    TRI_TRY(tri_deepspeed_args_take(&argc, argv, args));
    options_parse(argc, argv, "usage: deepspeed --deepspeed_config FILE [--epochs 2] ..", options);
}

int main(int argc, char **argv)
{
    tri_initialize_options opt = {0};
    tri_deepspeed_args args;
    tri_engine *engine;
    tri_status found;
    int64_t epoch = 0;

    parse_options(argc, argv, &args);
    opt.training_data = open_data(true);
    TRI_TRY(tri_initialize(&args, make_network(), &opt, &engine));
    found = save == NULL ? TRI_ERR_NOT_FOUND : tri_engine_load_checkpoint(engine, save, NULL, NULL);
    if (found != TRI_ERR_NOT_FOUND) { /* perhaps damaged: then it ends here */
        TRI_TRY(found);
        epoch = strtol(tri_engine_client(engine, "epoch"), NULL, 10);
    }
    while (epoch < epochs) {
        char done[24];
        train_epoch(engine, epoch++);
        snprintf(done, sizeof(done), "%d", (int)epoch);
        if (save != NULL)
            TRI_TRY(
                tri_engine_save_checkpoint(engine, save, NULL, &(tri_metadata){"epoch", done}, 1));
    }
    test(engine);
    tri_engine_destroy(engine);
    tri_dataset_destroy(opt.training_data);
    tri_finalize();
}
