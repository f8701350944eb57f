/*
 * remote_layers.h - small layers for remote modules, and what goes into them. Tests only.
 */
#ifndef TEST_REMOTE_LAYERS_H
#define TEST_REMOTE_LAYERS_H

#include "testing/remote_workers.h"

#define WIDTH 6

static inline tri_module *linear_with(int seed)
{
    tri_module *net = tri_nn_linear(WIDTH, WIDTH, NULL);
    tri_tensor *weight = remote_tensor((int64_t[]){WIDTH, WIDTH}, 2, TRI_DTYPE_F32, seed);
    size_t bytes;
    char *data = remote_bytes(weight, &bytes);

    CHECK_OK(tri_tensor_copy_in(tri_module_find(net, "weight"), data, bytes));
    free(data);
    tri_tensor_unref(weight);
    return net;
}

static inline tri_tensor *input(int seed)
{
    tri_tensor *x = remote_tensor((int64_t[]){4, WIDTH}, 2, TRI_DTYPE_F32, seed);

    tri_requires_grad(x, true);
    return x;
}

#endif
