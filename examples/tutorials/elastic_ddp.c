/*
 * elastic_ddp.c - PyTorch's tutorial "Getting Started with Distributed Data Parallel", its last
 * part: the same training where a launcher starts the processes.
 *
 *     torchrun --nnodes=2 --nproc_per_node=8 --rdzv_id=100 --rdzv_backend=c10d \
 *         --rdzv_endpoint=$MASTER_ADDR:29400 elastic_ddp.py
 *
 * becomes, on each of the two hosts,
 *
 *     trirun --nnodes=2 --nproc_per_node=8 --rdzv_id=100 --rdzv_backend=c10d \
 *         --rdzv_endpoint=$MASTER_ADDR:29400 build/bin/elastic_ddp
 *
 * and on one host
 *
 *     torchrun --nproc_per_node=2 elastic_ddp.py
 *     python -m torch.distributed.launch --nproc_per_node=2 elastic_ddp.py
 *
 * become
 *
 *     trirun --nproc_per_node=2 build/bin/elastic_ddp
 *     trirun-launch --nproc_per_node=2 build/bin/elastic_ddp
 *
 * of which the second hands --local-rank=N to the program, as launch does.
 *
 * Under Slurm the tutorial has `srun --nodes=2 ./torchrun_script.sh`; here trirun is in the script.
 * The program also starts without trirun: under srun, mpirun or torchrun (--no-python), and by
 * itself, as one rank.
 */

#include <trireme/trireme.h>

#include "../command_line.h"

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

static void demo_basic(void)
{
    tri_module *ddp_model;
    tri_optimizer *optimizer;
    tri_tensor *outputs, *labels;
    int rank;

    TRI_TRY(tri_init(NULL));
    TRI_TRY(tri_set_device(TRI_CPU(tri_local_rank()))); /* there is one for each local rank */
    rank = tri_rank();
    printf("Start running basic DDP example on rank %d.\n", rank);

    ddp_model = tri_ddp(toy_model_create(), NULL);
    optimizer = tri_sgd(ddp_model, 0.001, NULL);
    outputs = tri_forward(ddp_model, tri_randn(TRI_SHAPE(20, 10), TRI_DTYPE_F32));
    labels = tri_randn(TRI_SHAPE(20, 5), TRI_DTYPE_F32);
    tri_backward(tri_mse_loss(outputs, labels, NULL));
    TRI_TRY(tri_optimizer_step(optimizer)); /* all of the above runs here */
    tri_step_end();

    tri_optimizer_destroy(optimizer);
    tri_module_destroy(ddp_model);
    tri_finalize();
    printf("Finished running basic DDP example on rank %d.\n", rank);
}

static void parse(int argc, char **argv)
{
    int64_t local_rank; /* which torch.distributed.launch hands out, and tri_init knows */
    const option options[] = {{"--local-rank", .integer = &local_rank}};

    options_parse(argc, argv, "usage: [trirun --nproc_per_node=N] elastic_ddp", options);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    demo_basic();
    return 0;
}
