/*
 * two_devices.c - two halves of a model that do not depend on each other, on two cpu devices and on
 * one: milliseconds of a training step of each, in turns, and their ratio. Half the cores are a
 * device's, so with one device the other half of them is idle.
 */
#include <stdio.h>
#include <stdlib.h>

#include <trireme/trireme.h>

#include "timing.h"

#define WIDTH 512
#define BATCH 256
#define ROUNDS 9
#define STEPS 6 /* a round */

typedef struct half {
    tri_module *net;
    tri_tensor *x;
} half;

static half make_half(tri_device device)
{
    half h = {NULL, NULL};

    TRI_ON(device)
    {
        h.net = tri_nn_sequential(tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_relu(),
                                  tri_nn_linear(WIDTH, WIDTH, NULL), tri_nn_relu(),
                                  tri_nn_linear(WIDTH, WIDTH, NULL));
        h.x = tri_tensor_create(TRI_SHAPE(BATCH, WIDTH), TRI_DTYPE_F32);
    }
    TRI_TRY(tri_module_status(h.net));
    TRI_TRY(tri_init_uniform(h.x, -1, 1));
    return h;
}

static double round_of(const half *a, const half *b)
{
    double begin = now_us();

    for (int i = 0; i < STEPS; i++) {
        tri_backward(tri_mean(tri_square(tri_forward(a->net, a->x)), NULL, 0, false));
        tri_backward(tri_mean(tri_square(tri_forward(b->net, b->x)), NULL, 0, false));
        TRI_TRY(tri_step_end_status());
    }
    return (now_us() - begin) / 1e3 / STEPS;
}

int main(void)
{
    double one[ROUNDS], two[ROUNDS], one_ms, two_ms;
    half a, b, c;

    TRI_TRY(tri_cpu_devices_set(2));
    a = make_half(TRI_CPU(0));
    b = make_half(TRI_CPU(0));
    c = make_half(TRI_CPU(1));
    for (int i = -1; i < ROUNDS; i++) {
        one[i < 0 ? 0 : i] = round_of(&a, &b);
        two[i < 0 ? 0 : i] = round_of(&a, &c);
    }
    one_ms = median(one, ROUNDS);
    two_ms = median(two, ROUNDS);
    printf("one device\tms\t%.3f\ntwo devices\tms\t%.3f\nratio\ttimes\t%.3f\n", one_ms, two_ms,
           one_ms / two_ms);
    return 0;
}
