/*
 * spread_values.h - tensors of values that are spread over -1 to 1 and differ by a seed. Tests
 * only.
 */
#ifndef TEST_SPREAD_VALUES_H
#define TEST_SPREAD_VALUES_H

#include <stdlib.h>
#include <trireme/trireme.h>

static inline tri_tensor *spread_values(const int64_t *shape, int ndim, int seed)
{
    int64_t n = 1;
    tri_tensor *made;
    float *data;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    data = malloc((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)((i + seed) * 2654435761 % 1009) / 504.5F - 1;
    made = tri_tensor_from(shape, ndim, TRI_DTYPE_F32, data);
    free(data);
    return made;
}

#endif
