/*
 * getting_started_ddp.c - PyTorch's tutorial "Getting Started with Distributed Data Parallel": the
 * three demos, each in processes that tri_spawn starts.
 *
 *     python getting_started_ddp.py      becomes
 *     build/bin/getting_started_ddp
 *
 * The tutorial's GPUs are cpu devices here, shares of the cores: TRI_CPU_DEVICES=N, else four.
 */

#include <trireme/trireme.h>

#include "../command_line.h"

/* The tutorial sets MASTER_ADDR and MASTER_PORT here, and passes on rank and world_size: tri_spawn
 * has put all four into the environment. */
static void setup(void)
{
    TRI_TRY(tri_init(NULL));
}

static void cleanup(void)
{
    tri_finalize();
}

/* --- basic use ------------------------------------------------------------ */

typedef struct toy_model {
    tri_module *net1, *relu, *net2;
} toy_model;

static tri_tensor *toy_model_forward(tri_module *self, tri_tensor *x)
{
    toy_model *m = tri_module_data(self);

    return tri_forward(m->net2, tri_forward(m->relu, tri_forward(m->net1, x)));
}

static tri_module *toy_model_create(void)
{
    tri_module *self = tri_module_simple("ToyModel", sizeof(toy_model), toy_model_forward);
    toy_model *m = tri_module_data(self);

    m->net1 = tri_module_add_child(self, "net1", tri_nn_linear(10, 10, NULL));
    m->relu = tri_module_add_child(self, "relu", tri_nn_relu());
    m->net2 = tri_module_add_child(self, "net2", tri_nn_linear(10, 5, NULL));
    return self;
}

/* A model on the device with this rank's number, and its replicas: DDP(ToyModel().to(rank),
 * device_ids=[rank]) */
static tri_module *toy_ddp_create(tri_device device)
{
    tri_module *model = toy_model_create();

    TRI_TRY(tri_module_to(model, device));
    return tri_ddp(model, &(tri_ddp_options){.device_ids = &device, .n_devices = 1});
}

/* Forward, backward, which averages the gradients over all processes, and update. */
static void train_one_step(tri_module *ddp_model, tri_device of_outputs)
{
    tri_optimizer *optimizer = tri_sgd(ddp_model, 0.001, NULL);
    tri_tensor *outputs = tri_forward(ddp_model, tri_randn(TRI_SHAPE(20, 10), TRI_DTYPE_F32));
    tri_tensor *labels = tri_to(tri_randn(TRI_SHAPE(20, 5), TRI_DTYPE_F32), of_outputs);

    tri_backward(tri_mse_loss(outputs, labels, NULL));
    TRI_TRY(tri_optimizer_step(optimizer)); /* the run happens here */
    tri_step_end();
    tri_optimizer_destroy(optimizer);
}

static tri_status demo_basic(int rank, void *arg)
{
    tri_module *ddp_model;

    (void)arg;
    printf("Running basic DDP example on rank %d.\n", rank);
    setup();
    ddp_model = toy_ddp_create(TRI_CPU(rank));
    train_one_step(ddp_model, TRI_CPU(rank));
    tri_module_destroy(ddp_model);
    cleanup();
    printf("Finished running basic DDP example on rank %d.\n", rank);
    return TRI_OK;
}

/* --- save on one process, load on all ------------------------------------- */

static tri_status demo_checkpoint(int rank, void *arg)
{
    const char *folder = getenv("TMPDIR"), *job = getenv("MASTER_PORT");
    char path[4096];
    tri_module *ddp_model;

    (void)arg;
    printf("Running DDP checkpoint example on rank %d.\n", rank);
    setup();
    ddp_model = toy_ddp_create(TRI_CPU(rank));
    snprintf(path, sizeof(path), "%s/model-%s.checkpoint", folder != NULL ? folder : "/tmp",
             job != NULL ? job : "alone"); /* two jobs on a host have files of their own */
    if (rank == 0) /* all have the same parameters: saving one set is enough */
        TRI_TRY(tri_save(ddp_model, path));
    TRI_TRY(tri_barrier(NULL, NULL)); /* no rank loads before it is saved */

    /* The tutorial maps rank 0's device to the rank's own (map_location). Our files name no
     * devices: tensors are loaded to where the model's parameters are. */
    TRI_TRY(tri_load(ddp_model, path, NULL));
    train_one_step(ddp_model, TRI_CPU(rank));

    /* No barrier before the file is removed: averaging the gradients was one. */
    if (rank == 0)
        remove(path);
    tri_module_destroy(ddp_model);
    cleanup();
    printf("Finished running DDP checkpoint example on rank %d.\n", rank);
    return TRI_OK;
}

/* --- a model that spans two devices --------------------------------------- */

typedef struct toy_mp_model {
    tri_device dev0, dev1;
    tri_module *net1, *relu, *net2;
} toy_mp_model;

static tri_tensor *toy_mp_model_forward(tri_module *self, tri_tensor *x)
{
    toy_mp_model *m = tri_module_data(self);

    x = tri_forward(m->relu, tri_forward(m->net1, tri_to(x, m->dev0)));
    return tri_forward(m->net2, tri_to(x, m->dev1));
}

static tri_module *toy_mp_model_create(tri_device dev0, tri_device dev1)
{
    tri_module *self = tri_module_simple("ToyMpModel", sizeof(toy_mp_model), toy_mp_model_forward);
    toy_mp_model *m = tri_module_data(self);

    m->dev0 = dev0;
    m->dev1 = dev1;
    m->net1 = tri_module_add_child(self, "net1", tri_nn_linear(10, 10, NULL));
    m->relu = tri_module_add_child(self, "relu", tri_nn_relu());
    m->net2 = tri_module_add_child(self, "net2", tri_nn_linear(10, 5, NULL));
    TRI_TRY(tri_module_to(m->net1, dev0));
    TRI_TRY(tri_module_to(m->net2, dev1));
    return self;
}

static tri_status demo_model_parallel(int rank, void *arg)
{
    const tri_device dev0 = TRI_CPU(rank * 2), dev1 = TRI_CPU(rank * 2 + 1);
    tri_module *ddp_mp_model;

    (void)arg;
    printf("Running DDP with model parallel example on rank %d.\n", rank);
    setup();
    ddp_mp_model = tri_ddp(toy_mp_model_create(dev0, dev1), NULL);
    train_one_step(ddp_mp_model, dev1); /* outputs are on dev1 */
    tri_module_destroy(ddp_mp_model);
    cleanup();
    printf("Finished running DDP with model parallel example on rank %d.\n", rank);
    return TRI_OK;
}

/* --- all of them ---------------------------------------------------------- */

static void run_demo(tri_status (*demo_fn)(int rank, void *arg), int world_size)
{
    TRI_TRY(tri_spawn(demo_fn, NULL, world_size, NULL)); /* returns when all have ended */
}

static void parse(int argc, char **argv)
{
    options_none(argc, argv, "usage: [TRI_CPU_DEVICES=N] getting_started_ddp");
}

int main(int argc, char **argv)
{
    int n_devices;

    parse(argc, argv);
    if (getenv("TRI_CPU_DEVICES") == NULL)
        TRI_TRY(tri_cpu_devices_set(4));
    n_devices = tri_device_count(TRI_DEVICE_CPU);
    if (n_devices < 2) {
        fprintf(stderr, "Requires at least 2 devices to run, but got %d\n", n_devices);
        return 1;
    }
    run_demo(demo_basic, n_devices);
    run_demo(demo_checkpoint, n_devices);
    run_demo(demo_model_parallel, n_devices / 2);
    return 0;
}
