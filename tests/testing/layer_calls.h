/*
 * layer_calls.h - what tests of layers have in common. Tests only.
 */
#ifndef TEST_LAYER_CALLS_H
#define TEST_LAYER_CALLS_H

#include <trireme/trireme.h>

#include "testing/check.h"

/* The layer says so; it is destroyed. */
static inline void layer_refused(tri_module *layer, const char *line)
{
    CHECK_FAILS(tri_module_status(layer), TRI_ERR_INVALID_ARG, line);
    tri_module_destroy(layer);
}

/* f32, 0.5, 4, 2, ... */
static inline tri_tensor *layer_input(const int64_t *shape, int ndim)
{
    float values[256];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    assert_true(n <= 256);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)((i * 7) % 11) * 0.5f + 0.5f;
    return tri_tensor_from(shape, ndim, TRI_DTYPE_F32, values);
}

#endif
