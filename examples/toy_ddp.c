/*
 * toy_ddp.c - the smallest data-parallel training: read this first.
 *
 *     build/bin/toy_ddp                                           one worker
 *     build/bin/trirun --standalone --nproc-per-node 2 build/bin/toy_ddp
 *
 * Every worker has a replica of the network and data of its own. Each step averages the gradients
 * over the workers while the backward pass runs, so all replicas make the same update and stay
 * equal bit for bit; the last line proves it.
 */
#include <stdio.h>

#include <trireme/trireme.h>

#include "command_line.h"

#define BATCH 20
#define STEPS 10

/* Numbers between -1 and 1 that differ from worker to worker. */
static void make_data(float *values, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
}

static const char usage[] = "usage: [trirun --nproc-per-node N] toy_ddp\n\n"
                            "Trains a tiny network on random data with N workers, prints each\n"
                            "worker's losses and shows that all replicas stay equal.";

int main(int argc, char **argv)
{
    float inputs[BATCH * 10], targets[BATCH * 5];
    tri_tensor *x, *y;
    tri_module *net, *model;
    tri_optimizer *opt;
    uint64_t hash = 0;

    options_none(argc, argv, usage);
    TRI_TRY(tri_init(NULL)); /* rank and number of workers from trirun; alone: a world of one */

    make_data(inputs, BATCH * 10, 1 + (unsigned)tri_rank());
    make_data(targets, BATCH * 5, 1001 + (unsigned)tri_rank());
    x = tri_tensor_from(TRI_SHAPE(BATCH, 10), TRI_DTYPE_F32, inputs);
    y = tri_tensor_from(TRI_SHAPE(BATCH, 5), TRI_DTYPE_F32, targets);

    tri_manual_seed(0);
    net = tri_nn_sequential(tri_nn_linear(10, 10, NULL), tri_nn_relu(), tri_nn_linear(10, 5, NULL));
    model = tri_ddp(net, NULL); /* gradients are averaged over the world */
    opt = tri_sgd(model, 0.001, NULL);

    for (int step = 0; step < STEPS; step++) {
        tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);

        tri_backward(loss);
        TRI_TRY(tri_optimizer_step(opt)); /* everything above runs here, as one plan */
        printf("worker %d, step %d: loss %.6f\n", tri_rank(), step, tri_item(loss));
        tri_step_end();
    }

    TRI_TRY(tri_ddp_verify(model, true)); /* compares all replicas; an error names who differs */
    TRI_TRY(tri_module_hash(model, &hash));
    printf("worker %d of %d: all replicas are equal, hash %016llx\n", tri_rank(), tri_world_size(),
           (unsigned long long)hash);

    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_finalize();
    return 0;
}
