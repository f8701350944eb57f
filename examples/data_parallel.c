/*
 * data_parallel.c - one network on several devices of one process: the DataParallel tutorial of
 * PyTorch, line by line.
 *
 *     build/bin/data_parallel --devices 4
 *     build/bin/data_parallel --devices 8 --batch-size 10
 *
 * "In Model" is printed by the network, once for each piece of a batch; "Outside" by the loop,
 * which sees the whole batch whatever the number of devices.
 */
#include <stdio.h>

#include <trireme/trireme.h>

#include "command_line.h"

#define INPUT_SIZE 5
#define OUTPUT_SIZE 2

static const char usage[] =
    "usage: data_parallel [options]\n\n"
    "Runs one linear layer on batches that are cut over several devices, and prints the size of\n"
    "each piece and of each whole.";

/* --- the network ---------------------------------------------------------- */

typedef struct model {
    tri_module *fc;
} model;

static void print_sizes(const char *before, tri_tensor *in, const char *between, tri_tensor *out)
{
    printf("%s input size %s %s %s\n", before, tri_tensor_shape_text(in), between,
           tri_tensor_shape_text(out));
}

static tri_tensor *model_forward(tri_module *self, tri_tensor *x)
{
    tri_tensor *y = tri_forward(((model *)tri_module_data(self))->fc, x);

    print_sizes("\tIn Model:", x, "output size", y);
    return y;
}

static tri_module *model_create(void)
{
    tri_module *self = tri_module_simple("Model", sizeof(model), model_forward);

    ((model *)tri_module_data(self))->fc =
        tri_module_add_child(self, "fc", tri_nn_linear(INPUT_SIZE, OUTPUT_SIZE, NULL));
    return self;
}

/* --- the loop ------------------------------------------------------------- */

static int64_t devices, data_size = 100, batch_size = 30;

static void parse(int argc, char **argv)
{
    const option options[] = {
        {.name = "--devices", .help = "cpu devices (TRI_CPU_DEVICES, else 2)", .integer = &devices},
        {.name = "--data-size", .help = "samples (100)", .integer = &data_size, .min = 1},
        {.name = "--batch-size", .help = "of each step (30)", .integer = &batch_size, .min = 1},
    };

    options_parse(argc, argv, usage, options);
}

/* Random vectors in memory, in a random order. */
typedef struct data {
    tri_tensor *vectors;
    tri_dataset *dataset;
    tri_sampler *sampler;
    tri_loader *loader;
} data;

static data data_create(void)
{
    const tri_field field = {.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {INPUT_SIZE}};
    const void *contents;
    data d;

    d.vectors = tri_tensor_clone(tri_randn(TRI_SHAPE(data_size, INPUT_SIZE), TRI_DTYPE_F32));
    contents = tri_data(d.vectors);
    TRI_TRY(tri_dataset_arrays(data_size, &field, &contents, 1, &d.dataset));
    TRI_TRY(tri_sampler_random(data_size, NULL, &d.sampler));
    TRI_TRY(tri_loader_create(d.dataset, d.sampler, batch_size, NULL, &d.loader));
    return d;
}

static void data_destroy(data *d)
{
    tri_loader_destroy(d->loader);
    tri_sampler_destroy(d->sampler);
    tri_dataset_destroy(d->dataset);
    tri_tensor_unref(d->vectors);
}

int main(int argc, char **argv)
{
    tri_module *net;
    tri_batch batch;
    tri_status status;
    data d;

    parse(argc, argv);
    if (devices > 0 || getenv("TRI_CPU_DEVICES") == NULL)
        TRI_TRY(tri_cpu_devices_set(devices > 0 ? (int)devices : 2));
    d = data_create();
    net = model_create();
    if (tri_device_count(TRI_DEVICE_CPU) > 1) {
        printf("Let's use %d devices!\n", tri_device_count(TRI_DEVICE_CPU));
        net = tri_data_parallel(net, NULL);
    }
    tri_module_print(net, stdout);

    TRI_TRY(tri_loader_begin(d.loader, 0, 0));
    while ((status = tri_loader_next(d.loader, &batch)) == TRI_OK) {
        tri_tensor *output = tri_forward(net, batch.fields[0]);

        print_sizes("Outside:", batch.fields[0], "output_size", output);
        TRI_TRY(tri_step_end_status());
    }
    TRI_TRY(status == TRI_END ? TRI_OK : status);

    tri_module_destroy(net);
    data_destroy(&d);
    return 0;
}
