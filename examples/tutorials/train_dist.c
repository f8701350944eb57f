/*
 * train_dist.c - PyTorch's tutorial "Writing Distributed Applications with PyTorch", its training:
 * data that is partitioned, and gradients that are averaged by hand. It shows what tri_ddp does by
 * itself, and faster.
 *
 *     python train_dist.py               becomes
 *     build/bin/train_dist [EPOCHS [SAMPLES [FOLDER]]]
 *
 * FOLDER holds MNIST's four files; the default is Fashion-MNIST. EPOCHS is 10, SAMPLES all.
 */

#include <trireme/trireme.h>

#include "../command_line.h"
#include "../fashion_mnist.h"

enum { WORLD_SIZE = 2 };

static int64_t n_epochs = 10, n_samples;
static const char *folder;

/* --- dataset partitioning helper ------------------------------------------ */

/* Some samples of a data set, by a list of indices: a data set class of its own. */
typedef struct partition {
    tri_dataset base;
    tri_dataset *data;
    const int64_t *index;
} partition;

static tri_status partition_read(tri_dataset *self, const tri_request *request, void *const *slots)
{
    const partition *p = (const partition *)self;
    int64_t *indices = malloc((size_t)request->n * sizeof(*indices));
    tri_request theirs = *request;
    tri_status status;

    if (indices == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < request->n; i++)
        indices[i] = p->index[request->indices[i]];
    theirs.indices = indices;
    status = tri_dataset_read(p->data, &theirs, slots);
    free(indices);
    return status;
}

static const tri_dataset_class partition_class = {.name = "partition", .read = partition_read};

/* Cuts a data set, shuffled by the seed, into as many parts as there are processes. */
typedef struct data_partitioner {
    tri_dataset *data;
    tri_sampler *order;
} data_partitioner;

static void data_partitioner_create(data_partitioner *p, tri_dataset *data, uint64_t seed)
{
    const tri_sampler_random_options shuffle = {.seed = seed};

    p->data = data;
    TRI_TRY(tri_sampler_random(tri_dataset_length(data), &shuffle, &p->order));
    TRI_TRY(tri_sampler_set_epoch(p->order, 0)); /* draws it */
}

static partition data_partitioner_use(const data_partitioner *p, int rank, int size)
{
    const int64_t part_len = tri_dataset_length(p->data) / size;
    partition part = {.base = *p->data, .data = p->data};

    part.base.cls = &partition_class;
    part.base.length = part_len;
    part.index = tri_sampler_indices(p->order) + rank * part_len;
    return part;
}

/* --- the network ---------------------------------------------------------- */

typedef struct net {
    tri_module *conv1, *conv2, *fc1, *fc2;
} net;

/* Leaves out whole channels. */
static tri_tensor *dropout2d(tri_tensor *x, bool training)
{
    const int64_t channels[4] = {tri_tensor_size(x, 0), tri_tensor_size(x, 1), 1, 1};

    return tri_mul(x, tri_dropout(tri_ones(channels, 4, TRI_DTYPE_F32), 0.5, training));
}

static tri_tensor *net_forward(tri_module *self, tri_tensor *x)
{
    const tri_pool_options by_two = {.kernel = {2, 2}};
    const bool training = tri_module_is_training(self);
    net *n = tri_module_data(self);

    x = tri_relu(tri_max_pool(tri_forward(n->conv1, x), &by_two));
    x = tri_relu(tri_max_pool(dropout2d(tri_forward(n->conv2, x), training), &by_two));
    x = tri_relu(tri_forward(n->fc1, tri_reshape(x, TRI_SHAPE(-1, 320))));
    x = tri_forward(n->fc2, tri_dropout(x, 0.5, training));
    return tri_log_softmax(x, 1);
}

static tri_module *net_create(void)
{
    tri_module *self = tri_module_simple("Net", sizeof(net), net_forward);
    net *n = tri_module_data(self);

    n->conv1 = tri_module_add_child(self, "conv1", tri_nn_conv2d(1, 10, 5, NULL));
    n->conv2 = tri_module_add_child(self, "conv2", tri_nn_conv2d(10, 20, 5, NULL));
    n->fc1 = tri_module_add_child(self, "fc1", tri_nn_linear(320, 50, NULL));
    n->fc2 = tri_module_add_child(self, "fc2", tri_nn_linear(50, 10, NULL));
    return self;
}

/* --- distributed synchronous SGD ------------------------------------------ */

/* Gradient averaging: one call for each parameter, when all gradients are complete. */
static void average_gradients(tri_module *model)
{
    TRI_TRY(tri_run()); /* forward and backward */
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_tensor *grad = tri_grad(tri_module_state(model, i).tensor);
        size_t n = (size_t)tri_tensor_numel(grad);
        float *values = malloc(n * sizeof(float));

        TRI_TRY(tri_tensor_copy_out(grad, values, n * sizeof(float)));
        TRI_TRY(tri_all_reduce(NULL, values, values, n, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        for (size_t k = 0; k < n; k++)
            values[k] /= (float)tri_world_size();
        TRI_TRY(tri_tensor_copy_in(grad, values, n * sizeof(float)));
        free(values);
    }
}

static tri_status run(int rank, void *arg)
{
    const double mean = 0.1307, std = 0.3081;
    const tri_transform look[2] = {tri_transform_to_float(),
                                   tri_transform_normalize(&mean, &std, 1)};
    data_partitioner partitioner;
    partition part;
    tri_dataset *dataset;
    tri_sampler *shuffle;
    tri_loader *train_set;
    tri_module *model;
    tri_optimizer *optimizer;
    tri_batch batch;
    uint64_t hash;

    (void)arg;
    TRI_TRY(tri_init(NULL));
    tri_manual_seed(1234);
    TRI_TRY(fashion_mnist(folder, true, &dataset));
    TRI_TRY(tri_dataset_transform(dataset, look, 2, &dataset));
    if (n_samples > 0)
        TRI_TRY(tri_dataset_subset(dataset, 0, n_samples, &dataset));
    data_partitioner_create(&partitioner, dataset, 1234);
    part = data_partitioner_use(&partitioner, rank, tri_world_size());
    TRI_TRY(tri_sampler_random(tri_dataset_length(&part.base), NULL, &shuffle));
    TRI_TRY(
        /* the tutorial's bsz */
        tri_loader_create(&part.base, shuffle, 128 / tri_world_size(), NULL, &train_set));

    model = net_create();
    optimizer = tri_sgd(model, 0.01, &(tri_sgd_options){.momentum = 0.5});
    for (int64_t epoch = 0; epoch < n_epochs; epoch++) {
        double epoch_loss = 0;
        tri_status status;

        TRI_TRY(tri_loader_begin(train_set, epoch, 0));
        while ((status = tri_loader_next(train_set, &batch)) == TRI_OK) {
            tri_tensor *loss =
                tri_nll_loss(tri_forward(model, batch.fields[0]), batch.fields[1], NULL);

            tri_backward(loss);
            average_gradients(model);
            epoch_loss += tri_item(loss);
            TRI_TRY(tri_optimizer_step(optimizer));
            tri_step_end();
        }
        TRI_TRY(status); /* TRI_END is no failure */
        printf("Rank  %d , epoch  %lld :  %g\n", rank, (long long)epoch,
               epoch_loss / (double)tri_loader_length(train_set));
    }
    TRI_TRY(tri_module_hash(model, &hash));
    printf("Rank  %d , parameters  %016llx\n", rank, (unsigned long long)hash); /* equal on all */
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(model);
    tri_loader_destroy(train_set);
    tri_sampler_destroy(shuffle);
    tri_sampler_destroy(partitioner.order);
    tri_dataset_destroy(dataset);
    tri_finalize();
    return TRI_OK;
}

static void parse(int argc, char **argv)
{
    static const option options[] = {
        {"EPOCHS", .help = "(10)", .integer = &n_epochs, .min = 1},
        {"SAMPLES", .help = "(all)", .integer = &n_samples, .min = WORLD_SIZE},
        {"FOLDER", .help = "with MNIST's four files (Fashion-MNIST)", .text = &folder}};

    options_parse(argc, argv, "usage: train_dist [EPOCHS [SAMPLES [FOLDER]]]", options);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    TRI_TRY(tri_spawn(run, NULL, WORLD_SIZE, NULL));
    return 0;
}
