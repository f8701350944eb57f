/*
 * tensor_parallel_example.c - the program that PyTorch's tutorial "Large Scale Transformer model
 * training with Tensor Parallel" begins with: an MLP whose first layer is cut by columns and the
 * second by rows, so that the pair communicates once forward and once backward.
 *
 *     torchrun --nnodes 1 --nproc-per-node 4 tensor_parallel_example.py      becomes
 *     trirun --standalone --nproc-per-node 4 build/bin/tensor_parallel_example
 *
 * Any number of workers up to 32 prints the same, but for the last digits.
 */
#include <stdio.h>

#include <trireme/trireme.h>

#include "../command_line.h"

#define ITERATIONS 10

typedef struct toy_model {
    tri_module *in_proj, *relu, *out_proj;
} toy_model;

static tri_tensor *toy_model_forward(tri_module *self, tri_tensor *x)
{
    toy_model *m = tri_module_data(self);

    return tri_forward(m->out_proj, tri_forward(m->relu, tri_forward(m->in_proj, x)));
}

static tri_module *toy_model_create(void)
{
    tri_module *self = tri_module_simple("ToyModel", sizeof(toy_model), toy_model_forward);
    toy_model *m = tri_module_data(self);

    m->in_proj = tri_module_add_child(self, "in_proj", tri_nn_linear(10, 32, NULL));
    m->relu = tri_module_add_child(self, "relu", tri_nn_relu());
    m->out_proj = tri_module_add_child(self, "out_proj", tri_nn_linear(32, 5, NULL));
    return self;
}

static const char usage[] = "usage: [trirun --nproc-per-node N] tensor_parallel_example\n\n"
                            "Trains an MLP whose layers are cut over the workers.";

int main(int argc, char **argv)
{
    tri_mesh *device_mesh;
    tri_module *tp_model;
    tri_optimizer *optimizer;

    options_none(argc, argv, usage);
    TRI_TRY(tri_init(NULL));
    TRI_TRY(
        tri_mesh_create(NULL, TRI_SHAPE(tri_world_size()), (const char *[]){"tp"}, &device_mesh));

    tri_manual_seed(0); /* though rank 0's values count */
    tp_model = toy_model_create();
    TRI_TRY(tri_parallelize(tp_model, tri_mesh_group(device_mesh, "tp"),
                            (tri_parallel_rule[]){
                                {.module = "in_proj", .style = TRI_COLWISE},
                                {.module = "out_proj", .style = TRI_ROWWISE},
                            },
                            2));
    optimizer = tri_adamw(tp_model, 0.25, NULL); /* of this worker's parts */

    for (int i = 0; i < ITERATIONS; i++) {
        tri_tensor *inp, *output;

        tri_manual_seed((uint64_t)i); /* all workers have the same batch */
        inp = tri_rand(TRI_SHAPE(20, 10), TRI_DTYPE_F32);
        output = tri_keep(tri_sum(tri_forward(tp_model, inp), NULL, 0, false));
        tri_backward(output);
        TRI_TRY(tri_optimizer_step(optimizer));
        if (tri_rank() == 0)
            printf("Tensor Parallel iter %d completed, output %.4g\n", i, tri_item(output));
        TRI_TRY(tri_step_end_status());
    }
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(tp_model);
    tri_mesh_destroy(device_mesh);
    tri_finalize();
    return 0;
}
