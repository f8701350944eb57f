/*
 * rpc_parameter_server.c - PyTorch's tutorial "Implementing a Parameter Server Using Distributed
 * RPC Framework": the server has the network, and all trainers train it.
 *
 *     python rpc_parameter_server.py --world_size=4 --rank=0
 *     python rpc_parameter_server.py --world_size=4 --rank=1     and 2, and 3
 *
 * become
 *
 *     build/bin/rpc_parameter_server --world_size=4 --rank=0
 *     build/bin/rpc_parameter_server --world_size=4 --rank=1     and 2, and 3
 *
 * which meet at --master_addr=localhost --master_port=29500. Without --rank it starts all of them
 * itself, and so do launchers:
 *
 *     build/bin/rpc_parameter_server --world_size=4
 *     trirun --nproc_per_node=4 build/bin/rpc_parameter_server
 *     torchrun --no-python --nproc_per_node=4 build/bin/rpc_parameter_server
 *     mpirun -np 4 build/bin/rpc_parameter_server
 *
 * --data=FOLDER is where MNIST's four files are; the default is Fashion-MNIST. --batches=N ends
 * training after N batches, --test_samples=N measures the accuracy on the first N images.
 *
 * Each trainer sends images to the server and gets back what its network says of them. The
 * gradients stay at the server, in an account for each trainer, until the trainer says that its
 * step is over. With more than one trainer PyTorch's program fails as soon as one updates the
 * network between the forward and the backward of another; here backward sees the parameters that
 * its forward has seen.
 */
#include <string.h>

#include <trireme/remote.h>
#include <trireme/trireme.h>

#include "../command_line.h"
#include "../fashion_mnist.h"

enum { BATCH_SIZE = 32 };

static int64_t world_size = 4, rank_here = -1, master_port = 29500, n_batches, n_test_samples;
static const char *master_addr = "localhost", *folder;

/* --- the network ---------------------------------------------------------- */

typedef struct net {
    tri_module *conv1, *conv2, *dropout1, *fc1, *dropout2, *fc2;
} net;

static tri_tensor *net_forward(tri_module *self, tri_tensor *x)
{
    net *n = tri_module_data(self);

    x = tri_relu(tri_forward(n->conv1, x));
    x = tri_relu(tri_forward(n->conv2, x));
    x = tri_max_pool(x, &(tri_pool_options){.kernel = {2, 2}});
    x = tri_flatten(tri_forward(n->dropout1, x), 1);
    x = tri_relu(tri_forward(n->fc1, x));
    return tri_log_softmax(tri_forward(n->fc2, tri_forward(n->dropout2, x)), 1);
}

static tri_module *net_create(void)
{
    tri_module *self = tri_module_simple("Net", sizeof(net), net_forward);
    net *n = tri_module_data(self);

    printf("Using 0 GPUs to train\n");
    printf("Putting first 2 convs on cpu\n");
    n->conv1 = tri_module_add_child(self, "conv1", tri_nn_conv2d(1, 32, 3, NULL));
    n->conv2 = tri_module_add_child(self, "conv2", tri_nn_conv2d(32, 64, 3, NULL));
    printf("Putting rest of layers on cpu\n");
    n->dropout1 = tri_module_add_child(self, "dropout1", tri_nn_dropout2d(0.25));
    n->dropout2 = tri_module_add_child(self, "dropout2", tri_nn_dropout(0.5));
    n->fc1 = tri_module_add_child(self, "fc1", tri_nn_linear(9216, 128, NULL));
    n->fc2 = tri_module_add_child(self, "fc2", tri_nn_linear(128, 10, NULL));
    return self;
}

/* --- the server ----------------------------------------------------------- */

static void run_parameter_server(void)
{
    tri_module *model;
    tri_optimizer *opt;

    printf("PS master initializing RPC\n");
    TRI_TRY(tri_rpc_init("parameter_server", NULL)); /* returns when all trainers are there */
    printf("RPC initialized! Running parameter server...\n");
    tri_manual_seed(1);
    model = net_create(); /* one for all trainers */
    opt = tri_sgd(model, 0.03, NULL);
    TRI_TRY(tri_remote_serve(NULL, "net", model, opt, NULL));
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER)); /* serves, until all trainers are done */
    TRI_TRY(tri_rpc_fini());
    printf("RPC shutdown on parameter server.\n");
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
}

/* --- trainers ------------------------------------------------------------- */

/* Batches of all images, in an order of this trainer's own. */
static void open_data(bool train, int rank, tri_dataset **data, tri_sampler **order,
                      tri_loader **loader)
{
    const double mean = 0.1307, std = 0.3081;
    const tri_transform look[2] = {tri_transform_to_float(),
                                   tri_transform_normalize(&mean, &std, 1)};

    TRI_TRY(fashion_mnist(folder, train, data));
    TRI_TRY(tri_dataset_transform(*data, look, 2, data));
    if (!train && n_test_samples > 0 && n_test_samples < tri_dataset_length(*data))
        TRI_TRY(tri_dataset_subset(*data, 0, n_test_samples, data));
    TRI_TRY(tri_sampler_random(tri_dataset_length(*data),
                               &(tri_sampler_random_options){.seed = (uint64_t)rank}, order));
    TRI_TRY(tri_loader_create(*data, *order, BATCH_SIZE, NULL, loader));
    TRI_TRY(tri_loader_begin(*loader, 0, 0));
}

static void run_training_loop(int rank, tri_module *remote_net, tri_loader *train_loader)
{
    tri_remote_optimizer *opt = tri_remote_optimizer_of(NULL, &remote_net, 1, NULL);
    tri_status status = TRI_OK;
    tri_batch batch;

    for (int64_t i = 0; i < n_batches || n_batches == 0; i++) {
        tri_tensor *model_output, *loss;

        status = tri_loader_next(train_loader, &batch);
        if (status != TRI_OK)
            break;
        model_output = tri_forward(remote_net, batch.fields[0]); /* recorded */
        loss = tri_nll_loss(model_output, batch.fields[1], NULL);
        if (i % 5 == 0)
            printf("Rank %d training batch %lld loss %g\n", rank, (long long)i, tri_item(loss));
        tri_backward(loss);
        /* Runs forward and backward, here and at the server, which then updates the network. */
        TRI_TRY(tri_remote_optimizer_step(opt));
        tri_step_end();
    }
    TRI_TRY(status); /* TRI_END is no failure */
    printf("Training complete!\n");
    tri_remote_optimizer_destroy(opt);
}

static void get_accuracy(tri_module *remote_net, tri_loader *test_loader, int64_t n_samples)
{
    double correct = 0;
    tri_status status;
    tri_batch batch;

    printf("Getting accuracy....\n");
    tri_module_train(remote_net, false); /* travels with each forward: the server drops nothing */
    while ((status = tri_loader_next(test_loader, &batch)) == TRI_OK) {
        TRI_NO_GRAD /* so does this: the server keeps nothing for a backward */
        {
            correct += tri_item(
                tri_count_correct(tri_forward(remote_net, batch.fields[0]), batch.fields[1]));
        }
        tri_step_end();
    }
    TRI_TRY(status);
    printf("Accuracy %g\n", correct / (double)n_samples);
}

static void run_worker(int rank)
{
    char name[32];
    tri_dataset *data[2];
    tri_sampler *order[2];
    tri_loader *loader[2];
    tri_module *remote_net;

    open_data(true, rank, &data[0], &order[0], &loader[0]);
    open_data(false, rank, &data[1], &order[1], &loader[1]);
    printf("Worker rank %d initializing RPC\n", rank);
    snprintf(name, sizeof(name), "trainer_%d", rank);
    TRI_TRY(tri_rpc_init(name, NULL));
    printf("Worker %d done initializing RPC\n", rank);
    remote_net = tri_remote_module(NULL, "parameter_server/net", NULL);
    run_training_loop(rank, remote_net, loader[0]);
    get_accuracy(remote_net, loader[1], tri_dataset_length(data[1]));
    tri_module_destroy(remote_net);
    TRI_TRY(tri_rpc_join(NULL, TRI_FOREVER));
    TRI_TRY(tri_rpc_fini());
    for (int i = 0; i < 2; i++) {
        tri_loader_destroy(loader[i]);
        tri_sampler_destroy(order[i]);
        tri_dataset_destroy(data[i]);
    }
}

/* --- processes ------------------------------------------------------------ */

static tri_status run(int rank, void *arg)
{
    char url[300];
    tri_init_options by_hand = {.url = url, .rank = (int)rank_here, .world_size = (int)world_size};

    (void)rank;
    (void)arg;
    snprintf(url, sizeof(url), "tcp://%s:%d", master_addr, (int)master_port);
    TRI_TRY(tri_init(rank_here >= 0 ? &by_hand : NULL));
    if (tri_world_size() < 2)
        return tri_status_fail(TRI_ERR_INVALID_ARG, "a server and at least one trainer are needed");
    if (tri_rank() == 0)
        run_parameter_server();
    else
        run_worker(tri_rank());
    tri_finalize();
    return TRI_OK;
}

static void parse(int argc, char **argv)
{
    static const option options[] = {
        {"--world_size", NULL, "a server and its trainers (4)", .integer = &world_size, .min = 2},
        {"--rank", NULL, "of this process; 0 is the server", .integer = &rank_here},
        {"--master_addr", NULL, "where they meet (localhost)", "HOST", .text = &master_addr},
        {"--master_port", NULL, "(29500)", .integer = &master_port, .min = 1, .max = 65535},
        {"--data", NULL, "MNIST's four files (Fashion-MNIST)", .text = &folder},
        {"--batches", NULL, "after which training ends", .integer = &n_batches, .min = 1},
        {"--test_samples", NULL, "for the accuracy (all)", .integer = &n_test_samples, .min = 1}};

    options_parse(argc, argv, "usage: rpc_parameter_server [options]", options);
    if (rank_here >= world_size)
        options_refuse("--rank must be below --world_size");
}

/* Starts all workers, unless a launcher, or somebody by hand, starts each: then this is one. */
static tri_status start(void)
{
    return rank_here < 0 && strcmp(tri_launcher(), "none") == 0
               ? tri_spawn(run, NULL, (int)world_size, NULL)
               : run(0, NULL);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    TRI_TRY(start());
    return 0;
}
