/*
 * toy_step.c - how long one step of the toy model takes (examples/toy_ddp.c without its words).
 * Worker 0 prints the median over rounds, in microseconds. Run by bench/toy_step.sh.
 */
#include <stdio.h>
#include <stdlib.h>

#include <trireme/trireme.h>

#include "timing.h"

#define BATCH 20
#define WARM_UP 2000
#define ROUNDS 41
#define STEPS 1000 /* a round */

static void train(tri_module *model, tri_optimizer *opt, tri_tensor *x, tri_tensor *y, int steps)
{
    double sum = 0.0;

    for (int i = 0; i < steps; i++) {
        tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);

        tri_backward(loss);
        TRI_TRY(tri_optimizer_step(opt));
        sum += tri_item(loss);
        tri_step_end();
    }
    if (!(sum >= 0.0)) {
        fprintf(stderr, "toy_step: the loss is not a number\n");
        exit(1);
    }
}

int main(void)
{
    static float values[BATCH * 15];
    double rounds[ROUNDS];
    unsigned seed = 1;
    tri_tensor *x, *y;
    tri_module *model;
    tri_optimizer *opt;

    TRI_TRY(tri_init(NULL));
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
    x = tri_tensor_from((int64_t[]){BATCH, 10}, 2, TRI_DTYPE_F32, values);
    y = tri_tensor_from((int64_t[]){BATCH, 5}, 2, TRI_DTYPE_F32, values + BATCH * 10);
    model = tri_ddp(
        tri_nn_sequential(tri_nn_linear(10, 10, NULL), tri_nn_relu(), tri_nn_linear(10, 5, NULL)),
        NULL);
    opt = tri_sgd(model, 0.001, NULL);

    train(model, opt, x, y, WARM_UP);
    for (int r = 0; r < ROUNDS; r++) {
        double start = now_us();

        train(model, opt, x, y, STEPS);
        rounds[r] = (now_us() - start) / STEPS;
    }
    TRI_TRY(tri_ddp_verify(model, true));
    if (tri_rank() == 0)
        printf("%.3f\n", median(rounds, ROUNDS));

    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_finalize();
    return 0;
}
