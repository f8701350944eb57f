/*
 * integers.h - tensors of small whole numbers, the same for one seed. Tests only.
 */
#ifndef TEST_INTEGERS_H
#define TEST_INTEGERS_H

#include <stdlib.h>
#include <string.h>

#include <trireme/tensor.h>

#include "base/dtype.h"

static uint64_t random_state;

static inline int64_t below(int64_t n)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

/* Small integers: their sums are exact in whatever order they are added. */
static inline tri_tensor *integers(tri_dtype dtype, const int64_t *shape, int ndim)
{
    int64_t n = 1;
    size_t size = tri_dtype_size(dtype);
    char *data;
    tri_tensor *x;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    data = malloc((size_t)n * size + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t number = below(7) - 3;
        float single = (float)number;
        double wide = (double)number;
        uint16_t narrow = trii_f32_to_bf16(single);

        memcpy(data + (size_t)i * size,
               dtype == TRI_DTYPE_F32    ? (const void *)&single
               : dtype == TRI_DTYPE_F64  ? (const void *)&wide
               : dtype == TRI_DTYPE_BF16 ? (const void *)&narrow
                                         : (const void *)&number,
               size);
    }
    x = tri_tensor_from(shape, ndim, dtype, data);
    free(data);
    return x;
}

#endif
